#!/usr/bin/env python3
"""Signals that end a command, also while its input says nothing, and signals that it was started to ignore.

    interrupts.py EMMCTL
"""
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

CSV = b"Thread,Time,Action,Pointer,Size,Stream\n"
HEADER = b'{"format":"emmctl-trace","version":"1.0"}\n'
COMMANDS = (["convert", "-", "o.jsonl"], ["replay", "-", "--device", "sim"], ["fit", "-", "--manager", "pool"],
            ["minimize", "-", "--manager", "pool", "-o", "o.jsonl"], ["compare", "-", "--manager", "pool", "--device", "sim"],
            ["check", "-"], ["inspect", "-"])
FED = 4 << 20  # much more than a pipe holds: once it is written, the command reads
DEADLINE_S = 30
failures = []


def start(emmctl, words, folder, ignored=()):
    def ignore():
        for one in ignored:
            signal.signal(one, signal.SIG_IGN)
    return subprocess.Popen([emmctl, *words], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, preexec_fn=ignore)


def expect(what, process, code):
    try:
        process.wait(DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        failures.append(f"{what}: it does not end")
        return
    if process.returncode not in code:
        failures.append(f"{what}: it ended with {process.returncode}, expected {code}: {process.stderr.read().decode()}")


def one_signal_ends_what_waits_for_its_input(emmctl):
    for words in COMMANDS:
        for number in (signal.SIGTERM, signal.SIGINT):
            for name, begin, more in (("a CSV without operations", CSV, b"\n" * FED),
                                      ("a document without events", HEADER[:-2] + b',"events":[', b" " * FED)):
                with tempfile.TemporaryDirectory() as folder:
                    process = start(emmctl, words, folder)
                    process.stdin.write(begin + more)
                    process.stdin.flush()
                    process.send_signal(number)
                    # A command that keeps what it has done ends by itself, others by the signal.
                    expect(f"{number.name}, {name}, {words[0]}", process, (128 + number, -number))


def an_ignored_signal_stays_ignored(emmctl):
    rows = b"".join(b'{"op":"memalloc","id":%d,"size":512}\n{"op":"free","id":%d}\n' % (i, i) for i in range(200000))
    for words in (["convert", "-", "o.jsonl"], ["replay", "-", "--device", "sim"], ["fit", "-", "--manager", "pool"]):
        for number in (signal.SIGINT, signal.SIGTERM):
            with tempfile.TemporaryDirectory() as folder:
                process = start(emmctl, words, folder, ignored=[number])
                half = len(rows) // 2
                process.stdin.write(HEADER + rows[:half])
                process.send_signal(number)
                try:
                    process.stdin.write(rows[half:])
                    process.stdin.close()
                except BrokenPipeError:
                    pass
                expect(f"{number.name} ignored, {words[0]}", process, (0,))


def handles(process, number):
    """Whether PROCESS has a handler of its own for the signal: before that, the signal ends it without a word."""
    caught = next(line for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("SigCgt:"))
    return int(caught.split()[1], 16) >> (number - 1) & 1


def an_interrupted_output_leaves_no_file(emmctl):
    for words, fed, sentence in ((["convert", "-", "out.jsonl"], HEADER + b'{"op":"initialize"}\n' * (FED // 20), "interrupted while reading <stdin>"),
                                 (["generate", "ramps", "out.json", "--events", "2000000000"], b"", "interrupted while generating")):
        with tempfile.TemporaryDirectory() as folder:
            process = start(emmctl, words, folder)
            process.stdin.write(fed)
            process.stdin.flush()
            until = time.monotonic() + DEADLINE_S
            while not handles(process, signal.SIGINT) and time.monotonic() < until:
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            expect(f"an output, {words[0]}", process, (128 + signal.SIGINT, -signal.SIGINT))
            said, left = process.stderr.read().decode(), [file.name for file in pathlib.Path(folder).iterdir()]
            if sentence not in said or left:
                failures.append(f"an output, {words[0]}: it said {said!r}, expected {sentence!r}, and left {left}, expected nothing")


one_signal_ends_what_waits_for_its_input(sys.argv[1])
an_interrupted_output_leaves_no_file(sys.argv[1])
an_ignored_signal_stays_ignored(sys.argv[1])
print("\n".join(failures) or "all as they should be")
sys.exit(1 if failures else 0)
