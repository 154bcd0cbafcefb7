#!/usr/bin/env python3
"""What `emmctl record` costs: tools/record_cost.py EMMCTL [--client PROGRAM] [--driver FOLDER] [--rounds N] [--stacks] [--torch [NAME...]]

--client names record_client, a test program. Its threads allocate and free in turns, with a pause between two calls; rounds through
the recorder and rounds that ask the driver itself take turns in one process. --driver names a folder with another libcuda.so.1, as
the tests' that does nothing. --stacks adds what call stacks cost.

--torch runs PyTorch programs bare, recorded and under torch.profiler by turns. A program runs twice, and the second time counts:
the first loads libraries. What a process takes before and after is left out of the ratios.

The ratio is that of medians; 95 % of the ratios that are drawn anew from the same rounds lie in the interval.
"""
import argparse
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
THREADS = ((1, 16000), (16, 4000))
PAUSES_NS = (0, 1000)
PROGRAMS = ("gpt", "perceptron", "generate", "churn")
TIMED = """
import random, sys, time
sys.path.insert(0, sys.argv[2])
import programs, torch
def run():
    random.seed(1), torch.manual_seed(1)
    programs.PROGRAMS[sys.argv[1]](random.Random(1))
    torch.cuda.synchronize()
run()
if sys.argv[3] == "profiler":
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):  # warms it up, too
        torch.zeros(1, device="cuda")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as kept:
        begun = time.perf_counter_ns()
        run()
        took = time.perf_counter_ns() - begun
    seen = sum(event.device_type == torch.profiler.DeviceType.CUDA for event in kept.events())
else:
    begun = time.perf_counter_ns()
    run()
    took = time.perf_counter_ns() - begun
    seen = 0
print(took, seen)
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


def programs(options, environment, record, folder):
    script = folder / "timed.py"
    script.write_text(TIMED)
    print("program      bare, s  recorded             torch.profiler       both: kernels that the profiler saw")
    for name in options.torch or PROGRAMS:
        ways = {"bare": [], "recorded": [], "profiler": []}
        run = lambda way, *before: [int(word) for word in output_of(
            [*before, *(["--"] if before else []), sys.executable, script, name, ROOT / "tools/torch_check", way], environment, folder)]
        for turn in range(options.rounds):
            for way in ways if turn % 2 == 0 else reversed(ways):
                ways[way].append(run(way, *(record if way == "recorded" else ()))[0])
        alone, together = run("profiler")[1], run("profiler", *record)[1]
        print("%-10s  %8.3f  %.3f (%.3f to %.3f)  %.3f (%.3f to %.3f)  %d, %d without emmctl" %
              (name, statistics.median(ways["bare"]) / 1e9, *ratio(ways["recorded"], ways["bare"]),
               *ratio(ways["profiler"], ways["bare"]), together, alone), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("emmctl", type=pathlib.Path)
    parser.add_argument("--client", type=pathlib.Path)
    parser.add_argument("--driver", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--stacks", action="store_true")
    parser.add_argument("--torch", nargs="*", metavar="NAME", help="of tools/torch_check/programs.py; four where none is named")
    options = parser.parse_args()
    environment = dict(os.environ)
    if options.driver:
        environment["LD_LIBRARY_PATH"] = str(options.driver.resolve())
    if options.client:
        options.client = options.client.resolve()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        record = [options.emmctl.resolve(), "record", "-o", folder / "cost.emmb"]
        if options.client:
            calls(options, environment, record, folder)
        if options.torch is not None:
            programs(options, environment, record, folder)


if __name__ == "__main__":
    main()
