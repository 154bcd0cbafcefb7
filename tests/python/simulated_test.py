"""A function runs on a simulated device in a process of its own: does it fit?"""
import ctypes
import importlib
import os
import sys
import types
import unittest

from emmctl import simulated

if "EMM_STANDIN_PROGRAM" not in os.environ:  # not in the process without a GPU, which imports this, too
    os.environ["EMM_PROGRAM"] = os.environ["EMMCTL"]
    for variable in ("LD_LIBRARY_PATH", "EMM_STANDIN_DEVICE"):  # those of the stand-in itself
        os.environ.pop(variable, None)
MIB = 1 << 20
STEP = 2  # a value that functions name


class OutOfMemory(RuntimeError):
    pass


def take(mib):
    """As a framework asks: its own error where there is no memory."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    cuda.cuInit(0)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cuda.cuCtxSetCurrent(context)
    if cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(mib * MIB)) != 0:
        raise OutOfMemory("%d MiB" % mib)
    return mib * STEP


def fails():
    take(2)
    raise ValueError("of its own")


class Simulated(unittest.TestCase):
    def test_it_fits_and_the_function_has_its_value(self):
        answer = simulated.run(take, 40, capacity="64MiB")
        self.assertTrue(answer, answer)
        self.assertEqual((answer.fits, answer.peak_bytes, answer.total_bytes, answer.value), (True, 40 * MIB, 64 * MIB, 80))
        self.assertIn("it fits: at most 40.00 MiB", str(answer))
        self.assertEqual(answer.places, [])

    def test_it_does_not_fit_and_the_error_is_there(self):
        answer = simulated.run(take, 80, capacity="64MiB", check=True)
        self.assertFalse(answer)
        self.assertIs(answer.fits, False)
        self.assertIn("OutOfMemory: 80 MiB", answer.error)
        self.assertIn("it does not fit as it is", str(answer))
        self.assertEqual(answer.report["devices"][0]["first_refused_bytes"], 80 * MIB)

    def test_a_card_by_its_name(self):
        self.assertTrue(simulated.run(take, 14000, gpu="t4"))
        self.assertFalse(simulated.run(take, 16000, gpu="t4"))
        with self.assertRaisesRegex(simulated.Failed, "expected one of h200"):
            simulated.run(take, 1, gpu="abacus")

    def test_an_error_of_its_own_is_raised_where_it_is_checked(self):
        self.assertIn("ValueError: of its own", simulated.run(fails).error)
        with self.assertRaisesRegex(simulated.Failed, "ValueError: of its own"):
            simulated.run(fails, check=True)

    def test_a_function_of_a_notebook_takes_what_it_names(self):
        """Of a notebook there is no file to import; here a local function stands for it."""
        twice = 2

        def cell(mib):
            return take(mib * twice) + os.getpid() * 0 + helper(1)

        def helper(value):
            return value + STEP
        answer = simulated.run(cell, 10, capacity="64MiB")
        self.assertTrue(answer, answer)
        self.assertEqual((answer.peak_bytes, answer.value), (20 * MIB, 43))

    def test_what_cannot_be_taken_along_is_named(self):
        lock = __import__("threading").Lock()

        def cell():
            return lock
        with self.assertRaisesRegex(simulated.Failed, "cell names lock, which cannot be pickled"):
            simulated.run(cell)

    def test_a_function_that_uses_no_device_tells_nothing(self):
        answer = simulated.run(abs_of, -3)
        self.assertEqual((answer.value, bool(answer), answer.fits), (3, False, None))

    def test_the_fixture(self):
        sys.modules["pytest"] = types.SimpleNamespace(fixture=lambda function: function)
        try:
            emmctl_gpu = importlib.import_module("emmctl.pytest").emmctl_gpu()
        finally:
            del sys.modules["pytest"]
        self.assertTrue(emmctl_gpu(take, 2, gpu="l4"))
        self.assertFalse(emmctl_gpu(take, 80, capacity="64MiB"))
        with self.assertRaises(simulated.Failed):
            emmctl_gpu(fails)


def abs_of(value):
    return abs(value)


if __name__ == "__main__":
    unittest.main()
