"""pytest: what numba-cuda's testing/conftest.py gives its tests, and a line of JSON for what became of each.

NUMBA_SUITE_OUTCOMES names the file. In a run with xdist the workers' reports come to the one process that writes.
"""
import json
import os
import sys

import pytest


def pytest_addoption(parser):
    parser.addoption("--dump-failed-filechecks", action="store_true", help="of numba-cuda's own conftest")


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    if request.cls is not None:
        request.cls._dump_failed_filechecks = request.config.getoption("dump_failed_filechecks")


def _write(**row):
    with open(os.environ["NUMBA_SUITE_OUTCOMES"], "a") as file:
        file.write(json.dumps(row) + "\n")


def pytest_runtest_logreport(report):
    if "PYTEST_XDIST_WORKER" in os.environ or (report.when != "call" and report.passed):
        return
    outcome = "xfailed" if report.skipped and hasattr(report, "wasxfail") else report.outcome
    words = ""
    if report.failed:
        words = str(getattr(getattr(report.longrepr, "reprcrash", None), "message", report.longrepr))[:2000]
    elif report.skipped and isinstance(report.longrepr, tuple):
        words = str(report.longrepr[2])[:200]
    _write(test=report.nodeid, outcome=outcome, when=report.when, words=words)


def pytest_sessionfinish():
    record = sys.modules.get("emmctl.record")
    if record is not None:  # a worker of xdist ends without atexit
        record.stop()


def pytest_collectreport(report):
    if "PYTEST_XDIST_WORKER" not in os.environ and report.failed:
        _write(test=report.nodeid, outcome="error", when="collect", words=str(report.longrepr)[-500:])
