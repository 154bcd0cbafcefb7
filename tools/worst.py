#!/usr/bin/env python3
"""Writes the table of managers/README.md that says how much each bundled manager can be made to waste.

    tools/worst.py [--emmctl PROGRAM]            writes it from the worst traces that are known
    tools/worst.py --check [--emmctl PROGRAM]    fails where the committed table is out of date
    tools/worst.py --search                      looks for worse traces first, and keeps what it finds
    tools/worst.py --managers pool               searches for these managers only; prints and writes nothing

Each cell is the peak of reserved bytes over the peak of live bytes on the simulated device: for the patterns of
`emmctl generate`, and for the worst trace that `emmctl adversary` has found, which tests/trial/worst keeps.
"""
import argparse
import concurrent.futures
import gzip
import json
import os
import pathlib
import subprocess
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "managers/README.md"
KNOWN = ROOT / "tests/trial/worst"
BEGIN, END = "<!-- worst: made by tools/worst.py -->\n", "<!-- end of worst -->\n"
PATTERNS = ("ramps", "comb", "sawtooth", "generational", "log-uniform")
EVENTS = "20000"
SEEDS = ("1", "2", "3")
LIVE_LEAST = 1 << 30  # what `emmctl adversary` counts less as, and 1 GiB in words
CAPACITY = "128GiB"  # of its device
A_PART = 100  # so much is reserved only by a pool that takes its part of the device when it is made


def bundled(emmctl):
    """The managers that have device memory, and their variants; Numba's quirks change nothing here."""
    done = subprocess.run([emmctl, "list", "managers", "--json", "-"], capture_output=True, text=True, check=True)
    return [spec for row in json.loads(done.stdout)["rows"] if row["device_memory"] for spec in row["judged_as"].split()
            if "profile=" not in spec]


def answer(emmctl, *arguments):
    done = subprocess.run([emmctl, *arguments, "--json", "-"], capture_output=True, text=True, cwd=ROOT)
    if done.returncode not in (0, 1):
        sys.exit(f"worst: {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def pattern(emmctl, trace, manager):
    run = answer(emmctl, "replay", trace, "--manager", manager, "--device", "sim:capacity=4TiB")
    if run["failures"] or not run["peak_live_bytes"]:
        return "fails" if run["failures"] else "declines all"
    ratio = run["peak_reserved_bytes"] / run["peak_live_bytes"]
    if ratio >= A_PART:
        return "a part"
    return f"{ratio:.2f}" + ("" if ratio >= 1 else ", the rest is not the device's")


def split(emmctl, trace, manager):
    run = answer(emmctl, "replay", trace, "--manager", manager, "--device", "sim")
    if not run["failures"]:
        return "served"
    state = run["first_failure"]
    free = state["reserved_bytes"] - state["live_bytes"] + state["free_bytes"]
    return f"fails, {free / 2**30:g} GiB free"


def known(manager):
    return KNOWN / f"{manager.replace(':', '-').replace('=', '-')}.jsonl.gz"


def worst_known(emmctl, manager, trace):
    run = answer(emmctl, "replay", str(trace), "--manager", manager, "--device", f"sim:capacity={CAPACITY}")
    with gzip.open(trace, "rt") as lines:
        found = json.loads(next(lines))["name"].split(", ", 1)[1]
    if run["failures"]:
        return float("inf"), f"**fails** ({found})"
    ratio = run["peak_reserved_bytes"] / max(run["peak_live_bytes"], LIVE_LEAST)
    return ratio, f"{ratio:.2f}{'' if ratio >= 1 else ' of 1 GiB'} ({found})"


def search(emmctl, manager, trials, folder, seed):
    trace = pathlib.Path(folder) / f"{known(manager).stem}.{seed}.jsonl.gz"
    answer(emmctl, "adversary", str(trace), "--manager", manager, "--trials", str(trials), "--seed", seed)
    return trace


def patterns(emmctl, managers, pool, folder):
    traces = {kind: f"{folder}/{kind}.jsonl" for kind in (*PATTERNS, "split")}
    for kind, path in traces.items():
        subprocess.run([emmctl, "generate", kind, path, "--events", "6" if kind == "split" else EVENTS], check=True)
    cells = {(manager, kind): pool.submit(split if kind == "split" else pattern, emmctl, path, manager)
             for manager in managers for kind, path in traces.items()}
    return {manager: [cells[manager, kind].result() for kind in traces] for manager in managers}


def table(emmctl, managers, jobs, trials, keep):
    """Searches where `trials` are given; `keep` keeps a trace that is worse than the known one."""
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        runs = {manager: [pool.submit(search, emmctl, manager, trials, folder, seed) for seed in SEEDS if trials]
                for manager in managers}
        cells = patterns(emmctl, managers, pool, folder)
        rows = [["manager", *PATTERNS, "4 GiB + 1 GiB", "the worst found"]]
        for manager in managers:
            traces = [known(manager)] if known(manager).exists() and (keep or not trials) else []
            traces += [run.result() for run in runs[manager]]
            worst = max(((worst_known(emmctl, manager, trace), trace) for trace in traces), key=lambda each: each[0][0],
                        default=((0, "not searched"), None))
            if keep and worst[1] not in (None, known(manager)):
                shutil.copy(worst[1], known(manager))
            rows.append([f"`{manager}`", *cells[manager], worst[0][1]])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "| " + " | ".join("---" for _ in rows[0]) + " |", *lines[1:]]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--emmctl", default=str(ROOT / "tools/emmctl"))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--managers", help="managers with commas between; options as --manager takes them, with ; for a comma")
    parser.add_argument("--trials", type=int, default=20000, help="trials of a search, for each of three seeds [20000]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="programs at a time")
    arguments = parser.parse_args()
    if arguments.managers:
        managers = [name.replace(";", ",") for name in arguments.managers.split(",")]
        print(table(arguments.emmctl, managers, arguments.jobs, arguments.trials, False), end="")
        return 0
    made = table(arguments.emmctl, bundled(arguments.emmctl), arguments.jobs, arguments.trials if arguments.search else 0, arguments.search)
    page = PAGE.read_text()
    head, rest = page.split(BEGIN)
    text = head + BEGIN + made + END + rest.split(END)[1]
    if arguments.check:
        if text != page:
            print(f"{PAGE.relative_to(ROOT)} is not what is true; run tools/worst.py. True is\n{made}", file=sys.stderr)
        return 0 if text == page else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
