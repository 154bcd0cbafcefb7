#!/usr/bin/env python3
"""A sweep that is killed at any moment and begun again has each cell exactly once: resumed.py EMMCTL INPUTS [KILLS]"""
import csv
import io
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

EMMCTL, INPUTS = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
TRACES = ["training.jsonl", "slabs.jsonl", "served.jsonl"]
MANAGERS = ["pool", "cudart", "default"]
KILLS = int(sys.argv[3]) if len(sys.argv) > 3 else 1  # at least
random.seed(7)


def sweep(folder, *more, capacities=range(40, 60)):
    command = [EMMCTL, "sweep", "-o", folder, "--jobs", "2"]
    for trace in TRACES:
        command += ["--trace", INPUTS / trace]
    for manager in MANAGERS:
        command += ["--manager", manager]
    for capacity in capacities:
        command += ["--capacity", f"{capacity}MiB"]
    return command + list(more)


def expect(what, condition):
    if not condition:
        sys.exit(f"resumed.py: {what}")


with tempfile.TemporaryDirectory() as made:
    folder = pathlib.Path(made) / "out"
    kills = patience = 0
    for attempt in range(200 + 4 * KILLS):
        running = subprocess.Popen(sweep(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            running.wait(timeout=random.uniform(0.02, 0.2) * (1 + patience ** 2 / 100))
            if kills >= KILLS:
                break
            # It was done too early: some of it is to be done again, and killed as early as before.
            patience = 0
            for cell in random.sample(sorted((folder / "cells").glob("*.json")), 40):
                cell.unlink()
        except subprocess.TimeoutExpired:
            running.send_signal(random.choice([signal.SIGKILL, signal.SIGTERM]))
            running.wait()
            kills += 1
            patience += 1
            for cell in (folder / "cells").glob("*.json"):
                expect(f"{cell} is no whole answer after a kill", json.loads(cell.read_text())["schema"] == "emmctl.replay/1")
    expect("it was never done", running.returncode == 0)
    expect("it was not killed often enough", kills >= KILLS)
    cells = sorted((folder / "cells").glob("*.json"))
    expect(f"{len(cells)} cells, not 180", len(cells) == 180)
    for cell in cells:
        expect(f"{cell} is no replay", json.loads(cell.read_text())["schema"] == "emmctl.replay/1")
    before = {cell: cell.stat().st_mtime_ns for cell in cells}

    # Children of what was killed may end later, and are not cells then.
    time.sleep(0.5)
    done = subprocess.run(sweep(folder, "--csv", "-"), stdout=subprocess.PIPE, check=True)
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
    expect("a row is not done", len(rows) == 180 and all(row["state"] == "done" for row in rows))
    expect("a cell is there twice", len({row["cell"] for row in rows}) == 180)
    left = [each.name for each in (folder / "cells").iterdir() if each.name.startswith(".")]
    expect(f"leftovers stay: {left}", not left)

    # A larger matrix does only what is new.
    subprocess.run(sweep(folder, capacities=range(40, 61)), stdout=subprocess.DEVNULL, check=True)
    after = {cell: cell.stat().st_mtime_ns for cell in (folder / "cells").glob("*.json")}
    expect("a larger matrix has its cells", len(after) == 189)
    expect("what was done was done again", all(after[cell] == at for cell, at in before.items()))

    # What fails is tried as often as told, and named.
    failing = [EMMCTL, "sweep", "-o", pathlib.Path(made) / "bad", "--trace", INPUTS / "training.jsonl", "--manager", "pool",
               "--manager", "no-such-manager", "--tries", "3"]
    for _ in range(2):
        done = subprocess.run(failing, stdout=subprocess.PIPE)
        expect(f"exit {done.returncode}, not 1", done.returncode == 1)
        expect("the failure is not named", b"no-such-manager" in done.stdout and b"1 done, 1 without an answer" in done.stdout)
    expect("not three tries", len(list((pathlib.Path(made) / "bad/failed").iterdir())) == 3)
    # A trace of another content under the same name is another trace; one that is only written anew is not.
    trace = pathlib.Path(made) / "trace.jsonl"
    trace.write_bytes((INPUTS / "training.jsonl").read_bytes())
    again = [EMMCTL, "sweep", "-o", pathlib.Path(made) / "again", "--trace", trace, "--trace", INPUTS / "slabs.jsonl",
             "--manager", "pool", "--manager", "cudart"]
    answers = lambda: {cell: cell.stat().st_mtime_ns for cell in (pathlib.Path(made) / "again/cells").glob("*.json")}
    subprocess.run(again, stdout=subprocess.DEVNULL, check=True)
    first = answers()
    trace.write_bytes((INPUTS / "training.jsonl").read_bytes())
    done = subprocess.run(again, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
    expect(f"the same content is done again: {done.stderr}", answers() == first and b"has changed" not in done.stderr)
    for command, content in ((again, "served.jsonl"), (again[:4], "state.jsonl")):
        trace.write_bytes((INPUTS / content).read_bytes())
        before = answers()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
        expect(f"the change is not told: {done.stderr}", b"has changed: 2 of its cells are done anew" in done.stderr)
        expect(f"{done.stdout}", b"4 cells: 4 done" in done.stdout)
        expect(f"not two cells are new: {answers()}", len(answers()) == 4 and len(answers().items() & before.items()) == 2)
    print(f"180 cells after {kills} kills, each once")
