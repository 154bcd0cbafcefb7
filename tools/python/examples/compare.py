"""Runs a script of this folder on its own allocator and on a manager, in pairs, one after the other, and says whether they
compute the same, how the times compare and what each reserved.

    compare.py gpt2.py [--manager pool] [--pairs 10] [further arguments of the script]

Exit 0: the same bits, and the upper 95 % bound of the paired ratio of times is at most --slower (1.02); 1: not; 3: two runs on
the script's own allocator differ, so nothing can be said.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
NOT_COMPARED = {"manager", "seconds", "held_bytes", "reserved_bytes"}
# Student's t, one side, 95 %, for 1 to 20 degrees of freedom.
T95 = [6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746,
       1.740, 1.734, 1.729, 1.725]


def run(script, manager, arguments):
    paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run([sys.executable, str(HERE / script), "--manager", manager, *arguments],
                          env=dict(os.environ, PYTHONPATH=os.pathsep.join(paths)), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True)
    if done.returncode != 0:
        sys.exit("%s --manager %s ended with %d:\n%s" % (script, manager, done.returncode, done.stderr[-4000:]))
    return json.loads(done.stdout.splitlines()[-1])


def computed(row):
    return {key: value for key, value in row.items() if key not in NOT_COMPARED}


def upper_bound(ratios):
    """Of the mean of their logarithms."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = sum(logs) / len(logs)
    if len(logs) < 2:
        return math.exp(mean), math.inf
    deviation = math.sqrt(sum((each - mean) ** 2 for each in logs) / (len(logs) - 1))
    t = T95[len(logs) - 2] if len(logs) - 2 < len(T95) else 1.645
    return math.exp(mean), math.exp(mean + t * deviation / math.sqrt(len(logs)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("script")
    parser.add_argument("--manager", default="pool")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--slower", type=float, default=1.02)
    options, options.arguments = parser.parse_known_args()
    native, ours = [], []
    for pair in range(options.pairs):
        order = [("native", native), (options.manager, ours)]
        for manager, rows in order if pair % 2 == 0 else reversed(order):
            rows.append(run(options.script, manager, options.arguments))
    if any(computed(row) != computed(native[0]) for row in native):
        print("runs on the script's own allocator differ: nothing can be said")
        return 3
    same = all(computed(row) == computed(native[0]) for row in ours)
    ratio, bound = upper_bound([mine["seconds"] / theirs["seconds"] for mine, theirs in zip(ours, native)])

    def reserved(rows):
        return max(row["reserved_bytes"] for row in rows) / (1 << 20)

    print("%s on %s: %s; time %.4f of its own allocator's, at most %.4f (95 %%, %d pairs); reserved %.0f MiB, its own %.0f MiB"
          % (options.script, options.manager, "the same bits" if same else "OTHER BITS", ratio, bound, options.pairs,
             reserved(ours), reserved(native)))
    return 0 if same and (bound <= options.slower or options.pairs < 2) else 1


if __name__ == "__main__":
    sys.exit(main())
