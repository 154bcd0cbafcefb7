#!/usr/bin/python3
"""NBEP 7 classes of Python's under `emmctl conformance`, over the Numba of this Python and without a GPU.

    test_classes.py --emmctl PROGRAM --package FOLDER --library FILE [--wrong first|all]

Exit 0: right classes pass, each wrong one fails by the clause of its rule, and what cannot be judged is said plainly.
With --wrong, only the wrong ones are judged: the first of each clause, or all.
77: there is no Numba here, or this Python has no shared library.
"""
import argparse
import ast
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# What every kind of memory needs; the whole suite takes longer than a test may.
CLAUSES = ["SEL-4", "DEV-1", "DEV-12", "INI-2", "DEV-11", "reset/late_ends", "memory_info/true", "IPC-*", "accounts/balance",
           "errors/passed_on", "errors/out_of_memory", "errors/initialize", "states/forks", "class/*", "BASE-5", "RST-4", "DFR-4",
           "INF-7", "PTR-14"]


def wrong_classes(of_each):
    """(file, class, the clause of its rule) of those under wrong/, at most `of_each` for a clause."""
    found = {}
    for path in sorted((HERE / "wrong").glob("*.py")):
        for line in ast.parse(path.read_text()).body:
            if isinstance(line, ast.Assign) and line.targets[0].id == "BREAKS":
                for name, clause in ast.literal_eval(line.value).items():
                    found.setdefault(clause, []).append((path, name, clause))
    return [each for same in found.values() for each in same[:of_each]]


def judge(program, manager, clauses=(), *options, **variables):
    with tempfile.TemporaryDirectory() as folder:
        verdicts = pathlib.Path(folder, "verdicts.json")
        command = [program, "conformance", "--manager", str(manager), "--json", str(verdicts), *options]
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
    parser.add_argument("--package", type=pathlib.Path, required=True, help="where Python finds emmctl")
    parser.add_argument("--library", type=pathlib.Path, required=True, help="libemm.so")
    parser.add_argument("--wrong", choices=("first", "all"))
    arguments = parser.parse_args()
    program = arguments.emmctl.resolve()
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

    if arguments.wrong:
        classes = wrong_classes(1 if arguments.wrong == "first" else 1000)
        with concurrent.futures.ThreadPoolExecutor(2) as both:
            done = both.map(lambda each: judge(program, "%s:%s" % each[:2], [each[2]], "--more"), classes)
            for (path, name, clause), (code, said, found) in zip(classes, done):
                expect(code == 1 and found.get(clause) == "fail", "%s is not caught by %s" % (name, clause), said)
                expect("  nbep 7 " in said, "of %s no sentence of NBEP 7 is told" % name, said)
        if not bad:
            print("%d wrong classes, each caught by the clause of its rule" % len(classes))
        return 1 if bad else 0

    for path in sorted((HERE / "right").glob("*.py")):
        code, said, found = judge(program, path, CLAUSES, PYTHONPATH=str(arguments.package.resolve()),
                                  EMM_LIBRARY=str(arguments.library.resolve()), PYTHONDONTWRITEBYTECODE="1")
        if "has no shared library" in said:
            print("skipped: " + said)
            return 77
        expect(code == 0 and list(found.values()).count("pass") >= 6, "%s is right, and exits %d" % (path.name, code), said)
    code, said, _ = judge(program, HERE / "wrong/over_exercise.py:FinalizerRaises", ["class/finalizer"], "--more")
    for words in ("over_exercise.py:%d in finalizer: raise RuntimeError(\"freed\")", "RuntimeError: freed", "Exception ignored in"):
        line = next(i for i, each in enumerate((HERE / "wrong/over_exercise.py").read_text().splitlines(), 1) if '"freed"' in each)
        words = words % line if "%d" in words else words
        expect(words in said, "a finalizer that raises is told without %r" % words, said)
    code, said, _ = judge(program, HERE / "wrong/over_exercise.py:InfoIsTuple", ["INF-7"], "--more")
    expect("return tuple(super().get_memory_info())" in said, "the lines that ran are not told", said)

    with tempfile.TemporaryDirectory() as folder:
        # A stand-in in the place of a real driver: what Numba itself calls is seen there, too.
        driver = pathlib.Path(folder, "libcuda.so.1")
        shutil.copy(next(each for each in (program.parent / "../standin/libcuda.so.1", program.parent / "../lib/emmctl/standin/libcuda.so.1")
                         if each.exists()), driver)
        code, said, found = judge(program, HERE / "right/exercise.py", ["PIN-10", "flags/*", "suite/too_large", "deferral/nests"], "--device",
                                  "cuda", LD_LIBRARY_PATH=folder)
        expect(code == 0 and list(found.values()).count("pass") >= 6, "on a driver, it exits %d" % code, said)
        shutil.copy(HERE / "right/exercise.py", folder)
        begins = pathlib.Path(folder, "begins.py")
        begins.write_text("import threading\nprint('imported')\n%sfrom exercise import ExerciseManager as _numba_memory_manager\n")
        thread = "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        text = begins.read_text()
        for words in ("", thread):
            begins.write_text(text % words)
            code, said, found = judge(program, begins, ["SEL-4", "DEV-1", "PTR-14"])
            expect(code == 0 and list(found.values()) == ["pass"] * 3 and "imported" not in said,
                   "a class whose import does %r exits %d" % (words, code), said)
        raises = pathlib.Path(folder, "raises.py")
        takes = pathlib.Path(folder, "takes.py")
        takes.write_text("from exercise import ExerciseManager\n\n\nclass Takes(ExerciseManager):\n    def __init__(self, ctx):\n"
                         "        super().__init__(context=ctx)\n")
        raises.write_text("import sys\n\n\ndef begin():\n    raise KeyError('begin')\n\n\nbegin()\n")
        for manager, words in ((raises, "raise KeyError('begin')"), (pathlib.Path(folder, "absent.py"), "no such file"),
                               ("python:numba.cuda.cudadrv.driver:NoSuch", "has no class NoSuch, but BaseCUDAMemoryManager"),
                               (takes, "Numba makes it as Takes(context=context): TypeError")):
            code, said, _ = judge(program, manager, ["SEL-4"])
            expect(code == 2 and words in said, "%s exits %d, without the words: %s" % (manager, code, words), said)
    code, said, _ = judge(program, "python:numba.cuda.cudadrv.driver:NumbaCUDAMemoryManager", ["DEV-1"])
    expect(code == 0, "a class that a module names exits %d" % code, said)
    if not bad:
        print("right classes pass, wrong ones fail, and words say what cannot be judged")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
