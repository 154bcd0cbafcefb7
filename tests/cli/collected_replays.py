#!/usr/bin/env python3
"""Every collected recording is imported, with every row accounted for, and replayed on the simulated device.

    collected_replays.py EMMCTL [FOLDER]     FOLDER is $EMM_EXTRA_TRACES where that is set

Exits 77, saying so, where there is no folder of recordings.
"""
import json
import os
import pathlib
import subprocess
import sys


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=300)


def main():
    emmctl = sys.argv[1]
    folder = os.environ.get("EMM_EXTRA_TRACES") or (sys.argv[2] if len(sys.argv) > 2 else "")
    if not folder or not pathlib.Path(folder).is_dir():
        print("skipped: EMM_EXTRA_TRACES does not name the folder of the collected recordings")
        return 77
    wrong = 0
    paths = sorted(p for p in pathlib.Path(folder).rglob("*") if p.is_file() and p.suffix != ".md"
                   and not (p.suffix == ".json" and p.with_suffix(".pickle.gz").exists())  # a snapshot's statistics
                   # of the snapshots under nine settings those under two; snapshots.* read them all
                   and not (p.parent.name == "torch-settings" and not {"default", "expgc"} & set(p.name.split("_"))))
    for path in paths:
        converted = run(emmctl, "convert", str(path), "/dev/null", "--json", "-")
        if converted.returncode != 0:
            print(f"{path}: convert exits {converted.returncode}: {converted.stderr}")
            wrong += 1
            continue
        counts = json.loads(converted.stdout)
        if counts["rows"] != sum(counts[k] for k in ("used", "unmatched", "duplicate", "other", "truncated")):
            print(f"{path}: rows do not add up: {converted.stdout}")
            wrong += 1
        for manager in ("default", "pool"):
            replayed = run(emmctl, "replay", str(path), "--device", "sim", "--manager", manager)
            if replayed.returncode != 0:
                print(f"{path}: replay on {manager} exits {replayed.returncode}: {replayed.stdout[:600]}")
                wrong += 1
    print(f"{len(paths)} recordings, {wrong} mistakes")
    return 1 if wrong or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
