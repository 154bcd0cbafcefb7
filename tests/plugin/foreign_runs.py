#!/usr/bin/env python3
"""Runs emmctl on plugins that hang and sees how it ends: by one signal, with what was found, and leaving nobody behind.

    foreign_runs.py EMMCTL HOSTILE_PLUGIN TRACE
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

EMMCTL, HOSTILE, TRACE = (os.path.abspath(path) for path in sys.argv[1:])
LONG = 60  # seconds, and a test that takes them has failed


def until(what):
    """What `what` gives, once it gives something."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("it did not come")


def stat(pid):
    """State and parent of a process; nothing where it is gone or about to be."""
    try:
        state, parent = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[:2]
    except OSError:
        return None
    return None if state in "ZX" else (state, int(parent))


def children(parent):
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if (stat(pid) or ("", 0))[1] == parent]


def cpu_stands(pid):
    """Whether a process sleeps in two looks."""
    first = stat(pid)
    time.sleep(0.05)
    return first and first[0] == "S" and stat(pid) == first


def start(folder, command, how):
    process = subprocess.Popen(
        [EMMCTL, *command, "--manager", f"{HOSTILE}:{how}"], cwd=folder, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    return process


def hanging(folder, command, how):
    """A run whose plugin hangs, and its children."""
    process = start(folder, command, how)
    if "--log" in command:
        until((pathlib.Path(folder) / "log.csv").exists)
    return process, until(lambda: (pids := children(process.pid)) and all(cpu_stands(pid) for pid in pids) and pids)


def one_signal_ends_a_run_with_what_it_found(folder):
    replay = ["replay", TRACE, "--device", "sim", "--json", "found.json", "--log", "log.csv"]
    for number in (signal.SIGTERM, signal.SIGINT):
        for how in ("memalloc=hangs", "memalloc=deaf"):
            for file in pathlib.Path(folder).iterdir():
                file.unlink()
            process, pids = hanging(folder, replay, how)
            process.send_signal(number)
            out, err = process.communicate(timeout=LONG)
            assert process.returncode == 128 + number, (process.returncode, err)
            assert "the call memalloc at event 2 (line 7)" in err, err
            assert "cut off" in out, out
            found = json.loads((pathlib.Path(folder) / "found.json").read_text())
            assert found["interrupted"] and found["allocs"] == 1, found
            assert (pathlib.Path(folder) / "log.csv").read_text().count("\n") == 2
            until(lambda: not any(stat(pid) for pid in pids))


def a_killed_run_leaves_nobody(folder):
    replay = ["replay", TRACE, "--device", "sim", "--log", "log.csv"]
    conformance = ["conformance", "--clause", "DEV-1", "--deadline", str(LONG)]
    for command, how in ((replay, "memalloc=deaf"), (["fit", TRACE], "memalloc=hangs"),
                         (conformance, "free=hangs")):
        process, pids = hanging(folder, command, how)
        process.kill()
        process.communicate(timeout=LONG)
        until(lambda: not any(stat(pid) for pid in pids))


def a_fork_of_a_plugin_is_ended(folder):
    before = set(children(1)) | set(children(os.getpid()))
    process = start(folder, ["replay", TRACE, "--device", "sim"], "memalloc=forks")
    process.communicate(timeout=LONG)
    assert process.returncode == 0
    assert not [pid for pid in set(children(1)) - before if HOSTILE in command_line(pid)]


def command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def main():
    for test in (one_signal_ends_a_run_with_what_it_found, a_killed_run_leaves_nobody, a_fork_of_a_plugin_is_ended):
        with tempfile.TemporaryDirectory() as folder:
            test(folder)
        print(f"{test.__name__}: yes")


if __name__ == "__main__":
    main()
