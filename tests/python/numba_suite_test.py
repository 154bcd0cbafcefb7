"""What tools/numba-suite says of tests that passed and failed. No test of Numba's runs: pytest is stood in for."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SUITE = pathlib.Path(__file__).resolve().parent.parent.parent / "tools" / "numba-suite"


def suite(managers, **variables):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, str(SUITE), "--managers", managers, "--workers", "1", "--out", folder],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
                              env=dict(os.environ, **variables))
        return done.returncode, done.stdout.replace(folder, "FOLDER")


class NumbaSuite(unittest.TestCase):
    def test_names_what_passes_on_the_built_in_manager_alone_and_what_was_run_again(self):
        code, said = suite("default,pool,cudart")
        self.assertEqual(said.splitlines(), [
            "builtin                          4 passed    1 failed    0 skipped  0 run again",
            "default                          3 passed    1 failed    1 skipped  0 run again",
            "pool                             3 passed    1 failed    1 skipped  1 run again",
            "  run again: cudapy/test_ipc.py::TestIpc::test_is_late: passed",
            "cudart                           2 passed    2 failed    1 skipped  0 run again",
            "  not passed: cudadrv/test_b.py::TestB::test_of_memory",
            "    as told",
            "logs: FOLDER"])
        self.assertEqual(code, 1)

    def test_is_fine_where_the_same_tests_pass(self):
        self.assertEqual(suite("default,pool")[0], 0)

    def test_holds_a_trace_against_its_replay_call_by_call(self):
        loader = importlib.machinery.SourceFileLoader("numba_suite", str(SUITE))
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader("numba_suite", loader))
        loader.exec_module(module)
        requests = [{"op": "memalloc", "id": 1, "size": 8}, {"op": "free", "id": 1}, {"op": "reset"}]
        flush = {"op": "flush", "layer": "backing", "count": 1, "bytes": 8}
        failed = {"op": "memalloc", "id": 2, "size": 8, "result": {"outcome": "oom", "code": 2}}
        traces = {"a_same": requests + [flush], "b_bytes": requests + [dict(flush, bytes=9)], "c_none": requests,
                  "d_failed": [failed], "e_empty": []}
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder) / "traces"
            place.mkdir()
            for name, operations in traces.items():
                rows = [{"format": "emmctl-trace", "version": "1.0"}] + operations + [{"op": "end"}]
                (place / (name + ".jsonl")).write_text("".join(json.dumps(row) + "\n" for row in rows))
            count, empty, wrong = module.replay(place)
        self.assertEqual((count, empty), (5, 1))
        self.assertEqual([words.split(":")[0] for words in wrong], ["b_bytes.jsonl", "c_none.jsonl", "d_failed.jsonl"])

    def test_says_why_no_test_was_run(self):
        code, said = suite("pool", EMM_TEST_PYTEST_ENDS="no pytest here")
        self.assertEqual((code, said), (3, "builtin: no test passed; see FOLDER/builtin/pytest.log\nno pytest here\n\n"))


if __name__ == "__main__":
    try:
        import numba.cuda.tests  # noqa: F401
    except ImportError as error:
        print("skipped: no tests of Numba for %s: %s" % (sys.executable, error))
        sys.exit(77)
    unittest.main()
