#!/usr/bin/env python3
"""How often `emmctl compare` says what is so: of a manager beside itself, and beside one that was made slower on purpose.

    planted.py --build FOLDER [--slower PERCENT] [--null N] [--planted N] [--time TIME]

tests/plugins/slowed.c passes all on to the pool. First some turns find how far it must count for an event to take so many
per cent more. Then each comparison is a run of emmctl of its own, with the default threshold.

    planted.py --build FOLDER --quick

is the test: one comparison of each kind, of which one is several times slower.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Comparer:
    def __init__(self, build, trace, folder):
        self.emmctl, self.trace, self.folder = build / "bin/emmctl", trace, folder
        self.plugin = folder / "slowed.so"
        self.environment = {**os.environ, "LIBEMM": str(build / "lib/libemm.so")}
        subprocess.run(["cc", "-O2", "-std=c11", "-I", ROOT / "src/core/plugin", "-shared", "-fPIC", "-o", self.plugin,
                        ROOT / "tests/plugins/slowed.c", "-ldl"], check=True)

    def compare(self, spins, *options):
        """What compare wrote as JSON of managers that count so far, and the seconds that it took."""
        out = self.folder / "out.json"
        began = time.monotonic()
        done = subprocess.run([self.emmctl, "compare", self.trace, *(word for spin in spins for word in
                               ("--manager", f"{self.plugin}:spin={spin}")), "--device", "sim", "--clock", "host",
                               "--json", out, *options], env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode not in (0, 1):
            sys.exit(done.stderr)
        return json.loads(out.read_text()), time.monotonic() - began

    def spin_for(self, slower):
        """How far to count so that an event takes `slower` per cent more."""
        # The first turns of the loop cost nothing beside what the processor waits for: the way there is not straight.
        below, above, more = 0, 256, 0.0
        while above - below > 1:
            at = (below + above) // 2
            found, _ = self.compare([0, at], "--rounds", "21")
            more = 100 * (found["managers"][1]["over_first_manager"]["median"] - 1)
            if abs(more - slower) < slower / 25:
                break
            below, above = (at, above) if more < slower else (below, at)
        return at, more


def verdict_of_time(comparison):
    return next(each for each in comparison["verdicts"] if each["measure"] == "ns_per_event")


def series(comparer, spin, count, options, what):
    told, took = {}, []
    for number in range(count):
        found, seconds = comparer.compare([0, spin], *options)
        verdict = verdict_of_time(found)
        told[verdict["verdict"]] = told.get(verdict["verdict"], 0) + 1
        took.append(seconds)
        ratio = verdict["ratio"]
        print(f"{what} {number + 1}: {verdict['verdict']} {ratio['median']:.3f} [{ratio['low']:.3f}-{ratio['high']:.3f}], "
              f"{found['rounds']} rounds, {seconds:.0f} s", flush=True)
    if took:
        took.sort()
        print(f"{what}, {count} comparisons: {told}; seconds: median {took[len(took) // 2]:.0f}, most {took[-1]:.0f}", flush=True)
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--trace", type=pathlib.Path, default=ROOT / "traces/torch/torch_gpt2_train_varlen.jsonl.gz")
    parser.add_argument("--slower", type=float, default=5)
    parser.add_argument("--null", type=int, default=20)
    parser.add_argument("--planted", type=int, default=10)
    parser.add_argument("--time", default="30s")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        comparer = Comparer(given.build.resolve(), given.trace, pathlib.Path(folder))
        if given.quick:
            few = ["--rounds", "9", "--passes", "3"]
            worse = series(comparer, 300, 1, few, "several times slower")  # however quick the machine is
            same = series(comparer, 0, 1, ["--rounds", "9", "--passes", "3", "--threshold", "20%"], "the same, within 20 %")
            # On a machine that is very busy nine rounds may tell nothing. What they tell is right.
            wrong = [each for each in worse if each not in ("worse", "inconclusive")] + \
                    [each for each in same if each not in ("same", "inconclusive")]
            sys.exit(f"wrong: {wrong}" if wrong else 0)
        spin, more = comparer.spin_for(given.slower)
        print(f"counting to {spin} makes an event {more:.1f} % slower", flush=True)
        series(comparer, spin, given.planted, ["--time", given.time], f"slower by {given.slower:g} %")
        series(comparer, 0, given.null, ["--time", given.time], "the same")


if __name__ == "__main__":
    main()
