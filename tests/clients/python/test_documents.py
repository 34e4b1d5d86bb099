"""The Python in the README and in the pages, each block as it stands there: it is executed twice, as by a reader who runs
his file again, and prints each time what the comments beside its print calls say. (The fixture for pytest is
test_clock.py.) All blocks of the README, in all its languages, are also run in the order of reading, twice.

A comment `# text` or `// text` says what is printed; `…` in it stands for any text.
"""

import contextlib
import io
import os
import pathlib
import re
import shlex
import subprocess
import unittest

from server import Server, binary

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCUMENTS = ("README.md", "src/guide/testing.md", "src/guide/compatibility.md", "src/guide/locks.md")
ADDRESS = "localhost:6379"  # what the documents write for a server
PRINT = re.compile(r"^ *(?:print\(.*\)  #|console\.log\(.*\); //) (?P<comment>.*)$")
PACKAGES = ROOT / "tests/clients/node/node_modules"  # which tests/clients/node/run installs
PROMPT = "127.0.0.1:6379> "
SECONDS_MAX = 60  # for one block


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

    def test_the_readme_can_be_read_with_the_keyboard_twice(self):
        """Each block on the server that the README has started last, in the order of reading, two times."""
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        found = re.findall(r"^```([a-z]+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        ran = set()
        server = Server().start()
        try:
            for turn, (language, block) in [(turn, each) for turn in (1, 2) for each in found]:
                with self.subTest(turn=turn, block=block.splitlines()[0]):
                    if language == "sh" and "--enable-clock-command" in block:
                        server.stop()
                        server = Server(*shlex.split(block)[4:]).start()
                    elif language == "console":
                        self.type_in(server, block)
                    elif language == "python":
                        self.check(block, self.printed_by_python(server, block))
                    elif language == "js" and PACKAGES.is_dir():
                        self.check(block, self.printed_by_node(server, block))
                    elif language == "js":
                        self.assertNotEqual(os.environ.get("KEYFAST_TEST_TOOLS"), "required", "no packages of Node")
                        print("not run: JavaScript of the README, whose packages tests/clients/node/run installs")
                    else:
                        continue
                    ran.add(language)
        finally:
            server.stop()
        self.assertEqual(ran, {"sh", "console", "python", "js"})

    def type_in(self, server, block):
        """Types in the lines behind the client's prompt, and compares what it prints."""
        lines = block.splitlines()
        typed = [line.removeprefix(PROMPT) for line in lines if line.startswith(PROMPT)]
        client = [binary(), "cli", "-p", str(server.port), "--no-raw"]
        run = subprocess.run(
            client, input="\n".join(typed) + "\n", capture_output=True, text=True, timeout=SECONDS_MAX, check=True
        )
        shown = [line for line in lines if not line.startswith((PROMPT, "$ "))]
        self.compare(shown, run.stdout.splitlines())

    def printed_by_node(self, server, block):
        file = PACKAGES.parent / f"readme-{os.getpid()}.mjs"  # beside the packages, so that they are found
        file.write_text(block.replace(ADDRESS, f"127.0.0.1:{server.port}"), encoding="utf-8")
        try:
            run = subprocess.run(["node", file], capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
        finally:
            file.unlink()
        return run.stdout.splitlines()

    def printed_by_python(self, server, block):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(block.replace(ADDRESS, f"127.0.0.1:{server.port}"), "a document", "exec"), {})
        return output.getvalue().splitlines()

    def run_block(self, block):
        server = Server("--enable-clock-command", "local", "--enable-fault-command", "local").start()
        try:
            for _ in range(2):
                self.check(block, self.printed_by_python(server, block))
        finally:
            server.stop()

    def check(self, block, printed):
        self.compare(expected(block), printed)

    def compare(self, shown, printed):
        self.assertEqual(len(printed), len(shown), f"printed: {printed}; the document says: {shown}")
        for comment, line in zip(shown, printed):
            self.assertTrue(is_like(comment, line), f"printed: {line}; the document says: {comment}")


if __name__ == "__main__":
    unittest.main()
