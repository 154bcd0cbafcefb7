#!/usr/bin/env python3
"""docs/served.md: every trace of traces/ by every bundled manager, on the simulated device.

    tools/served.py [--emmctl PROGRAM]            writes it
    tools/served.py --check [--emmctl PROGRAM]    fails where the committed one is not what is true
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs/served.md"
SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz", ".json.zst", ".jsonl.zst")
HEAD = """# Which manager serves which trace

`tools/served.py` wrote this page, and the test `served.table` compares it with what the managers do. Every trace in `traces/` is
replayed with `--verify` on every bundled manager, on the simulated device with the trace's own capacity. *served* means that every
operation ended as the trace says. *declines* names the operations that the manager answered with not_supported, and how often; it
served the others. A failure would be in bold; there is none. `rmm-pool`, `rmm-binning`, `rmm-arena` and `bfc` are left out: they refuse
while the device has memory, as the libraries do.

"""


def cell(emmctl, trace, manager):
    done = subprocess.run([emmctl, "replay", trace, "--manager", manager, "--device", "sim", "--verify", "--json", "-"],
                          capture_output=True, text=True, cwd=ROOT)
    if done.returncode not in (0, 3):  # 3: it declined every allocation, and nothing was judged
        words = (done.stderr.strip().splitlines() or ["no words"])[-1]
        return False, f"**fails ({done.returncode})**: {words}"
    declined = json.loads(done.stdout).get("declined", [])
    if not declined:
        return True, "served"
    return True, "declines " + ", ".join(f"{d['op']} ({d['count']})" for d in declined)


def reasons(emmctl, manager, traces):
    """Each operation that the manager declines, with its words."""
    found = {}
    for trace in traces:
        done = subprocess.run([emmctl, "replay", trace, "--manager", manager, "--device", "sim", "--json", "-"],
                              capture_output=True, text=True, cwd=ROOT)
        if done.stdout:
            for declined in json.loads(done.stdout).get("declined", []):
                found.setdefault(declined["op"], declined["why"])
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--emmctl", default=str(ROOT / "tools/emmctl"))
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    traces = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "traces").rglob("*")
                    if p.name.endswith(SUFFIXES) and "schema" not in p.name)
    listed = subprocess.run([arguments.emmctl, "list", "managers", "--json", "-"], capture_output=True, text=True, check=True)
    # Some traces are of small devices, of which a pool that takes its part at once leaves too little.
    managers = [row["manager"] for row in json.loads(listed.stdout)["rows"] if row["device_memory"] != "a part"]

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {(t, m): pool.submit(cell, arguments.emmctl, t, m) for t in traces for m in managers}
        cells = {key: job.result() for key, job in jobs.items()}
        why = {m: pool.submit(reasons, arguments.emmctl, m, [t for t in traces if cells[t, m][1].startswith("declines")])
               for m in managers}
    text = HEAD + "| trace | " + " | ".join(managers) + " |\n| --- |" + " --- |" * len(managers) + "\n"
    for trace in traces:
        text += f"| {trace.removeprefix('traces/')} | " + " | ".join(cells[trace, m][1] for m in managers) + " |\n"
    text += "\n## Why they decline\n\n| manager | operation | reason |\n| --- | --- | --- |\n"
    for manager in managers:
        for op, words in sorted(why[manager].result().items()):
            text += f"| {manager} | {op} | {words} |\n"

    failed = [key for key, (served, _) in cells.items() if not served]
    for trace, manager in failed:
        print(f"{trace} on {manager}: {cells[trace, manager][1]}", file=sys.stderr)
    if arguments.check:
        if not TABLE.exists() or TABLE.read_text() != text:
            print(f"{TABLE.relative_to(ROOT)} is out of date; run tools/served.py", file=sys.stderr)
            return 1
    else:
        TABLE.write_text(text)
    print(f"{len(traces)} traces, {len(managers)} managers, {len(failed)} failures")
    return 1 if failed or not traces else 0


if __name__ == "__main__":
    sys.exit(main())
