#!/usr/bin/env python3
"""A replay of a snapshot by --manager pytorch counts what PyTorch counted: private pools and empty_cache() are followed.

    model_replays.py EMMCTL [FOLDER]     FOLDER is $EMM_EXTRA_TRACES where that is set

Exits 77, saying so, where there is no folder of recordings.
"""
import json
import os
import pathlib
import subprocess
import sys

WORKS = ("graphs", "pools")
SETTINGS = ("default", "split64", "split21round", "round8", "roundlist", "gc", "expgc")


def main():
    emmctl = sys.argv[1]
    folder = pathlib.Path(os.environ.get("EMM_EXTRA_TRACES") or (sys.argv[2] if len(sys.argv) > 2 else "")) / "torch-settings"
    paths = [folder / f"torch_{work}_{conf}_s1.pickle.gz" for work in WORKS for conf in SETTINGS]
    if not all(path.is_file() for path in paths):
        print("skipped: EMM_EXTRA_TRACES does not name the folder of the collected recordings")
        return 77
    wrong = 0
    for path in paths:
        done = subprocess.run([emmctl, "replay", str(path), "--manager", "pytorch", "--device", "sim", "--json", "-"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
        if done.returncode != 0:
            print(f"{path.name}: exits {done.returncode}: {done.stdout[:600]}{done.stderr[:600]}")
            wrong += 1
            continue
        replay = json.loads(done.stdout)
        truth = json.loads(path.with_suffix("").with_suffix(".json").read_text())["stats"]
        found = {"reserved_bytes.all.peak": replay["peak_reserved_bytes"]}
        for each in replay["statistics"]:
            found.update({name: value for name, value in each.get("torch", each).items() if name.startswith("num_")})
        for name, value in found.items():
            if value != truth[name]:
                print(f"{path.name}: {name} is {value}, and was {truth[name]}")
                wrong += 1
    print(f"{len(paths)} recordings, {wrong} mistakes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
