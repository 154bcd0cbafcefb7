"""What tools/numba-suite says of tests that passed and failed. No test of Numba's runs: pytest is stood in for."""
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
