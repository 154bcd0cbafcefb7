#!/usr/bin/python3
"""An NBEP 7 class of Python's under `emmctl replay`, `compare` and `fit`, on the simulated device.

    test_replay.py --emmctl PROGRAM --traces FOLDER

Exit 0: traces are served, a fault reaches the class, and what the class holds is measured. 77: there is no Numba here, or this Python
has no shared library.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

RIGHT = pathlib.Path(__file__).resolve().parent / "right"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--emmctl", type=pathlib.Path, required=True)
    parser.add_argument("--traces", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    program, traces = arguments.emmctl.resolve(), arguments.traces.resolve()
    try:
        import numba.cuda  # noqa: F401
    except ImportError as error:
        print("skipped: no Numba for %s: %s" % (sys.executable, error))
        return 77
    bad = []

    def run(*words):
        done = subprocess.run([str(program), *map(str, words)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=dict(os.environ, EMM_PYTHON=sys.executable))
        return done.returncode, done.stdout, done.stdout + done.stderr

    def expect(truth, what, said):
        if not truth:
            bad.append(what)
            print("%s:\n%s" % (what, said))

    pool, exercise = RIGHT / "cupy_like.py", RIGHT / "exercise.py"
    code, out, said = run("replay", traces / "basics/pool_reuse.json", "--manager", pool, "--device", "sim", "--verify", "--json", "-")
    if "has no shared library" in said:
        print("skipped: " + said)
        return 77
    summary = json.loads(out) if code == 0 else {}
    expect(code == 0 and summary["failures"] == 0, "a replay with --verify exits %d" % code, said)
    # The class makes its driver calls itself, so the device tells what it holds.
    expect(summary.get("peak_reserved_bytes") == 40 << 20, "what the class holds is not measured", said)
    for name in ("ipc_offset", "several_devices", "out_of_memory"):
        code, _, said = run("replay", traces / "basics" / (name + ".json"), "--manager", pool, "--device", "sim")
        expect(code == 0, "%s exits %d" % (name, code), said)
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "run.csv")
        code, _, said = run("replay", traces / "basics/pool_reuse.json", "--manager", exercise, "--device", "sim",
                            "--fault", "mem_alloc:2", "--log", log)
        expect(code == 1 and "cudaMalloc answered 2" in said, "a fault exits %d" % code, said)
        rows = log.read_text().splitlines()
        expect(rows[0] == "Thread,Time,Action,Pointer,Size,Stream" and any("allocate failure" in row for row in rows),
               "the log has no failure", "\n".join(rows))
    code, _, said = run("fit", traces / "basics/pool_reuse.json", "--manager", pool)
    expect(code == 0 and "40.0 MiB" in said, "fit exits %d" % code, said)
    code, _, said = run("compare", traces / "basics/pool_reuse.json", "--manager", pool, "--manager", "pool", "--device", "sim")
    expect(code == 0 and said.count("served") >= 2, "compare exits %d" % code, said)
    if not bad:
        print("replay, compare and fit take a class of Python's")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
