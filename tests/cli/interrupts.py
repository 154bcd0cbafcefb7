#!/usr/bin/env python3
"""Signals that end a command, also while its input says nothing, and signals that it was started to ignore.

    interrupts.py EMMCTL
"""
import signal
import subprocess
import sys
import tempfile

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


one_signal_ends_what_waits_for_its_input(sys.argv[1])
an_ignored_signal_stays_ignored(sys.argv[1])
print("\n".join(failures) or "all as they should be")
sys.exit(1 if failures else 0)
