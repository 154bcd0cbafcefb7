"""How Numba is told of a manager, and what is said where that cannot be. Debian's Numba on the stand-in for libcuda.so.1."""
import os
import subprocess
import sys
import unittest


def python(program, **variables):
    """What a program says, and its exit code."""
    done = subprocess.run([sys.executable, "-c", program], env=dict(os.environ, **variables), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True)
    return done.returncode, done.stdout


LATE = """
import emmctl.numba
from numba import cuda
%s
cuda.device_array(100)
emmctl.numba.use("pool")
cuda.close()
cuda.device_array(100)
print(type(cuda.current_context().memory_manager).__name__)
"""


class NumbaIsTold(unittest.TestCase):
    def test_too_late_with_a_warning(self):
        code, said = python(LATE % "")
        self.assertEqual(code, 0, said)
        self.assertIn("RuntimeWarning: Numba has a context already, which keeps its memory manager until cuda.close()", said)
        self.assertEqual(said.splitlines()[-1], "EmmctlManager")

    def test_again_without_one(self):
        self.assertEqual(python(LATE % "emmctl.numba.use('pool')"), (0, "EmmctlManager\n"))

    def test_that_its_simulator_takes_no_managers(self):
        code, said = python("import emmctl.numba", NUMBA_ENABLE_CUDASIM="1")
        self.assertNotEqual(code, 0)
        self.assertIn("ImportError: this Numba takes no memory managers", said)

    def test_nothing_that_is_no_name(self):
        code, said = python("import emmctl; emmctl.use(8)")
        self.assertNotEqual(code, 0)
        self.assertIn("TypeError: a manager is named in words", said)

    def test_by_its_own_variable_of_what_is_wrong(self):
        for manager, words in (("nosuch", "option 'name' is 'nosuch': expected one of default, "),
                               ("pool:size=1", "manager pool: unknown option 'size'"),
                               ("pool:max=x", "option 'max' is 'x': expected a count of bytes")):
            code, said = python("from numba import cuda; cuda.device_array(1)", NUMBA_CUDA_MEMORY_MANAGER="emmctl.numba",
                                EMM_MEMORY_MANAGER=manager)
            self.assertNotEqual(code, 0)
            self.assertIn("CudaAPIError: [1] ", said.splitlines()[-1])
            self.assertIn(words, said.splitlines()[-1])


if __name__ == "__main__":
    try:
        import numba.cuda  # noqa: F401
    except ImportError as error:
        print("skipped: no Numba for %s: %s" % (sys.executable, error))
        sys.exit(77)
    unittest.main()
