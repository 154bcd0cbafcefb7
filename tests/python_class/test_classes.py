#!/usr/bin/python3
"""NBEP 7 classes of Python's under `emmctl conformance`, over the Numba of this Python and without a GPU.

    test_classes.py --emmctl PROGRAM

Exit 0: right classes pass, each wrong one fails by the clause of its rule, and what cannot be judged is said plainly.
77: there is no Numba here, or this Python has no shared library.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# What every kind of memory needs; the whole suite takes longer than a test may.
CLAUSES = ["SEL-4", "DEV-1", "INI-2", "DEV-11", "reset/late_ends", "memory_info/true", "IPC-*", "accounts/balance"]
# The clause that must fail, and nothing that is asked first hides it.
WRONG = {"version_two": "SEL-4", "version_is_a_method": "SEL-4", "swapped_info": "memory_info/true",
         "other_size": "DEV-1"}


def judge(program, manager, clauses=(), **variables):
    with tempfile.TemporaryDirectory() as folder:
        verdicts = pathlib.Path(folder, "verdicts.json")
        command = [program, "conformance", "--manager", str(manager), "--json", str(verdicts)]
        for clause in clauses:
            command += ["--clause", clause]
        done = subprocess.run(command, env=dict(os.environ, EMM_PYTHON=sys.executable, **variables), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        found = {}
        if verdicts.exists():
            found = {each["id"]: each["verdict"] for each in json.loads(verdicts.read_text())["clauses"]}
        return done.returncode, done.stdout, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--emmctl", type=pathlib.Path, required=True)
    program = parser.parse_args().emmctl.resolve()
    try:
        import numba.cuda  # noqa: F401
    except ImportError as error:
        print("skipped: no Numba for %s: %s" % (sys.executable, error))
        return 77
    bad = []

    def expect(truth, what, said):
        if not truth:
            bad.append(what)
            print("%s:\n%s" % (what, said))

    for path in sorted((HERE / "right").glob("*.py")):
        code, said, found = judge(program, path, CLAUSES)
        if "has no shared library" in said:
            print("skipped: " + said)
            return 77
        expect(code == 0 and list(found.values()).count("pass") >= 6, "%s is right, and exits %d" % (path.name, code), said)
    for name, clause in WRONG.items():
        code, said, found = judge(program, HERE / "wrong" / (name + ".py"), [clause])
        expect(code == 1 and found.get(clause) == "fail", "%s is not caught by %s" % (name, clause), said)

    with tempfile.TemporaryDirectory() as folder:
        raises = pathlib.Path(folder, "raises.py")
        raises.write_text("import sys\n\n\ndef begin():\n    raise KeyError('begin')\n\n\nbegin()\n")
        for manager, words in ((raises, "raise KeyError('begin')"), (pathlib.Path(folder, "absent.py"), "no such file"),
                               ("python:numba.cuda.cudadrv.driver:NoSuch", "has no class NoSuch")):
            code, said, _ = judge(program, manager, ["SEL-4"])
            expect(code == 2 and words in said, "%s exits %d, without the words: %s" % (manager, code, words), said)
    code, said, _ = judge(program, "python:numba.cuda.cudadrv.driver:NumbaCUDAMemoryManager", ["DEV-1"])
    expect(code == 0, "a class that a module names exits %d" % code, said)
    if not bad:
        print("right classes pass, wrong ones fail, and words say what cannot be judged")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
