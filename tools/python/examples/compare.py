"""Runs a script of this folder on its own allocator and on a manager, in pairs, one after the other, and says whether
they compute the same, how the times compare and what each reserved.

    compare.py gpt2.py [--manager pool] [--pairs 10] [--json FILE] [[--] further arguments of the script]

A line for each pair on standard error as it is done; FILE has every row of every pair, also of pairs before a failure.
Exit 0: the same bits, and the upper 95 % bound of the paired ratio of times is at most --slower (1.02); 1: not; 3: two
runs on the script's own allocator differ, so nothing can be said.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
NOT_COMPARED = {"manager", "seconds", "first_quarter_seconds", "held_bytes", "reserved_bytes"}
# Student's t, one side, 95 %, for 1 to 20 degrees of freedom.
T95 = [6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746,
       1.740, 1.734, 1.729, 1.725]


def run(script, manager, arguments):
    """The row that the script prints; the exit of this program where it fails."""
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


def arguments_of(command):
    """Of this program, and of the script: what is not known here, and all behind `--`."""
    parser = argparse.ArgumentParser(usage="%(prog)s SCRIPT [options] [[--] arguments of the script]",
                                     allow_abbrev=False)  # it may be one of the script's
    parser.add_argument("script", help="a file of this folder, or a path")
    parser.add_argument("--manager", default="pool")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--slower", type=float, default=1.02, help="what the upper bound of the ratio may be")
    parser.add_argument("--json", metavar="FILE", help="every row of every pair")
    cut = command.index("--") if "--" in command else len(command)
    options, of_the_script = parser.parse_known_args(command[:cut])
    if options.pairs < 1:
        parser.error("--pairs is %d: expected 1 or more" % options.pairs)
    return options, of_the_script + command[cut + 1:]


def reserved_mib(rows):
    return max(row["reserved_bytes"] for row in rows) / (1 << 20)


def main():
    options, of_the_script = arguments_of(sys.argv[1:])
    native, ours, pairs = [], [], []
    for pair in range(options.pairs):
        order = [("native", native), (options.manager, ours)]
        for manager, rows in order if pair % 2 == 0 else reversed(order):
            rows.append(run(options.script, manager, of_the_script))
        ratio = ours[-1]["seconds"] / native[-1]["seconds"]
        pairs.append({"first": "native" if pair % 2 == 0 else "manager", "native": native[-1], "manager": ours[-1],
                      "ratio": ratio})
        print("pair %d of %d: its own allocator %.3f s, %s %.3f s, %.4f" %
              (pair + 1, options.pairs, native[-1]["seconds"], options.manager, ours[-1]["seconds"], ratio),
              file=sys.stderr, flush=True)
        _, bound = upper_bound([each["ratio"] for each in pairs])
        if options.json:
            content = {"script": options.script, "manager": options.manager, "arguments": of_the_script,
                       "same": all(computed(row) == computed(native[0]) for row in native + ours),
                       "ratio": upper_bound([each["ratio"] for each in pairs])[0],
                       "upper_bound": None if math.isinf(bound) else bound, "pairs": pairs}
            pathlib.Path(options.json).write_text(json.dumps(content, indent=1) + "\n")
    if any(computed(row) != computed(native[0]) for row in native):
        print("runs on the script's own allocator differ: nothing can be said")
        return 3
    same = all(computed(row) == computed(native[0]) for row in ours)
    ratio, bound = upper_bound([each["ratio"] for each in pairs])
    print("%s on %s: %s; time %.4f of its own allocator's, at most %s (95 %%, %d pairs); reserved %.0f MiB, its own "
          "%.0f MiB" % (options.script, options.manager, "the same bits" if same else "OTHER BITS", ratio,
                        "unknown" if math.isinf(bound) else "%.4f" % bound, options.pairs, reserved_mib(ours),
                        reserved_mib(native)))
    return 0 if same and (bound <= options.slower or options.pairs < 2) else 1


if __name__ == "__main__":
    sys.exit(main())
