#!/usr/bin/env python3
"""How much each bundled manager can be made to waste: the table in managers/README.md.

    tools/worst.py [--emmctl PROGRAM]            writes it
    tools/worst.py --check [--emmctl PROGRAM]    fails where the committed one is not what is true
    tools/worst.py --managers pool               only these, printed and not written

Each cell is what is reserved over what is live, both at their peaks, on the simulated device: for the patterns of
`emmctl generate`, and for the worst trace that `emmctl adversary` finds.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "managers/README.md"
BEGIN, END = "<!-- worst: made by tools/worst.py -->\n", "<!-- end of worst -->\n"
PATTERNS = ("ramps", "comb", "sawtooth", "generational", "log-uniform")
EVENTS = "20000"
SEEDS = ("1", "2", "3")


def answer(emmctl, *arguments):
    done = subprocess.run([emmctl, *arguments, "--json", "-"], capture_output=True, text=True, cwd=ROOT)
    if done.returncode not in (0, 1):
        sys.exit(f"worst: {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def pattern(emmctl, trace, manager):
    run = answer(emmctl, "replay", trace, "--manager", manager, "--device", "sim:capacity=4TiB")
    return "fails" if run["failures"] else f"{run['peak_reserved_bytes'] / run['peak_live_bytes']:.2f}"


def split(emmctl, trace, manager):
    run = answer(emmctl, "replay", trace, "--manager", manager, "--device", "sim")
    if not run["failures"]:
        return "served"
    state = run["first_failure"]
    free = state["reserved_bytes"] - state["live_bytes"] + state["free_bytes"]
    return f"fails, {free / 2**30:g} GiB free"


def worst(emmctl, manager, trials):
    found = max((answer(emmctl, "adversary", "--manager", manager, "--trials", str(trials), "--seed", seed) for seed in SEEDS),
                key=lambda each: (each["failed"], each["reserved_over_live"]))
    if found["failed"]:
        return f"**fails** (seed {found['seed']})"
    return f"{found['reserved_over_live']:.2f} (seed {found['seed']}, from {found['begun_from']})"


def table(emmctl, managers, trials):
    with tempfile.TemporaryDirectory() as folder:
        traces = {kind: f"{folder}/{kind}.jsonl" for kind in (*PATTERNS, "split")}
        for kind, path in traces.items():
            subprocess.run([emmctl, "generate", kind, path, "--events", "6" if kind == "split" else EVENTS], check=True)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            cells = {(manager, kind): pool.submit(split if kind == "split" else pattern, emmctl, path, manager)
                     for manager in managers for kind, path in traces.items()}
            found = {manager: pool.submit(worst, emmctl, manager, trials) for manager in managers}
        rows = [["manager", *PATTERNS, "4 GiB + 1 GiB", "the worst found"]]
        for manager in managers:
            rows.append([f"`{manager}`", *(cells[manager, kind].result() for kind in traces), found[manager].result()])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "| " + " | ".join("---" for _ in rows[0]) + " |", *lines[1:]]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--emmctl", default=str(ROOT / "tools/emmctl"))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--managers", help="with commas between; options as --manager takes them, with ; for a comma")
    parser.add_argument("--trials", type=int, default=2000, help="of each of three seeds [2000]")
    arguments = parser.parse_args()
    if arguments.managers:
        print(table(arguments.emmctl, [name.replace(";", ",") for name in arguments.managers.split(",")], arguments.trials), end="")
        return 0
    listed = json.loads(subprocess.run([arguments.emmctl, "list", "managers", "--json", "-"], capture_output=True, text=True,
                                       check=True).stdout)
    managers = [row["manager"] for row in listed if row["manager"] != "host-only"]
    page = PAGE.read_text()
    head, rest = page.split(BEGIN)
    text = head + BEGIN + table(arguments.emmctl, managers, arguments.trials) + END + rest.split(END)[1]
    if arguments.check:
        if text != page:
            print(f"{PAGE.relative_to(ROOT)} is not what is true; run tools/worst.py", file=sys.stderr)
        return 0 if text == page else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
