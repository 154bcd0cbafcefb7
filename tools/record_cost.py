#!/usr/bin/env python3
"""What `emmctl record` costs: tools/record_cost.py EMMCTL [--client PROGRAM] [--driver FOLDER] [--rounds N] [--stacks]
    [--programs [NAME...]] [--repeats N] [--command NAME=COMMAND]

--client names record_client, a test program. Its threads allocate and free in turns, with a pause between two calls; rounds through
the recorder and rounds that ask the driver itself take turns in one process. --driver names a folder with another libcuda.so.1, as
the tests' that does nothing. --stacks adds what call stacks cost.

--programs runs programs of tools/torch_check/programs.py and tools/record_programs.py bare and recorded by turns, those of PyTorch
under torch.profiler too. A program runs once to load libraries, and then --repeats times in the same process, whose median counts. What
a process takes before and after is left out of the ratios. --command times any command from its start to its end, without what
`emmctl record` does before and after. Each last recording is judged by `emmctl check`, and replayed by --manager recorded on the
simulated device and on the GPU.

The ratio is that of medians; 95 % of the ratios that are drawn anew from the same rounds lie in the interval.
"""
import argparse
import os
import pathlib
import random
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
THREADS = ((1, 16000), (16, 4000))
PAUSES_NS = (0, 1000)
OF_TORCH = ("gpt", "perceptron", "generate", "churn", "graphs")
TIMED = """
import importlib, os, random, sys, time
sys.path[:0] = sys.argv[1:3]
name, way, repeats = sys.argv[3], sys.argv[4], int(sys.argv[5])
of = {}
for module in ("record_programs", "programs"):
    if name not in of:
        of = importlib.import_module(module).PROGRAMS
def run():
    random.seed(1)
    of[name](random.Random(1))
    if "torch" in sys.modules:
        sys.modules["torch"].cuda.synchronize()
def timed():
    begun = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - begun
if __name__ == "__main__":
    run()
    seen = 0
    if way == "profiler":
        import torch
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):  # warms it up, too
            torch.zeros(1, device="cuda")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as kept:
            took = [timed()]
        seen = sum(event.device_type == torch.profiler.DeviceType.CUDA for event in kept.events())
        for _ in range(repeats - 1):  # a profile of its own for each: a long one would be written in the middle
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
                took.append(timed())
    else:
        took = [timed() for _ in range(repeats)]
    print("took", sorted(took)[repeats // 2], seen)
"""


def ratio(after, before, draws=2000):
    """Ratio of medians, and the interval of 95 %. Rounds that took turns are drawn together."""
    chance = random.Random(1)
    pairs = list(zip(after, before))
    of = lambda these: statistics.median(p[0] for p in these) / statistics.median(p[1] for p in these)
    drawn = sorted(of(chance.choices(pairs, k=len(pairs))) for _ in range(draws))
    return of(pairs), drawn[draws // 40], drawn[-draws // 40]


def output_of(command, environment, folder):
    done = subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit("%s: exit code %d\n%s" % (" ".join(map(str, command)), done.returncode, done.stderr[-2000:]))
    return done.stdout.split()


def calls(options, environment, record, folder):
    print("ns a call     pause  bare: median, least   recorded: median, least  ratio")
    for count, each in THREADS:
        for pause in PAUSES_NS:
            recorded, bare = [], []
            for _ in range(options.rounds):
                words = output_of([*record, "--", options.client, "cost", str(count), str(each), str(pause)], environment, folder)
                if len(words) % 2 != 0 or not words:
                    raise SystemExit("the client found no driver behind the recorder")
                recorded += map(float, words[::2])
                bare += map(float, words[1::2])
            print("%2d threads  %4d ns  %11.1f %8.1f  %15.1f %8.1f  %.3f (%.3f to %.3f)" %
                  (count, pause, statistics.median(bare), min(bare), statistics.median(recorded), min(recorded),
                   *ratio(recorded, bare)), flush=True)
    for depth in (1, 8, 16) if options.stacks else ():
        words = output_of([*record, "--stacks", "native", "--stack-depth", str(depth), "--", options.client, "cost", "1", "4000", "0"],
                          environment, folder)
        print("--stacks native --stack-depth %d: %.0f ns a call" % (depth, min(map(float, words[::2]))), flush=True)


def judge(options, environment, folder):
    """What the recordings of one run are worth: calls, and how many files fail each judgement."""
    files = sorted(folder.glob("*.emmb"))
    def failed(verb, *rest):
        return sum(subprocess.run([options.emmctl, verb, file, *rest], env=environment, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL).returncode != 0 for file in files)
    size = sum(file.stat().st_size for file in files)
    return "%d files of %.1f MiB; fail check %d, replay on sim %d, on cuda %d" % (
        len(files), size / 2**20, failed("check"), failed("replay", "--manager", "recorded", "--device", "sim"),
        failed("replay", "--manager", "recorded", "--device", "cuda"))


def by_turns(options, environment, name, ways, run, folder):
    """Prints the ratios of a program's ways to run; `run(way)` answers nanoseconds."""
    times = {way: [] for way in ways}
    for turn in range(options.rounds):
        for way in ways if turn % 2 == 0 else reversed(ways):
            for file in folder.glob("*.emmb"):
                file.unlink()
            times[way].append(run(way))
            if way == "recorded":
                judged = folder / "last"
                judged.mkdir(exist_ok=True)
                for file in [*judged.glob("*.emmb")]:
                    file.unlink()
                for file in folder.glob("*.emmb"):
                    file.rename(judged / file.name)
    ratios = ["%.3f (%.3f to %.3f)" % ratio(times[way], times["bare"]) for way in ways[1:]]
    print("%-18s %8.3f s  %s  %s" % (name, statistics.median(times["bare"]) / 1e9, "  ".join(ratios), judge(options, environment, judged)),
          flush=True)


def programs(options, environment, record, folder):
    script = folder / "timed.py"
    script.write_text(TIMED)
    print("program             bare       recorded              torch.profiler        the last recording")
    for name in options.programs or OF_TORCH:
        def run(way, only_time=True):
            before = [*record, "--"] if way.startswith("recorded") else []
            repeats = options.repeats if only_time else 1
            words = output_of([*before, sys.executable, script, ROOT / "tools", ROOT / "tools/torch_check", name, way.split()[-1],
                               str(repeats)],
                              environment, folder)
            at = len(words) - 1 - words[::-1].index("took")
            return int(words[at + 1 if only_time else at + 2])
        by_turns(options, environment, name, ["bare", "recorded"] + (["profiler"] if name in OF_TORCH else []), run, folder)
        if name in OF_TORCH:
            print("    kernels that torch.profiler sees: %d, under emmctl record %d" %
                  (run("profiler", False), run("recorded profiler", False)), flush=True)


def commands(options, environment, record, folder):
    for given in options.command:
        name, command = given.split("=", 1)
        timed = 'begun=$(date +%s%N); "$@" >&2 || exit; echo took $(($(date +%s%N) - begun))'
        def run(way):
            words = output_of([*([*record, "--"] if way == "recorded" else []), "sh", "-c", timed, "sh", *shlex.split(command)],
                              environment, ROOT)
            return int(words[words.index("took") + 1])
        by_turns(options, environment, name, ["bare", "recorded"], run, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("emmctl", type=pathlib.Path)
    parser.add_argument("--client", type=pathlib.Path)
    parser.add_argument("--driver", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--stacks", action="store_true")
    parser.add_argument("--programs", nargs="*", metavar="NAME", help="five of PyTorch where none is named")
    parser.add_argument("--repeats", type=int, default=5, help="how often a process runs its program [5]")
    parser.add_argument("--command", action="append", default=[], metavar="NAME=COMMAND")
    options = parser.parse_args()
    options.emmctl = options.emmctl.resolve()
    environment = dict(os.environ)
    if options.driver:
        environment["LD_LIBRARY_PATH"] = str(options.driver.resolve())
    if options.client:
        options.client = options.client.resolve()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        record = [options.emmctl, "record", "-o", folder / "%p.emmb"]
        if options.client:
            calls(options, environment, record, folder)
        if options.programs is not None:
            programs(options, environment, record, folder)
        commands(options, environment, record, folder)


if __name__ == "__main__":
    main()
