#!/usr/bin/python3
"""What the author of an NBEP 7 class does, in an empty folder: `plugin new --language python`, its verdict, a replay, and pytest.

    test_project.py --emmctl PROGRAM --package FOLDER

Exit 0: the new project's class keeps the contract, and each clause is a test of it. 77: there is no Numba here, or this Python has no
shared library.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

WRONG = pathlib.Path(__file__).resolve().parent / "wrong"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--emmctl", type=pathlib.Path, required=True)
    parser.add_argument("--package", type=pathlib.Path, required=True, help="where Python finds emmctl")
    arguments = parser.parse_args()
    program = str(arguments.emmctl.resolve())
    try:
        import numba.cuda  # noqa: F401
    except ImportError as error:
        print("skipped: no Numba for %s: %s" % (sys.executable, error))
        return 77
    bad = []

    with tempfile.TemporaryDirectory() as folder:
        def run(*words, **where):
            variables = dict(os.environ, EMM_PYTHON=sys.executable, EMMCTL=program, PYTHONDONTWRITEBYTECODE="1")
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(arguments.package.resolve()), os.environ.get("PYTHONPATH")]))
            done = subprocess.run(words, cwd=where.get("cwd", project), env=variables, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            return done.returncode, done.stdout

        def expect(truth, what, said):
            if not truth:
                bad.append(what)
                print("%s:\n%s" % (what, said))

        project = pathlib.Path(folder, "my-pool")
        code, said = run(program, "plugin", "new", "my-pool", "--language", "python", cwd=folder)
        expect(code == 0 and "next: emmctl conformance --manager my-pool/my_pool.py" in said, "plugin new exits %d" % code, said)
        for path in project.rglob("*"):
            left = [word for word in ("NAME", "MODULE", "CLASS") if path.is_file() and word in path.read_text().split()]
            expect(not left, "%s has %s" % (path.name, left), "")
        clauses = [word for each in ("class/*", "BASE-5", "RST-4", "PTR-14", "errors/*", "accounts/host_heap", "DEV-1", "IPC-*")
                   for word in ("--clause", each)]
        code, said = run(program, "conformance", "--manager", "my_pool.py", *clauses)
        if "has no shared library" in said:
            print("skipped: " + said)
            return 77
        expect(code == 0 and " 0 failed" in said, "its verdict exits %d" % code, said)
        code, said = run(program, "replay", "first.json", "--manager", "my_pool.py", "--device", "sim", "--verify")
        expect(code == 0, "its replay exits %d" % code, said)

        # What a program does under the class is recorded.
        pathlib.Path(project, "suite.py").write_text(
            "from numba import cuda\nfor size in 1000, 2000:\n    assert cuda.device_array(size, dtype='u1')[10:20].size == 10\n"
            "print(type(cuda.current_context().memory_manager).__name__)\n")
        code, said = run(program, "record", "--device", "sim", "-o", "suite.jsonl", "--", "env", "NUMBA_CUDA_MEMORY_MANAGER=my_pool",
                         sys.executable, "suite.py")
        expect(code == 0 and "MyPoolManager" in said, "record exits %d" % code, said)
        recorded = (project / "suite.jsonl").read_text()
        expect(recorded.count('"op":"memalloc"') == 2 and '"size":2000' in recorded, "its memory is not recorded", recorded)

        # A class that is there already gets the workflows, and nothing is written over.
        own = pathlib.Path(folder, "own")
        own.mkdir()
        (own / "my_plugin.py").write_text((project / "my_pool.py").read_text())
        code, said = run(program, "plugin", "new", "my_plugin.py", cwd=own)
        workflow = own / ".github/workflows/emmctl.yml"
        expect(code == 0 and "next: emmctl conformance --manager my_plugin.py" in said, "plugin new of a file exits %d" % code, said)
        for path in (workflow, own / ".gitlab-ci.yml"):
            expect("conformance --manager my_plugin.py " in path.read_text(), "%s judges another class" % path.name, path.read_text())
        workflow.write_text("mine")
        for name, words in (("my_plugin.py", "exists already"), ("absent.py", "expected a file of this folder")):
            code, said = run(program, "plugin", "new", name, cwd=own)
            expect(code == 2 and words in said, "plugin new %s exits %d" % (name, code), said)
        expect(workflow.read_text() == "mine", "a workflow was written over", "")

        code, said = run(sys.executable, "-m", "pytest", "--version")
        if code != 0:
            print("without pytest its tests are not run")
            return 1 if bad else 0
        code, said = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "class/end or class/guard or DEV-1")
        expect(code == 0 and "passed" in said, "its tests exit %d" % code, said)
        wrong = "%s:FinalizerRaises" % (WRONG / "over_exercise.py")
        code, said = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--emmctl-manager", wrong,
                         "-k", "class/finalizer and not thread and not exit or class/guard", "--junitxml", "junit.xml")
        expect(code == 1 and "1 failed, 1 passed" in said and "RuntimeError: freed" in said, "a wrong class exits %d" % code, said)
        expect('failures="1"' in (project / "junit.xml").read_text(), "JUnit has no failure", said)
    if not bad:
        print("a new project keeps the contract, and each clause is a test of it")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
