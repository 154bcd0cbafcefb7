#!/usr/bin/python3
"""Debian's Numba on the stand-in for libcuda.so.1, without a GPU: a session of every kind of memory works, and the
driver calls that Numba's manager made are those that `default:profile=numba` makes of the same requests.

    numba_test.py --emmctl PROGRAM --standin FOLDER

Exit 0: so it is; 1: not; 77: there is no Numba here.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DEVICE = "sim:capacity=64MiB"
# What changes memory. Questions, copies, streams and events are the program's or the engine's own.
CALL = re.compile(r"(mem_alloc|mem_alloc_managed|mem_free|mem_host_alloc|mem_free_host|mem_host_register|"
                  r"mem_host_unregister|ipc_get_mem_handle)\((.*)")
# The recording has no row for a request that failed for good, so a replay does not make it.
REFUSED = "mem_alloc(%d) -> CUDA_ERROR_OUT_OF_MEMORY" % (30 << 20)
HOST = re.compile(r"0x[0-9a-f]+")


def calls_of(log):
    """The calls that change memory, with addresses by the order in which they first came."""
    names, calls = {}, []
    for line in log.read_text().splitlines():
        if CALL.match(line) and line != REFUSED:
            calls.append(HOST.sub(lambda m: "#%d" % names.setdefault(m.group(), len(names) + 1), line))
    return calls


def run(command, standin, log, **variables):
    environment = dict(os.environ, LD_LIBRARY_PATH=str(standin), EMM_STANDIN_DEVICE=DEVICE, EMM_STANDIN_LOG=str(log),
                       NUMBA_CUDA_DRIVER=str(standin / "libcuda.so.1"), **variables)
    environment.pop("LD_PRELOAD", None)
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit("%s\nended with %d:\n%s" % (" ".join(map(str, command)), done.returncode, done.stdout))
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--emmctl", type=pathlib.Path, required=True)
    parser.add_argument("--standin", type=pathlib.Path, required=True)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for what is recorded")
    options = parser.parse_args()
    try:
        import numba.cuda  # noqa: F401
    except ImportError as error:
        print("skipped: no Numba for %s: %s" % (sys.executable, error))
        return 77
    folder = options.keep or pathlib.Path(tempfile.mkdtemp(prefix="emmctl-numba-"))
    folder.mkdir(exist_ok=True)
    recorded, numba_log, our_log = folder / "calls.jsonl", folder / "numba.log", folder / "emmctl.log"
    for log in (numba_log, our_log):
        log.unlink(missing_ok=True)

    said = run([sys.executable, HERE / "numba_session.py"], options.standin, numba_log, NUMBA_CALLS=str(recorded),
               PYTHONPATH=str(HERE))
    print("Numba on the stand-in: %s" % ", ".join(said.split()))
    run([options.emmctl, "replay", recorded, "--device", "cuda", "--manager", "default:profile=numba", "--on-oom", "record"],
        options.standin, our_log)
    theirs, ours = calls_of(numba_log), calls_of(our_log)
    for at, (his, mine) in enumerate(zip(theirs, ours)):
        if his != mine:
            print("call %d differs:\n  Numba   %s\n  emmctl  %s" % (at + 1, his, mine))
            print("before it:\n  " + "\n  ".join(theirs[max(0, at - 8):at]))
            return 1
    if len(theirs) != len(ours):
        print("Numba made %d calls, emmctl %d; the first that only one made: %s"
              % (len(theirs), len(ours), (theirs + ours[len(theirs):])[min(len(theirs), len(ours))]))
        return 1
    print("the same %d calls that change memory by Numba and by default:profile=numba" % len(ours))
    return 0 if len(ours) >= 150 else 1


if __name__ == "__main__":
    sys.exit(main())
