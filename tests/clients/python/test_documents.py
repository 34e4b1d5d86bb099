"""The Python in the README and in the pages, each block as it stands there: it is executed, and prints what the comments
beside its print calls say. (The fixture for pytest is test_clock.py.)

A comment `# text` says what is printed; `…` in it stands for any text.
"""

import contextlib
import io
import os
import pathlib
import re
import unittest

from server import Server, binary

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCUMENTS = ("README.md", "src/guide/testing.md", "src/guide/compatibility.md")
ADDRESS = "localhost:6379"  # what the documents write for a server
PRINT = re.compile(r"^ *print\((?P<what>.*)\)  # (?P<comment>.*)$")


def blocks():
    for document in DOCUMENTS:
        text = (ROOT / document).read_text(encoding="utf-8")
        for number, block in enumerate(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)):
            if not block.startswith("import os\n"):
                yield f"{document}, block {number + 1}", block


def expected(block):
    """What each comment beside a print call says is printed, up to a colon behind which it explains."""
    matches = (PRINT.match(line) for line in block.splitlines())
    return [match["comment"].split(": ")[0] for match in matches if match]


def is_like(shown, printed):
    return re.fullmatch(".*".join(re.escape(part.strip()) for part in shown.split("…")), printed) is not None


@unittest.skipIf(os.path.basename(binary()) == "redis-server", "Redis has neither CLOCK nor FAULT")
class Documents(unittest.TestCase):
    def test_each_block_prints_what_it_says(self):
        found = list(blocks())
        self.assertEqual({place.split(",")[0] for place, _ in found}, set(DOCUMENTS))
        for place, block in found:
            with self.subTest(place):
                self.assertEqual(block.count(ADDRESS), 1, "the block names its server once")
                self.run_block(block)

    def run_block(self, block):
        server = Server("--enable-clock-command", "local", "--enable-fault-command", "local").start()
        try:
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(block.replace(ADDRESS, f"127.0.0.1:{server.port}"), "a document", "exec"), {})
            printed, comments = output.getvalue().splitlines(), expected(block)
            self.assertEqual(len(printed), len(comments), f"printed: {printed}; the comments say: {comments}")
            for shown, line in zip(comments, printed):
                self.assertTrue(is_like(shown, line), f"printed: {line}; the comment says: {shown}")
        finally:
            server.stop()


if __name__ == "__main__":
    unittest.main()
