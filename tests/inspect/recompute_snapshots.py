#!/usr/bin/env python3
"""A snapshot's figures, worked out anew from its rows and its end state, are those of `emmctl inspect --json`.

    recompute_snapshots.py EMMCTL [FOLDER]     FOLDER is $EMM_EXTRA_TRACES where that is set

Stands on nothing of emmctl's but its answer. Where a FILE.json beside FILE.pickle.gz has torch.cuda.memory_stats(),
both are held against that too. Exits 77, saying so, where there is no folder of recordings.
"""
import gzip
import json
import os
import pathlib
import pickle
import subprocess
import sys

ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map",
           "segment_unmap", "oom")


class PlainData(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")


def load(path):
    """The rows, those of several devices by their times, as (device, row); and the segments at the end."""
    with gzip.open(path) as file:
        if path.name.endswith(".pickle.gz"):
            snapshot = PlainData(file).load()
        else:  # a line about the run, then a line for each row
            rows = [json.loads(line) for line in list(file)[1:]]
            keys = ("action", "addr", "size", "stream", "time_us")
            snapshot = {"device_traces": [[dict(zip(keys, row)) for row in rows]], "segments": []}
    rows = [(device, row) for device, trace in enumerate(snapshot["device_traces"]) for row in trace]
    if len([trace for trace in snapshot["device_traces"] if trace]) > 1:
        rows.sort(key=lambda pair: pair[1].get("time_us", 0))
    return rows, snapshot["segments"]


class Level:
    def __init__(self, now):
        self.now = self.peak = now

    def step(self, by):
        self.now += by
        self.peak = max(self.peak, self.now)


def figures(rows, segments):
    counts = dict.fromkeys(ACTIONS, 0)
    state, sizes = {}, {}  # of an address: "live" or "pending" at that row, and its block's size
    before = {}            # what was there before the first row: its size, and which of the two
    reserved_change = 0
    for device, row in rows:
        action, size, at = row["action"], row["size"], (device, row.get("addr"))
        counts[action] = counts.get(action, 0) + 1
        if action == "alloc":
            state[at] = "live"
        elif action == "free_requested":
            if at not in state:
                before[at] = (size, "live")
            state[at] = "pending"
        elif action == "free_completed":
            if at not in state:
                before[at] = (size, "pending")
            state[at] = "free"
        elif action in ("segment_alloc", "segment_map"):
            reserved_change += size
        elif action in ("segment_free", "segment_unmap"):
            reserved_change -= size
    for segment in segments:
        for block in segment["blocks"]:
            at = (segment["device"], block["address"])
            if block["state"].startswith("active") and at not in state:
                before[at] = (block["requested_size"], "live" if block["state"] == "active_allocated" else "pending")
    reserved = sum(segment["total_size"] for segment in segments) - (reserved_change if segments else 0)
    state = {at: which for at, (_, which) in before.items()}
    sizes = {at: size for at, (size, _) in before.items()}
    live, active = Level(sum(size for size, which in before.values() if which == "live")), Level(sum(sizes.values()))
    held = Level(reserved)
    recorded = set()       # allocated in the rows
    for device, row in rows:
        action, size, at = row["action"], row["size"], (device, row.get("addr"))
        if action == "alloc":
            state[at], sizes[at] = "live", size
            recorded.add(at)
            live.step(size)
            active.step(size)
        elif action == "free_requested":
            live.step(-sizes[at])
            state[at] = "pending"
        elif action == "free_completed":
            active.step(-sizes[at])
            state[at] = "free"
            recorded.discard(at)
        elif action.startswith("segment"):
            held.step(size if action in ("segment_alloc", "segment_map") else -size)
    leaked = [sizes[at] for at, which in state.items() if which == "live" and at in recorded]
    kept = [sizes[at] for at, which in state.items() if which == "live" and at not in recorded]
    return {"actions": {name: counts[name] for name in ACTIONS}, "peak_live": live.peak, "peak_active": active.peak,
            "active_at_end": active.now, "peak_reserved": held.peak, "reserved_at_end": held.now,
            "leaked": [len(leaked), sum(leaked)], "kept": [len(kept), sum(kept)]}


def of_inspect(emmctl, path):
    ran = subprocess.run([emmctl, "inspect", str(path), "--json", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if ran.returncode != 0:
        return {"inspect": f"exits {ran.returncode}: {ran.stderr.decode()}"}
    said = json.loads(ran.stdout)
    backing = said["backing"] or {"peak_reserved": {"bytes": 0}, "reserved_at_end_bytes": 0}
    return {"actions": said.get("actions"), "peak_live": said["peak_live"]["bytes"],
            "peak_active": said.get("peak_active", {}).get("bytes"), "active_at_end": said.get("active_at_end_bytes"),
            "peak_reserved": backing["peak_reserved"]["bytes"], "reserved_at_end": backing.get("reserved_at_end_bytes"),
            "leaked": [said["leaked"]["count"], said["leaked"]["bytes"]],
            "kept": [said["preexisting_at_end"]["count"], said["preexisting_at_end"]["bytes"]]}


def gap_mistakes(emmctl, path):
    """Events at which the causes of `inspect --gap` do not add up to what was reserved beyond what was live."""
    events = json.loads(subprocess.run([emmctl, "inspect", str(path), "--json", "-"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)["events"]
    for event in sorted({events // 7, events // 2, events - 1}):
        ran = subprocess.run([emmctl, "inspect", str(path), "--gap", str(event), "--json", "-"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        gap = json.loads(ran.stdout)["gap"]
        if not gap or sum(part["bytes"] for part in gap["parts"]) != gap["reserved_bytes"] - gap["live_bytes"]:
            yield event


def of_statistics(path, own):
    """What PyTorch's own statistics say of the same figures; the others are left as they are."""
    beside = path.with_name(path.name.replace(".pickle.gz", ".json"))
    stats = json.loads(beside.read_text()).get("stats") if beside.exists() and beside != path else None
    if not stats:
        return own
    def count(*actions):
        return sum(own["actions"][action] for action in actions)
    checks = {"requested_bytes.all.peak": own["peak_active"], "requested_bytes.all.current": own["active_at_end"],
              "reserved_bytes.all.peak": own["peak_reserved"], "reserved_bytes.all.current": own["reserved_at_end"],
              "allocation.all.current": own["leaked"][0] + own["kept"][0], "num_ooms": count("oom"),
              "num_device_alloc": count("segment_alloc", "segment_map"),
              "num_device_free": count("segment_free", "segment_unmap"), "allocation.all.allocated": count("alloc"),
              "active.all.freed": count("free_completed")}
    return {name: (stats[name], said) for name, said in checks.items() if name in stats and stats[name] != said}


def main():
    emmctl = sys.argv[1]
    folder = os.environ.get("EMM_EXTRA_TRACES") or (sys.argv[2] if len(sys.argv) > 2 else "")
    if not folder or not pathlib.Path(folder).is_dir():
        print("skipped: EMM_EXTRA_TRACES does not name the folder of the collected recordings")
        return 77
    paths = sorted(p for p in pathlib.Path(folder).glob("torch*/*.gz"))
    wrong = 0
    for path in paths:
        own, said = figures(*load(path)), of_inspect(emmctl, path)
        for name, value in own.items():
            if said.get(name) != value:
                wrong += 1
                print(f"{path}: {name}: the rows say {value}, inspect {said.get(name, said)}")
        for event in gap_mistakes(emmctl, path):
            wrong += 1
            print(f"{path}: the causes of the gap after event {event} do not add up")
        against = of_statistics(path, own)
        if against is not own:
            for name, (stated, value) in against.items():
                wrong += 1
                print(f"{path}: {name}: PyTorch's statistics say {stated}, the rows {value}")
    print(f"{len(paths)} snapshots, {wrong} mistakes")
    return 1 if wrong or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
