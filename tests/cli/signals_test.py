#!/usr/bin/env python3
"""Every command ends within a second of a signal that comes at a random moment: with 128 + signal, without unfinished files,
and what was there before is as it was or whole.

    signals_test.py EMMCTL [ROUNDS]
"""
import json
import os
import pathlib
import pickle
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

EMMCTL, ROUNDS = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DEADLINE_S = 20  # a second, on a machine that is busy with other tests
MINE = b"somebody's work"

# What makes a command work for a while. OUT is an output that was there before. A command that is not here fails the test.
BUSY = {
    "record": (["--device", "sim", "-o", "new.jsonl", "--", "sleep", "60"],),
    "run": (["--device", "sim", "--", "sleep", "60"],),
    "replay": (["big.jsonl", "--device", "sim", "--manager", "pool", "--repeat", "100000", "--json", "OUT"],
               ["big.jsonl", "--device", "sim", "--manager", "pytorch:expandable_segments=True", "--repeat", "100000"]),
    "check": (["big.jsonl", "--json", "OUT"],),
    "convert": (["big.jsonl", "OUT", "--to", "torch-pickle"], ["big.jsonl", "OUT", "--to", "chrome-trace"], ["big.jsonl", "OUT"]),
    "inspect": (["big.jsonl", "--json", "OUT"], ["big.jsonl", "--limit", "--search-time", "60s"]),
    "explain": (["big.jsonl", "--capacity", "1GiB", "--json", "OUT"],),
    "ranks": (["big.jsonl", "big.jsonl", "--json", "OUT"],),
    "diff": (["big.jsonl", "big.jsonl", "--json", "OUT"],),
    "fit": (["big.jsonl", "--manager", "pool", "--json", "OUT"],),
    "tune": (["big.jsonl", "--json", "OUT"],),
    "plan": (["big.jsonl", "-o", "OUT"],),
    "minimize": (["big.jsonl", "--manager", "pool", "--capacity", "64MiB", "-o", "OUT"],),
    "compare": (["big.jsonl", "--device", "sim", "--json", "OUT"],),
    "sweep": (["-o", "swept", "--trace", "big.jsonl", "--manager", "pool", "--manager", "cudart", "--capacity", "30GiB", "--capacity", "31GiB"],),
    "adversary": (["OUT", "--manager", "pool", "--trials", "1000000"],),
    "generate": (["ramps", "OUT", "--events", "2000000000"],),
    "conformance": (["--manager", "pool", "--json", "OUT"],),
    "report": (["big.jsonl", "--manager", "pool", "-o", "OUT"],),
    "view": (["big.jsonl", "--manager", "pool"],),
    "top": (["big.jsonl"],), "plugin": (["new", "made"],), "list": (["clauses"],), "doctor": ([],), "help": ([],), "completion": (["bash"],),
}
MAKES = {"record": {"new.jsonl"}, "sweep": {"swept"}, "view": {"cache"}, "plugin": {"made"}}
failures, ended_by_signal = [], 0


def handles(process, number):
    """Does the process have a handler of its own? Before that the signal ends it, and it has made nothing."""
    try:
        caught = next(line for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return True
    return int(caught.split()[1], 16) >> (number - 1) & 1


def is_whole(content):
    """A page, a pickle, JSON, or lines of JSON."""
    if content.endswith(b"</html>\n"):
        return True
    for read in (json.loads, pickle.loads, lambda lines: [json.loads(line) for line in lines.splitlines()]):
        try:
            read(content)
            return True
        except Exception:  # pickles of half a file fail in many ways
            pass
    return False


def one(command, arguments, number, moment, big):
    global ended_by_signal
    said = f"emmctl {command} {' '.join(arguments)}: {number.name} after {moment:.2f} s"
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        os.symlink(big, folder / "big.jsonl")
        (folder / "out.json").write_bytes(MINE)
        words = [EMMCTL, command, *("out.json" if word == "OUT" else word for word in arguments)]
        process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                                   env={name: value for name, value in os.environ.items() if "DISPLAY" not in name} | {"XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": made})
        while process.poll() is None and not handles(process, number):
            time.sleep(0.002)
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            pass
        over = process.poll() is not None
        if not over:
            process.send_signal(number)
        try:
            process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            failures.append(f"{said}: it does not end")
            return
        code = process.returncode
        ended_by_signal += code == 128 + number
        if code != 128 + number and not 0 <= code <= 5:
            failures.append(f"{said}: it ended with {code}")
        left = {path.name for path in folder.iterdir()} - {"big.jsonl", "out.json"} - MAKES.get(command, set())
        left |= {str(path) for path in folder.rglob("*.tmp")}
        if left:
            failures.append(f"{said}: it left {sorted(left)}")
        content = (folder / "out.json").read_bytes()
        if content != MINE and code == 128 + number and not is_whole(content):
            failures.append(f"{said}: an output is half written: {content[-80:]!r}")


def main():
    said = subprocess.run([EMMCTL, "--help"], stdout=subprocess.PIPE, check=True).stdout.decode()
    commands = re.findall(r"^  ([a-z]+)  ", said.split("\n\nExamples:")[0], re.M)
    runs = 0
    with tempfile.TemporaryDirectory() as made:
        big = pathlib.Path(made) / "big.jsonl"
        subprocess.run([EMMCTL, "generate", "ramps", big, "--events", "60000"], stderr=subprocess.DEVNULL, check=True)
        for command in commands:
            if command not in BUSY:
                failures.append(f"BUSY does not say what makes {command} work for a while")
                continue
            for arguments in BUSY[command]:
                seeded = random.Random(f"{command} {arguments}")
                for round_ in range(ROUNDS):
                    number = SIGNALS[round_ % len(SIGNALS)] if ROUNDS >= len(SIGNALS) else seeded.choice(SIGNALS)
                    one(command, arguments, number, seeded.uniform(0, 0.5 if ROUNDS == 1 else 1.5), big)
                    runs += 1
            for number in SIGNALS:  # while it begins, when it has made folders, and no program yet
                one(command, BUSY[command][0], number, seeded.uniform(0, 0.05), big)
                runs += 1
    print(f"{runs} runs, {ended_by_signal} ended by the signal")
    if ended_by_signal < runs / 4:
        failures.append(f"{ended_by_signal} of {runs} runs were still at work when the signal came")
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
