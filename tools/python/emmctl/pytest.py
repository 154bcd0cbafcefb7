"""Two fixtures for pytest: the clauses of `emmctl conformance` as tests of a package, and memory as a unit test. Neither needs a GPU.

`emmctl_clause` runs the clauses of `emmctl conformance` as tests of a package, one test a clause.

    # conftest.py
    pytest_plugins = ["emmctl.pytest"]

    # test_contract.py
    def test_keeps(emmctl_clause):
        emmctl_clause()

    # pyproject.toml: [tool.pytest.ini_options], or `pytest --emmctl-manager mine.py`
    emmctl_manager = "mine.py"

The program is `emmctl` of the path, or what EMMCTL names. It is run once, with the clauses of the tests that are chosen. A clause that
does not apply is skipped, and one that cannot be judged to its end fails.

`emmctl_gpu` makes memory a unit test, on a machine without a GPU:

    pytest_plugins = ["emmctl.pytest"]                  # conftest.py

    def test_training_fits(emmctl_gpu):
        assert emmctl_gpu(train, 3, gpu="rtx4090")      # calls train(3) in a process of its own

    def test_batch(emmctl_gpu):
        answer = emmctl_gpu(train, 1, capacity="24GiB")
        assert answer.fits and answer.peak_bytes < 20 * 2**30, answer

What is asserted is an emmctl.simulated.Answer; a test that fails shows what it says. An error of the function's that has nothing
to do with memory is the test's.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from emmctl import simulated


def pytest_addoption(parser):
    words = "What emmctl judges: FILE.py, python:PACKAGE.MODULE[:CLASS], or a shared object"
    parser.addoption("--emmctl-manager", default=None, help=words)
    parser.addini("emmctl_manager", words, default="")


def program():
    found = os.environ.get("EMMCTL") or shutil.which("emmctl")
    if not found:
        raise pytest.UsageError("emmctl is not on the path: expected it there, or EMMCTL to name it")
    return found


def manager_of(config):
    given = config.getoption("--emmctl-manager") or config.getini("emmctl_manager")
    if not given:
        raise pytest.UsageError("no manager is named: expected --emmctl-manager, or emmctl_manager in the settings of pytest")
    return given


def is_class(manager):
    return manager.startswith("python:") or manager.split(".py", 1)[-1][:1] in ("", ":") and ".py" in manager


def pytest_generate_tests(metafunc):
    if "emmctl_clause" not in metafunc.fixturenames:
        return
    listed = subprocess.run([program(), "list", "clauses", "--json", "-"], stdout=subprocess.PIPE, check=True, universal_newlines=True)
    others = "" if is_class(manager_of(metafunc.config)) else "classes of Python's"
    clauses = [row["clause"] for row in json.loads(listed.stdout)["rows"] if row["asked_of"] not in ("nobody", others)]
    metafunc.parametrize("emmctl_clause", clauses, indirect=True, ids=clauses)


def judged(config, clauses):
    """The verdicts of the clauses, by id."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "verdicts.json")
        command = [program(), "conformance", "--manager", manager_of(config), "--json", path]
        for clause in clauses:
            command += ["--clause", clause]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
                              cwd=str(config.rootdir), env=dict({"EMM_PYTHON": sys.executable}, **os.environ))
        if not os.path.exists(path):
            pytest.exit("emmctl conformance: %s" % done.stdout.strip(), returncode=done.returncode or 1)
        with open(path) as file:
            return {each["id"]: each for each in json.load(file)["clauses"]}


class Clause:
    """One clause of the contract. Calling it asserts that the manager keeps it."""

    def __init__(self, identity, verdict):
        self.id, self.verdict = identity, verdict

    def __call__(self):
        verdict = self.verdict
        if verdict["verdict"] == "pass":
            return
        if verdict["verdict"] == "not applicable":
            pytest.skip(verdict.get("why", ""))
        if verdict["verdict"] == "inconclusive":
            pytest.fail("%s could not be judged: %s" % (self.id, verdict.get("why", "")), pytrace=False)
        lines = ["%s: %s" % (self.id, verdict["rule"])]
        for head, member in (("done", "done"), ("seen", "seen"), ("expected", "expected"), ("python", "python"), ("then", "then"),
                             ("nbep 7", "nbep7"), ("calls", "calls")):
            rows = verdict.get(member, "").splitlines()
            lines += ["  %-10s%s" % (head if i == 0 else "", row) for i, row in enumerate(rows)]
        pytest.fail("\n".join(lines), pytrace=False)


@pytest.fixture
def emmctl_clause(request):
    """A clause of the contract, with its verdict. The test that takes it is run for each clause."""
    verdicts = getattr(request.config, "_emmctl_verdicts", None)
    if verdicts is None:
        chosen = [item.callspec.params["emmctl_clause"] for item in request.session.items
                  if "emmctl_clause" in getattr(getattr(item, "callspec", None), "params", {})]
        verdicts = request.config._emmctl_verdicts = judged(request.config, chosen)
    return Clause(request.param, verdicts[request.param])


@pytest.fixture
def emmctl_gpu():
    """Calls a function on a simulated device, in a process of its own: emmctl.simulated.run."""
    def run(function, *arguments, **options):
        return simulated.run(function, *arguments, check=True, **options)
    return run
