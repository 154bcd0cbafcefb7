#!/usr/bin/env python3
"""A snapshot that was cut has no more in it than the whole one, and emmctl says what was cut and what was left out.

    cut_snapshots.py EMMCTL [FOLDER]     FOLDER is $EMM_EXTRA_TRACES where that is set

Each snapshot of the folder's torch/ is cut at many lengths, and one of all devices of torch-ranks/ddp at some: `inspect
--partial` finds no more allocations and no greater peak than of the whole, `check --partial` exits 3 and says what it
left out. Exits 77, saying so, where there is no folder of recordings.
"""
import gzip
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile

BEYOND_COUNTING = 10  # findings of check: what is live at the end, and little else


class PlainData(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")


def run(*command):
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)


def figures(inspected):
    said = json.loads(inspected.stdout)
    found = {"allocations": said["allocs"], "peak live": said["peak_live"]["bytes"], "peak active": said["peak_active"]["bytes"],
             "peak reserved": said["backing"]["peak_reserved"]["bytes"] if said["backing"] else 0}
    found.update((f"peak live of device {device}", peak["bytes"]) for device, peak in said["peak_live_by_device"].items())
    return found


def all_devices(folder):
    """The snapshot that one process with all of the training's devices would have taken."""
    whole = {"segments": [], "device_traces": [], "allocator_settings": {}, "external_annotations": []}
    for rank in range(4):
        with gzip.open(folder / f"torch-ranks/ddp_rank{rank}.pickle.gz") as file:
            snapshot = PlainData(file).load()
        def moved(address):  # each rank's process has an address space of its own
            return address + (rank << 48)
        for segment in snapshot["segments"]:
            segment["address"] = moved(segment["address"])
            for block in segment["blocks"]:
                block["address"] = moved(block["address"])
        for row in snapshot["device_traces"][rank]:
            row.update(addr=moved(row["addr"])) if "addr" in row else None
        whole["segments"] += snapshot["segments"]
        whole["device_traces"].append(snapshot["device_traces"][rank])
    return pickle.dumps(whole, protocol=4)


def judge(emmctl, place, name, bytes_, cuts):
    place.write_bytes(bytes_)
    whole = figures(run(emmctl, "inspect", place, "--json", "-"))
    wrong, with_rows = [], 0
    for cut in range(1, cuts):
        length = len(bytes_) * cut // cuts
        place.write_bytes(bytes_[:length])
        inspected = run(emmctl, "inspect", place, "--partial", "--json", "-")
        where = f"{name} cut at {length:,} of {len(bytes_):,} bytes"
        if inspected.returncode != 0:
            wrong.append(f"{where}: inspect exits {inspected.returncode}: {inspected.stderr}")
            continue
        found = figures(inspected)
        wrong += [f"{where}: {what} {value}, of the whole {whole.get(what, 0)}"
                  for what, value in found.items() if value > whole.get(what, 0)]
        with_rows += "inside the rows" in inspected.stderr and found["allocations"] > 0
        checked = run(emmctl, "check", place, "--partial")
        findings = checked.stdout.count("warning:") + checked.stdout.count("error:")
        if checked.returncode != 3 or findings > BEYOND_COUNTING or "was cut" not in checked.stdout \
                or "the file ends inside the pickle" not in checked.stderr:
            wrong.append(f"{where}: check exits {checked.returncode} with {findings} findings: {checked.stdout[:600]}{checked.stderr[:600]}")
    if with_rows < cuts // 4:
        wrong.append(f"{name}: of {cuts} cuts {with_rows} leave rows")
    return wrong


def main():
    emmctl = sys.argv[1]
    folder = os.environ.get("EMM_EXTRA_TRACES") or (sys.argv[2] if len(sys.argv) > 2 else "")
    if not folder or not pathlib.Path(folder).is_dir():
        print("skipped: EMM_EXTRA_TRACES does not name the folder of the collected recordings")
        return 77
    folder = pathlib.Path(folder)
    paths = sorted(folder.glob("torch/*.pickle.gz"))
    wrong = []
    with tempfile.TemporaryDirectory() as place:
        cut = pathlib.Path(place) / "cut.pickle"
        for path in paths:
            wrong += judge(emmctl, cut, path.name, gzip.open(path).read(), 60)
        wrong += judge(emmctl, cut, "all devices of ddp", all_devices(folder), 8)
    for words in wrong:
        print(words)
    print(f"{len(paths) + 1} snapshots, {len(wrong)} mistakes")
    return 1 if wrong or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
