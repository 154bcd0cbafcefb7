#!/usr/bin/env python3
"""A replay of a snapshot by --manager pytorch counts what PyTorch counted: private pools, empty_cache() and frees that completed
later are followed. Of the snapshot as PyTorch writes it, without the memory fraction, each step is as recorded, and the ranges of the
free run hold what PyTorch counted. fit tries any capacity in place of a limit that is inferred.

    model_replays.py EMMCTL [FOLDER]     FOLDER is $EMM_EXTRA_TRACES where that is set

Exits 77, saying so, where there is no folder of recordings.
"""
import json
import os
import pathlib
import subprocess
import sys

# Where two segments have free blocks of one size, the simulated device's addresses choose another one than the H200's.
TIES = ("streams_round8", "streams_split21round", "streams_split64", "tight_round8", "tight_split64")


def replay_of(emmctl, path, manager):
    """The replay's JSON; nothing, saying why, where it fails."""
    done = subprocess.run([emmctl, "replay", str(path), "--manager", manager, "--device", "sim", "--json", "-"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    if done.returncode == 0:
        return json.loads(done.stdout)
    print(f"{path.name}, {manager}: exits {done.returncode}: {done.stdout[:600]}{done.stderr[:600]}")
    return None


def mistakes_within(path, replay, truth):
    """What of a replay without the memory fraction is not as recorded."""
    for what in ("segments", "placements", "releases", "refusals"):
        if replay[what]["recorded"] != replay[what]["as_recorded"]:
            yield f"{path.name}: {what} {replay[what]}"
    for name, of in replay["free_run"].items():
        value = truth["reserved_bytes.all.peak" if name == "peak_reserved_bytes" else name]
        if not of["low"] <= value <= of["high"]:
            yield f"{path.name}: free run, {name} is {of}, and was {value}"


def fit_by_inferred_limit(emmctl, path):
    """What is wrong with the fit of a snapshot whose limit is inferred: any capacity may be tried in its place."""
    done = subprocess.run([emmctl, "fit", str(path), "--manager", "pytorch", "--json", "-"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    if done.returncode != 0 or "tells a limit of about" not in done.stderr:
        yield f"{path.name}: fit exits {done.returncode}: {done.stdout[:600]}{done.stderr[:600]}"


def main():
    emmctl = sys.argv[1]
    folder = pathlib.Path(os.environ.get("EMM_EXTRA_TRACES") or (sys.argv[2] if len(sys.argv) > 2 else "")) / "torch-settings"
    paths = sorted(folder.glob("torch_*_s1.pickle.gz"))
    if len(paths) < 45:
        print("skipped: EMM_EXTRA_TRACES does not name the folder of the collected recordings")
        return 77
    wrong = 0
    for path in paths:
        recorded = json.loads(path.with_suffix("").with_suffix(".json").read_text())
        truth = recorded["stats"]
        free = replay_of(emmctl, path, "pytorch")
        for mistake in ["no replay"] if free is None else mistakes_within(path, free, truth):
            print(mistake)
            wrong += 1
        if "tight_gc_" in path.name:
            for mistake in fit_by_inferred_limit(emmctl, path):
                print(mistake)
                wrong += 1
        if "tight_gc" in path.name:
            # A limit that is asked about tells nothing of what was recorded under another.
            asked = replay_of(emmctl, path, f"pytorch:limit={int(1.2 * recorded['fraction'] * recorded['total_bytes'])}")
            if asked is None or asked["refusals"]["recorded"] != asked["refusals"]["as_recorded"] or not asked["refusals"]["recorded"]:
                print(f"{path.name}: refusals {asked and asked['refusals']} with a limit that is asked about")
                wrong += 1
        if any(tie in path.name for tie in TIES):
            continue
        replay = replay_of(emmctl, path, f"pytorch:fraction={recorded['fraction']},total={recorded['total_bytes']}")
        if replay is None:
            wrong += 1
            continue
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
