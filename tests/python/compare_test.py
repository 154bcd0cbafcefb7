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


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="emmctl-compare-"))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "script.py").write_text(SCRIPT)

    def compare(self, *arguments):
        done = subprocess.run([sys.executable, str(COMPARE), str(self.folder / "script.py"), *arguments],
                              cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        return done.returncode, done.stdout, done.stderr


class Compare(Folder):
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


STEPS = """
import argparse, json, os, pathlib, sys, time
sys.path.insert(0, %r)
from stopwatch import Stopwatch
parser = argparse.ArgumentParser()
parser.add_argument("--manager")
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--fail", default="nobody")
options = parser.parse_args()
with open("where", "a") as where:
    where.write("%%s %%s\\n" %% (sorted(os.sched_getaffinity(0)), os.environ.get("PYTHONHASHSEED")))
watch = Stopwatch(lambda: None)
watch.start()
for step in range(options.steps + (options.manager != "native")):
    with open("log", "a") as log:
        log.write("%%s %%d\\n" %% (options.manager, step))
    if options.fail == options.manager and step == 2:
        sys.exit("as told")
    watch.step()
watch.stop()
print(json.dumps({"manager": options.manager, "seconds": watch.seconds, "reserved_bytes": 1 << 20}))
""" % str(COMPARE.parent)


class ByTurns(Folder):
    def setUp(self):
        super().setUp()
        (self.folder / "script.py").write_text(STEPS)

    def steps(self):
        return (self.folder / "log").read_text().splitlines()

    def test_the_one_waits_while_the_other_runs(self):
        code, said, words = self.compare("--by-turns", "--pairs", "1", "--slower", "1e9", "--", "--steps", "3")
        self.assertEqual(code, 0, said + words)
        self.assertEqual(self.steps(), ["native 0", "pool 0", "native 1", "pool 1", "native 2", "pool 2", "pool 3"])

    def test_the_other_pair_begins_with_the_other(self):
        self.compare("--by-turns", "--pairs", "2", "--slower", "1e9", "--", "--steps", "1")
        self.assertEqual(self.steps(), ["native 0", "pool 0", "pool 1", "pool 0", "native 0", "pool 1"])

    def test_both_of_a_pair_have_the_same_processors_and_seed(self):
        self.compare("--by-turns", "--pairs", "2", "--slower", "1e9", "--", "--steps", "1")
        first, second = (set((self.folder / "where").read_text().splitlines()[at:at + 2]) for at in (0, 2))
        self.assertEqual((len(first), len(second)), (1, 1))
        self.assertNotEqual(first, second)

    def test_without_turns_it_runs_through(self):
        self.compare("--pairs", "1", "--slower", "1e9", "--", "--steps", "2")
        self.assertEqual(self.steps(), ["native 0", "native 1", "pool 0", "pool 1", "pool 2"])

    def test_one_that_fails_does_not_keep_the_other_waiting(self):
        for manager in ("native", "pool"):
            code, _, words = self.compare("--by-turns", "--pairs", "1", "--", "--fail", manager)
            self.assertEqual(code, 1)
            self.assertIn("script.py --manager %s ended with 1" % manager, words)
            self.assertIn("as told", words)


if __name__ == "__main__":
    unittest.main()
