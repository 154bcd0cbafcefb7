"""tools/python/examples/compare.py on a script that says what it is told to have computed."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

COMPARE = pathlib.Path(__file__).resolve().parents[2] / "tools" / "python" / "examples" / "compare.py"
# --bits NAME: what it computes on a manager; --slow F: how many times as long it takes there.
SCRIPT = """
import argparse, json, pathlib, sys
parser = argparse.ArgumentParser()
for option in ("--manager", "--bits", "--fail"):
    parser.add_argument(option)
parser.add_argument("--slow", type=float, default=1.0)
options = parser.parse_args()
native = options.manager == "native"
runs = pathlib.Path("runs")
count = int(runs.read_text()) if runs.exists() else 0
runs.write_text(str(count + 1))
if options.fail and count >= int(options.fail):
    sys.exit("as told")
print("a line before it")
print(json.dumps({"manager": options.manager, "seconds": (1 if native else options.slow) * (1 + count % 4 // 2 / 1000),
                  "bits": "same" if native or not options.bits else options.bits, "reserved_bytes": 3 << 20}))
"""


class Compare(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="emmctl-compare-"))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "script.py").write_text(SCRIPT)

    def compare(self, *arguments):
        done = subprocess.run([sys.executable, str(COMPARE), str(self.folder / "script.py"), *arguments],
                              cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        return done.returncode, done.stdout, done.stderr

    def test_gives_the_script_what_it_does_not_know_with_and_without_dashes(self):
        for arguments in (["--pairs", "1", "--", "--bits", "other"], ["--pairs", "1", "--bits", "other"],
                          ["--bits", "other", "--pairs", "1", "--", "--slow", "1"]):
            code, said, _ = self.compare(*arguments)
            self.assertEqual(code, 1)
            self.assertIn("OTHER BITS", said)

    def test_says_each_pair_and_keeps_every_row(self):
        code, said, progress = self.compare("--pairs", "2", "--json", "pairs.json", "--", "--slow", "0.5")
        self.assertEqual(code, 0, said + progress)
        self.assertIn("the same bits; time 0.5000 of its own", said)
        self.assertEqual([line.split(":")[0] for line in progress.splitlines()], ["pair 1 of 2", "pair 2 of 2"])
        kept = json.loads((self.folder / "pairs.json").read_text())
        self.assertEqual([pair["first"] for pair in kept["pairs"]], ["native", "manager"])
        self.assertEqual([pair["manager"]["manager"] for pair in kept["pairs"]], ["pool", "pool"])
        self.assertEqual((kept["arguments"], kept["same"]), (["--slow", "0.5"], True))
        self.assertAlmostEqual(kept["ratio"], 0.5)

    def test_fails_where_it_is_slower_than_allowed(self):
        self.assertEqual(self.compare("--pairs", "3", "--slow", "1.05")[0], 1)
        self.assertEqual(self.compare("--pairs", "3", "--slow", "1.05", "--slower", "1.06")[0], 0)

    def test_keeps_the_pairs_before_a_failure(self):
        code, _, progress = self.compare("--pairs", "3", "--json", "pairs.json", "--fail", "3")
        self.assertNotEqual(code, 0)
        self.assertIn("as told", progress)
        self.assertEqual(len(json.loads((self.folder / "pairs.json").read_text())["pairs"]), 1)

    def test_wants_at_least_a_pair(self):
        code, _, words = self.compare("--pairs", "0")
        self.assertEqual(code, 2)
        self.assertIn("expected 1 or more", words)


if __name__ == "__main__":
    unittest.main()
