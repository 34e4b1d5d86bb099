"""Metrics, read by the parser that Prometheus's own library for Python has."""

import os
import unittest
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from conversation import Conversation
from server import binary, free_port


@unittest.skipIf(os.path.basename(binary()) == "redis-server", "Redis needs an exporter for this")
class Metrics(Conversation, unittest.TestCase):
    protocol = 3
    metrics_port = free_port()
    server_arguments = ("--metrics-port", str(metrics_port))

    def read(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=10) as answer:
            return answer.read().decode()

    def test_the_page_is_understood(self):
        with self.connect() as client:
            client.set("key", "value", px=100_000)
            client.get("key")
        families = {family.name: family for family in text_string_to_metric_families(self.read("/metrics"))}
        self.assertGreater(len(families), 100)
        self.assertEqual([name for name, family in families.items() if not family.documentation], [])
        (keys,) = families["redis_db_keys"].samples
        self.assertEqual((keys.labels, keys.value), ({"db": "db0"}, 1))
        calls = {sample.labels["cmd"]: sample.value for sample in families["redis_commands"].samples}
        self.assertEqual((calls["get"], calls["set"]), (1, 1))
        latencies = families["redis_commands_latencies_usec"]
        self.assertEqual(latencies.type, "histogram")
        of_get = [sample for sample in latencies.samples if sample.labels["cmd"] == "get"]
        buckets = [(float(each.labels["le"]), each.value) for each in of_get if each.name.endswith("_bucket")]
        self.assertEqual(buckets, sorted(buckets))
        self.assertEqual(buckets[-1], (float("inf"), 1))

    def test_it_is_well(self):
        self.assertEqual(self.read("/healthz"), "ok\n")


if __name__ == "__main__":
    unittest.main()
