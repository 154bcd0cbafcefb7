#!/usr/bin/env python3
"""A snapshot that is converted and written as a snapshot again is the same recording.

    snapshot_round_trip.py EMMCTL [FOLDER]     FOLDER is $EMM_EXTRA_TRACES where that is set

Each goes straight to a pickle, and to a pickle by way of a trace: `inspect --json` says the same of both as of the
original, but for the file's name. Of a pickle, segments, blocks, rows, settings and annotations are also compared one
by one. Exits 77, saying so, where there is no folder of recordings.
"""
import gzip
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile


class PlainData(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")


def load(path):
    with (gzip.open(path) if path.name.endswith(".gz") else open(path, "rb")) as file:
        return PlainData(file).load()


def run(*command):
    ran = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} exits {ran.returncode}: {ran.stderr}")
    return ran.stdout


def inspected(emmctl, path, by_lines=False):
    said = json.loads(run(emmctl, "inspect", path, "--json", "-", *(["--map", "60"] if not by_lines else [])))
    del said["trace"]
    if by_lines:  # rows of text have numbers, those of a pickle none
        for at in [said["peak_live"], said["peak_active"], said["peak_host"], *said["peak_live_by_device"].values(),
                   *([said["backing"]["peak_reserved"]] if said["backing"] else [])]:
            del at["line"]
    return said


def state(snapshot):
    """Blocks without the sizes that free ones were once asked for, side by side ranges of one segment as one."""
    def frames(of):
        return [(frame["filename"], frame["line"], frame["name"]) for frame in of.get("frames", [])]
    return {(segment["device"], segment["address"]):
            ([segment[key] for key in ("total_size", "allocated_size", "active_size", "stream", "segment_type", "is_expandable")],
             tuple(segment["segment_pool_id"]),
             [(block["address"], block["size"], block["state"], block["requested_size"], frames(block))
              for block in segment["blocks"] if block["state"] != "inactive"],
             [(block["address"], block["size"]) for block in segment["blocks"] if block["state"] == "inactive"])
            for segment in snapshot["segments"]}


def rows(snapshot):
    """Rows but for the time of a completion at once, which the trace has as that of its free."""
    out = []
    for device, trace in enumerate(snapshot["device_traces"]):
        for at, row in enumerate(trace):
            at_once = row["action"] == "free_completed" and at > 0 and trace[at - 1]["action"] == "free_requested" \
                and trace[at - 1]["addr"] == row["addr"]
            out.append((device, row["action"], row.get("addr"), row.get("device_free"), row["size"], row["stream"],
                        0 if at_once else row.get("time_us"),
                        () if at_once else tuple((f["filename"], f["line"], f["name"]) for f in row.get("frames", []))))
    return out


def differences(original, made):
    if state(original) != state(made):
        one, other = state(original), state(made)
        yield "segments: " + next(f"{key}: {one.get(key)} and {other.get(key)}" for key in sorted({*one, *other})
                                  if one.get(key) != other.get(key))[:800]
    if rows(original) != rows(made):
        yield "rows: " + next((f"{a} and {b}" for a, b in zip(rows(original), rows(made)) if a != b), "their number")[:800]
    if original["allocator_settings"] != made["allocator_settings"]:
        yield f"settings: {original['allocator_settings']} and {made['allocator_settings']}"
    def notes(of):
        return sorted((each["time_us"], each["stage"], each["name"], each["device"]) for each in of["external_annotations"])
    if notes(original) != notes(made):
        yield "annotations"


def main():
    emmctl = sys.argv[1]
    folder = os.environ.get("EMM_EXTRA_TRACES") or (sys.argv[2] if len(sys.argv) > 2 else "")
    if not folder or not pathlib.Path(folder).is_dir():
        print("skipped: EMM_EXTRA_TRACES does not name the folder of the collected recordings")
        return 77
    wrong = 0
    paths = sorted(p for p in pathlib.Path(folder).glob("torch*/*.gz"))
    with tempfile.TemporaryDirectory() as place:
        lines, straight, by_trace = (pathlib.Path(place) / name for name in ("o.jsonl", "straight.pickle", "by_trace.pickle"))
        for path in paths:
            is_pickle = path.name.endswith(".pickle.gz")
            run(emmctl, "convert", path, straight, "--to", "torch-pickle")
            run(emmctl, "convert", path, lines)
            run(emmctl, "convert", lines, by_trace, "--to", "torch-pickle")
            found = [] if straight.read_bytes() == by_trace.read_bytes() else ["the two pickles are not the same"]
            said = inspected(emmctl, path, not is_pickle)
            found += [f"inspect: {name}: {str(value)[:300]} and {str(again.get(name))[:300]}"
                      for again in [inspected(emmctl, straight, not is_pickle)]
                      for name, value in said.items() if again.get(name) != value]
            if is_pickle:
                found += differences(load(path), load(straight))
            for difference in found:
                print(f"{path}: {difference}")
            wrong += len(found) != 0
    print(f"{len(paths)} snapshots, {wrong} that are not the same again")
    return 1 if wrong or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
