"""Runs a script of this folder on its own allocator and on a manager, in pairs, one after the other, and says whether
they compute the same, how the times compare and what each reserved.

    compare.py gpt2.py [--manager pool] [--pairs 10] [--by-turns] [--json FILE] [[--] further arguments of the script]

A line for each pair on standard error as it is done; FILE has every row of every pair, also of pairs before a failure.
Exit 0: the same bits, and the upper 95 % bound of the paired ratio of times is at most --slower (1.02); 1: not; 3: two
runs on the script's own allocator differ, so nothing can be said.

With --by-turns what else the machine does meanwhile falls on both runs of a pair: gpt2.py and cupy_streams.py pause
every few steps (stopwatch.py), and the time of a run is that of its own turns. Both have the same two processors, other
ones in each pair, and the same seed for Python's hashes.
"""
import argparse
import contextlib
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
NOT_COMPARED = {"manager", "seconds", "first_quarter_seconds", "held_bytes", "reserved_bytes"}
# Student's t, one side, 95 %, for 1 to 20 degrees of freedom.
T95 = [6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746,
       1.740, 1.734, 1.729, 1.725]


def processors_of(pair):
    """What puts a process on two of the processors that this one may use: one for the script, one for its threads."""
    allowed = sorted(os.sched_getaffinity(0))
    chosen = {allowed[(2 * pair + each) % len(allowed)] for each in range(2)}
    return lambda: os.sched_setaffinity(0, chosen)


class Run:
    """A script on a manager; its words go to files, so that it never waits for who reads them. `pair` is the number of
    the pair of which two run by turns."""

    def __init__(self, script, manager, arguments, pair=None):
        paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(paths))
        theirs = ()
        prepare = None
        if pair is not None:
            prepare = processors_of(pair)
            environment["PYTHONHASHSEED"] = str(pair)
            (go, self.go), (self.done, done) = os.pipe(), os.pipe()
            theirs = (go, done)
            environment["EMM_TURNS"] = "%d,%d" % theirs
        self.script, self.manager = script, manager
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.process = subprocess.Popen([sys.executable, str(HERE / script), "--manager", manager, *arguments],
                                        env=environment, stdout=self.out, stderr=self.err, pass_fds=theirs,
                                        preexec_fn=prepare)
        for each in theirs:
            os.close(each)

    def turn(self):
        """Its next, to its end. False where that was the last."""
        with contextlib.suppress(BrokenPipeError):  # it has ended
            os.write(self.go, b".")
        return self.pause()

    def pause(self):
        return os.read(self.done, 1) != b""

    def row(self):
        """What it prints; the exit of this program where it fails."""
        if self.process.wait() != 0:
            self.err.seek(0)
            sys.exit("%s --manager %s ended with %d:\n%s" % (self.script, self.manager, self.process.returncode,
                                                             self.err.read().decode(errors="replace")[-4000:]))
        self.out.seek(0)
        return json.loads(self.out.read().decode().splitlines()[-1])


def rows_of(script, managers, arguments, pair):
    """One after the other; or both at a time, of which one runs and one waits, from pause to pause of theirs."""
    if pair is None:
        return [Run(script, manager, arguments).row() for manager in managers]
    runs = [Run(script, manager, arguments, pair) for manager in managers]
    running = [each for each in runs if each.pause()]
    while running:
        running = [each for each in running if each.turn()]
    return [each.row() for each in runs]


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
    parser.add_argument("--by-turns", action="store_true",
                        help="both runs of a pair at a time, a few steps of the one and of the other by turns")
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
        if pair % 2 == 1:
            order.reverse()
        managers = [manager for manager, _ in order]
        made = rows_of(options.script, managers, of_the_script, pair if options.by_turns else None)
        for (_, rows), row in zip(order, made):
            rows.append(row)
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
