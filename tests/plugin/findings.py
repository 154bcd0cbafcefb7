#!/usr/bin/env python3
"""What emmctl conformance says of plugins with one mistake and with two, and what a signal leaves of a verdict.

    findings.py EMMCTL ONE_BUG_PLUGIN
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

EMMCTL, ONE_BUG = (os.path.abspath(path) for path in sys.argv[1:])
ENVIRONMENT = os.environ | {"PATH": f"{os.path.dirname(EMMCTL)}:{os.environ['PATH']}"}
MOST_WORDS = 120

# Mistakes, the clauses that are asked, and what each finding says.
CASES = (
    ("flush_not_found", ("DEV-11", "reset/late_ends", "accounts/pending", "deferral/flush", "abi/answers"),
     ['flush() answers CUDA_ERROR_NOT_FOUND (500): "nothing"']),
    ("event", ("DFR-2", "RST-?", "ERR-5", "accounts/balance", "accounts/refused_frees"), ["made by free() are not released"]),
    ("stream", ("INI-6", "RST-3", "accounts/balance"), ["made by initialize() is not released"]),
    ("free_nothing", ("PIN-*", "suite/fill", "accounts/live_bytes", "stream/reuse_waits"), ["memory is not released"]),
    ("alignment", ("DEV-1", "suite/alignment", "accounts/live_bytes"), ["aligned to 256 bytes"]),
    ("ipc_fails", ("IPC-*", "errors/passed_on"), ['get_ipc_handle() answers CUDA_ERROR_UNKNOWN (999): "no handle"']),
    ("info_crashes", ("INF-1", "BASE-7", "IPC-2"), ["crashed by SIGSEGV in get_memory_info"]),
    # Two mistakes are two findings.
    ("flush_not_found+event", ("DEV-11", "deferral/flush", "accounts/pending", "RST-3", "RST-7", "ERR-5", "accounts/balance"),
     ["made by free() are not released", "flush() answers CUDA_ERROR_NOT_FOUND"]),
    ("info_crashes+ipc_fails", ("INF-1", "BASE-7", "IPC-4", "errors/words"),
     ["crashed by SIGSEGV in get_memory_info", "no handle"]),
)


def conformance(wrong, *options, **more):
    return subprocess.run([EMMCTL, "conformance", "--manager", f"{ONE_BUG}:wrong={wrong}", *options], capture_output=True,
                          text=True, env=ENVIRONMENT, check=False, **more)


def each_mistake_is_one_finding(folder):
    for wrong, clauses, says in CASES:
        asked = [word for clause in clauses for word in ("--clause", clause)]
        run = conformance(wrong, *asked, "--json", f"{folder}/{wrong}.json")
        assert run.returncode == 1, (wrong, run)
        findings = json.loads(pathlib.Path(f"{folder}/{wrong}.json").read_text())["findings"]
        assert len(findings) == len(says), (wrong, [one["says"] for one in findings])
        for words in says:
            assert any(words in one["says"] for one in findings), (wrong, words, findings)
            assert words in run.stdout, (wrong, run.stdout)
        assert len(run.stdout.split()) <= MOST_WORDS, (wrong, run.stdout)
        for one in findings:
            again = subprocess.run(["sh", "-c", one["again"]], capture_output=True, text=True, env=ENVIRONMENT, check=False)
            assert again.returncode == 1, (one["again"], again)
            assert one["again"] in run.stdout, (one["again"], run.stdout)
            # Counts may differ from clause to clause; what is wrong may not.
            alike = one["says"].split(" made by ")[-1]
            assert alike in again.stdout or "memory is not released" in again.stdout, (one, again.stdout)


def nothing_is_left_to_fill_in(folder):
    for options in ((), ("--traces", f"{folder}/traces")):
        run = conformance("live_bytes", "--clause", "accounts/live_bytes", "--more", *options)
        assert run.returncode == 1 and "TRACE" not in run.stdout, run
        lines = [line.split(None, 1)[1] for line in run.stdout.splitlines() if line.split()[:1] in (["again"], ["replay"])]
        assert len(lines) == 1 + bool(options), run.stdout
        for line in lines:
            done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=ENVIRONMENT, check=False)
            assert done.returncode in (0, 1) and done.stdout, (line, done)


def the_command_is_whole_whatever_the_name(folder):
    plugin = f"{folder}/a plugin's $HOME;.so"
    shutil.copy(ONE_BUG, plugin)
    run = subprocess.run([EMMCTL, "conformance", "--manager", f"{plugin}:wrong=live_bytes", "--clause", "accounts/live_bytes",
                          "--seed", "7", "--deadline", "20"], capture_output=True, text=True, env=ENVIRONMENT, check=False)
    again = next(line.split(None, 1)[1] for line in run.stdout.splitlines() if line.split()[:1] == ["again"])
    done = subprocess.run(["sh", "-c", again], capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 1 and done.stdout == run.stdout, (again, done)


def clauses_are_listed_briefly():
    lists = [subprocess.run([EMMCTL, "list", "clauses", *more], capture_output=True, text=True, check=True).stdout
             for more in ((), ("--more",))]
    assert len(lists[0].split()) <= 130 and len(lists[1].splitlines()) > 200, lists


def seconds_to_end(folder, number, wrong, more):
    """Sends a signal to a verdict, once the manager hangs, and looks at what it leaves."""
    report, junit, hangs = (pathlib.Path(folder) / name for name in ("cut.json", "cut.xml", "hangs"))
    for path in (report, junit, hangs):
        path.unlink(missing_ok=True)
    process = subprocess.Popen(
        [EMMCTL, "conformance", "--manager", f"{ONE_BUG}:wrong={wrong}", "--clause", "INI-2", "--clause", "DEV-11",
         "--clause", "accounts/pending", "--json", str(report), "--junit", str(junit)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT | more | {"ONE_BUG_TELLS": str(hangs)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    until = time.monotonic() + 60
    while not hangs.exists():
        assert process.poll() is None and time.monotonic() < until, "the manager does not hang"
        time.sleep(0.01)
    process.send_signal(number)
    sent = time.monotonic()
    out, error = process.communicate(timeout=60)
    took = time.monotonic() - sent
    assert process.returncode == 128 + number, (wrong, process.returncode, out, error)
    judged = json.loads(report.read_text())
    assert judged["interrupted"] and len(judged["clauses"]) == 3, judged
    reached = sum(one.get("why") != "interrupted" for one in judged["clauses"])
    assert reached < 3, judged
    assert f"interrupted: {reached} of 3 clauses were judged" in out, out
    suite = xml.etree.ElementTree.parse(junit).getroot()
    assert suite.find("properties/property").get("value") == f"{reached} of 3 clauses were judged"
    assert not more or reached == 0, judged
    return took


def a_signal_leaves_a_whole_report(folder):
    hangs_at_load = {"ONE_BUG_HANGS_AT_LOAD": "1"}
    for number in (signal.SIGTERM, signal.SIGINT):
        for wrong, more in (("flush_hangs", {}), ("none", hangs_at_load)):
            # The best of some: the machine may be busy, and a verdict that waits for the slot takes 30 s each time.
            took = []
            while not took or min(took) >= 1 and len(took) < 4:
                took.append(seconds_to_end(folder, number, wrong, more))
            assert min(took) < 1, f"{wrong}: it took {took} s after {number.name}"


with tempfile.TemporaryDirectory() as scratch:
    each_mistake_is_one_finding(scratch)
    nothing_is_left_to_fill_in(scratch)
    the_command_is_whole_whatever_the_name(scratch)
    clauses_are_listed_briefly()
    a_signal_leaves_a_whole_report(scratch)
