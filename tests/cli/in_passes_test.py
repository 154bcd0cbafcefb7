#!/usr/bin/env python3
"""What is said of a file that is read in passes is what is said of it in memory, byte for byte: categories of a profile, what of a
state's inactive memory is returnable, and all else of the files that are given. held.pickle is a state of two devices with wholly free segments,
segments that are partly in use, two streams and a private pool.

    in_passes_test.py EMMCTL FILE...
"""
import json
import subprocess
import sys

EMMCTL, FILES = sys.argv[1], sys.argv[2:]
MEBI = 1 << 20
failures = []


def expect(true, words):
    if not true:
        failures.append(words)
        print("FAILED", words)


def answer(command, file, *options):
    done = subprocess.run([EMMCTL, command, file, "--json", "-", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    expect(done.returncode in (0, 3), f"{command} {file} {options}: {done.stderr.decode()}")
    return done.stdout


held = next(file for file in FILES if file.endswith("held.pickle"))
for file in FILES:
    for command, options in (("inspect", ()), ("explain", ("--no-remedies",)), ("explain", ("--no-remedies", "--capacity", "1GiB"))):
        expect(answer(command, file, *options) == answer(command, file, "--in-passes", *options), f"{command} {options} of {file} says another thing in passes")
told = json.loads(answer("inspect", held, "--in-passes"))["inactive"]
expect([(each["device"], each["returnable_bytes"] // MEBI, each["stuck_bytes"] // MEBI) for each in told] == [(0, 140, 70), (1, 0, 30)], f"what is returnable, and stuck: {told}")
expect({(part["pool"], part["stream"]) for part in told[0]["inactive"]} == {("large pool", 0), ("large pool", 77), ("private pool 0.1, large", 0)}, f"pools and streams: {told}")
print(f"{len(failures)} failures")
sys.exit(1 if failures else 0)
