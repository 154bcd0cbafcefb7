#!/usr/bin/env python3
"""A snapshot's figures, worked out anew from its rows and its end state, are those of `emmctl inspect --json`.

So are those of the same snapshot without its first half of rows, as if it had been begun late; and of its state
alone what `emmctl explain --json --capacity` says of it: what of the inactive memory PyTorch would give back before
it fails, what is stuck, by pool and stream, and the largest request that would be served.

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
import tempfile

ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map",
           "segment_unmap", "oom")


class PlainData(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")


def snapshot_of(path):
    with (gzip.open if path.name.endswith(".gz") else open)(path, "rb") as file:
        if ".pickle" in path.name:
            snapshot = PlainData(file).load()
        else:  # a line about the run, then a line for each row
            rows = [json.loads(line) for line in list(file)[1:]]
            keys = ("action", "addr", "size", "stream", "time_us")
            snapshot = {"device_traces": [[dict(zip(keys, row)) for row in rows]], "segments": []}
    return {"segments": snapshot, "device_traces": []} if isinstance(snapshot, list) else snapshot


def load(snapshot):
    """The rows, those of several devices by their times, as (device, row); and the segments at the end."""
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


MIB = 1 << 20
PAGE = {True: 2 * MIB, False: 20 * MIB}  # of an expandable segment of the small pool, and of the large


def rounded(size, settings):
    divisions = settings.get("roundup_power2_divisions") or {}
    if isinstance(divisions, dict) and size > 512:
        key = str(1 << max(size.bit_length() - 1 - 20, 0))
        named = {name: value for name, value in divisions.items() if name.isdigit()}
        count = named.get(key, divisions.get(">", 0) if named and int(key) > max(map(int, named)) else 0)
        if count > 1 and size > 512 * count:
            below = 1 << (size.bit_length() - 1)
            step = below // count
            return size if size == below else -(-(size - below) // step) * step + below
    return max(512, -(-size // 512) * 512)


def request_of(size, settings):
    """The largest request that is rounded up to `size` or less."""
    low, high = 0, size
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if rounded(middle, settings) <= size else (low, middle - 1)
    return low


def pieces_of(segments, waits_are_free):
    """The ranges of addresses that lie in one reservation: their base, and what lies in them in order of address."""
    found, last = [], None
    for segment in sorted(segments, key=lambda each: each["address"]):
        key = (segment["stream"], tuple(segment.get("segment_pool_id", (0, 0))), segment["segment_type"] == "small",
               bool(segment.get("is_expandable")))
        joins = key[3] and last is not None and last["key"] == key and segment["address"] - last["base"] < 1 << 37
        if not joins:
            last = {"key": key, "base": segment["address"], "pieces": []}
            found.append(last)
        pieces = last["pieces"]
        if pieces and pieces[-1][1] < segment["address"]:
            pieces.append([pieces[-1][1], segment["address"], "unmapped"])
        at = segment["address"]
        for block in segment["blocks"]:
            idle = block["state"] == "inactive" or (waits_are_free and block["state"] != "active_allocated")
            if idle and pieces and pieces[-1][2] == "free" and at != segment["address"]:
                pieces[-1][1] = at + block["size"]
            else:
                pieces.append([at, at + block["size"], "free" if idle else "used"])
            at += block["size"]
    return found


def given_back(group):
    """The parts of a group's free pieces that PyTorch returns to the device."""
    _, _, small, expandable = group["key"]
    for first, last, what in group["pieces"]:
        if what != "free":
            continue
        if not expandable:
            if len(group["pieces"]) == 1:
                yield first, last
            continue
        page, base = PAGE[small], group["base"]
        begin, end = base - (base - first) // page * page, base + (last - base) // page * page
        if begin < end:
            yield begin, end


def mapped_sizes(groups, room, is_released):
    """The sizes that are served by mapping pages behind free memory, before or after the release."""
    most_space = {}  # PyTorch takes the first range of addresses that is large enough, and fails if it cannot map that
    for group in groups:
        if not group["key"][3]:
            continue
        pieces = []
        cuts = list(given_back(group)) if is_released else []
        for first, last, what in group["pieces"] + [[group["pieces"][-1][1], 1 << 62, "unmapped"]]:
            inside = [cut for cut in cuts if what == "free" and first <= cut[0] and cut[1] <= last]
            for begin, end in inside:
                pieces += [[first, begin, "free"], [begin, end, "unmapped"]]
                first = end
            pieces.append([first, last, what])
        merged = []
        for first, last, what in pieces:
            if first == last:
                continue
            if merged and merged[-1][2] == what != "used":
                merged[-1][1] = last
            else:
                merged.append([first, last, what])
        for i, (first, last, what) in enumerate(merged):
            if what != "unmapped":
                continue
            size, left, space, maps_all = 0, max(room, 0), 0, True
            for begin, end, kind in merged[i - 1 if i and merged[i - 1][2] == "free" else i:]:
                if kind == "used":
                    break
                space += end - begin
                if not maps_all:
                    continue
                if kind == "free":
                    size += end - begin
                    continue
                maps = min(left // PAGE[group["key"][2]] * PAGE[group["key"][2]], end - begin)
                size, left = size + maps, left - maps
                maps_all = maps == end - begin
            before = most_space.get((group["key"][0], group["key"][2]), 0)
            if size > before:
                yield min(size, MIB) if group["key"][2] else size
            most_space[group["key"][0], group["key"][2]] = max(before, space)


def state_figures(segments, settings, capacity):
    divided = {}
    for group in pieces_of(segments, False):
        stream, pool, small, _ = group["key"]
        free = sum(last - first for first, last, what in group["pieces"] if what == "free")
        back = sum(last - first for first, last in given_back(group))
        if free:
            sums = divided.setdefault((pool, small, stream), [0, 0])
            sums[0] += back
            sums[1] += free - back
    groups = [group for group in pieces_of(segments, True) if group["key"][1] == (0, 0)]
    back = sum(last - first for group in groups for first, last in given_back(group))
    room = capacity - sum(segment["total_size"] for segment in segments) + back
    sizes = [MIB] if room >= 2 * MIB else []  # a small segment, and then a large one
    expands = bool(settings.get("expandable_segments"))
    page = PAGE[False] if expands else 2 * MIB
    if room // page * page >= 10 * MIB:
        sizes.append(room // page * page)
    for group in pieces_of(segments, False):
        if group["key"][1] == (0, 0):
            holes = [last - first for first, last, what in group["pieces"] if what == "free"]
            sizes += [min(hole, MIB) for hole in holes] if group["key"][2] else [hole for hole in holes if hole > MIB]
    if expands:
        own = [group for group in pieces_of(segments, False) if group["key"][1] == (0, 0)]
        sizes += mapped_sizes(own, room - back, False)  # PyTorch tries so before it gives anything back
        sizes += mapped_sizes(groups, room, True)
    return {"largest_request_bytes": max([request_of(size, settings) for size in sizes] or [0]),
            "returnable_bytes": sum(back for back, _ in divided.values()),
            "stuck_bytes": sum(stuck for _, stuck in divided.values()),
            "inactive": sorted([pool != (0, 0), small, stream, *sums] for (pool, small, stream), sums in divided.items())}


def state_mistakes(emmctl, snapshot, folder):
    """Figures of the state alone that `emmctl explain` has otherwise, for each device."""
    settings = snapshot.get("allocator_settings", {})
    for device in sorted({segment["device"] for segment in snapshot["segments"]}):
        segments = [segment for segment in snapshot["segments"] if segment["device"] == device]
        reserved = sum(segment["total_size"] for segment in segments)
        alone = folder / "state.pickle"
        with open(alone, "wb") as file:
            pickle.dump({"segments": segments, "device_traces": [], "allocator_settings": settings}, file)
        for capacity in (reserved, reserved + 333 * MIB):
            ran = subprocess.run([emmctl, "explain", str(alone), "--capacity", str(capacity), "--json", "-"],
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            said = json.loads(ran.stdout)["devices"][0]["at_end"] if ran.returncode == 0 else {}
            if said:
                said["inactive"] = sorted([each["private"], each["pool"].endswith("small") or each["pool"] == "small pool",
                                           each["stream"], each["returnable_bytes"], each["stuck_bytes"]]
                                          for each in said["inactive"])
            for name, value in state_figures(segments, settings, capacity).items():
                if said.get(name) != value:
                    yield f"{name} with {capacity}: the segments say {value}, explain {said.get(name)}"


def late(snapshot):
    """The same, without the first half of its rows: what is older then is known by the state at the end alone."""
    return {**snapshot, "device_traces": [trace[len(trace) // 2:] for trace in snapshot["device_traces"]]}


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
    paths += sorted(p for p in (pathlib.Path(folder).parent / "field").glob("*.pickle"))
    wrong = 0
    temporary = tempfile.TemporaryDirectory()
    scratch = pathlib.Path(temporary.name)
    for path in paths:
        snapshot = snapshot_of(path)
        own, said = figures(*load(snapshot)), of_inspect(emmctl, path)
        if not any(snapshot["device_traces"]) or path.name == "state_one_row.pickle":
            own = {}  # no rows, or none that the end state does not contradict
        for name, value in own.items():
            if said.get(name) != value:
                wrong += 1
                print(f"{path}: {name}: the rows say {value}, inspect {said.get(name, said)}")
        if snapshot["segments"] and len(own) != 0:
            begun_late = scratch / "late.pickle"
            with open(begun_late, "wb") as file:
                pickle.dump(late(snapshot), file)
            said = of_inspect(emmctl, begun_late)
            for name, value in figures(*load(late(snapshot))).items():
                if said.get(name) != value:
                    wrong += 1
                    print(f"{path}, begun late: {name}: the rows say {value}, inspect {said.get(name, said)}")
        for words in state_mistakes(emmctl, snapshot, scratch):
            wrong += 1
            print(f"{path}: {words}")
        for event in gap_mistakes(emmctl, path) if own else ():
            wrong += 1
            print(f"{path}: the causes of the gap after event {event} do not add up")
        against = of_statistics(path, own) if own else own
        if against is not own:
            for name, (stated, value) in against.items():
                wrong += 1
                print(f"{path}: {name}: PyTorch's statistics say {stated}, the rows {value}")
    print(f"{len(paths)} snapshots, {wrong} mistakes")
    return 1 if wrong or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
