"""tools/measure-libraries without a GPU: each figure is told apart from the others, and it says where it cannot measure."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parent.parent.parent / "tools/measure-libraries"

# A PyTorch on a card of 1,000 MiB. Its first kernel takes 90 MiB, a thread's first product, convolution, decomposition and transform
# 60, 10, 40 and 6, the first of these 4 besides, and the thirtieth product 2.
TORCH = """
import threading, types
MIB = 1 << 20
used, products, lock, kept = 500 * MIB, 0, threading.Lock(), threading.local()
seen = set()
def take(mib):
    global used
    with lock:
        used += mib * MIB
def once(what, mib):
    with lock:
        is_new = what not in seen
        seen.add(what)
    if is_new: take(mib)
def handle(what, mib):
    if not hasattr(kept, what):
        setattr(kept, what, True)
        once("handle", 4)
        take(mib)
class Tensor:
    def __matmul__(self, other): return mm(self, other)
    def t(self): return self
def mm(*_):
    global products
    handle("product", 60)
    products += 1
    if products >= 30: once("products", 2)
def zeros(*size, device):
    once("kernel", 90)
    return Tensor()
eye = zeros
cuda = types.SimpleNamespace(init=lambda: None, synchronize=lambda: None, mem_get_info=lambda: (1000 * MIB - used, 1000 * MIB),
                             memory_reserved=lambda: 0, get_device_name=lambda: "Some Card")
version = types.SimpleNamespace(cuda="13")
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(version=lambda: 9))
__version__ = "2.11"
nn = types.SimpleNamespace(functional=types.SimpleNamespace(linear=mm, conv2d=lambda *_: handle("convolution", 10)))
linalg = types.SimpleNamespace(cholesky=lambda _: handle("decomposition", 40))
fft = types.SimpleNamespace(fft=lambda _: handle("transform", 6))
import ctypes
class Driver:
    made = 0
    def cuStreamCreate(self, *_):
        Driver.made += 1
        if Driver.made % 4 == 0: take(2)
        return 0
ctypes.CDLL = lambda name: Driver()
"""


class MeasureLibraries(unittest.TestCase):
    def run_tool(self, torch):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "torch.py").write_text(torch)
            return subprocess.run([sys.executable, str(TOOL)], text=True, capture_output=True, env={**os.environ, "PYTHONPATH": folder})

    def test_each_figure_is_told_apart(self):
        done = self.run_tool(TORCH)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        row, streams = done.stdout.splitlines()
        self.assertEqual(row, ".blas_handle = 60_MiB, .dnn_handle = 10_MiB, .solver_handle = 40_MiB, .fft_first = 6_MiB, .first_handle = 4_MiB, "
                              '.pytorch_kernels = 90_MiB, .blas_kernels = 2_MiB, .source = "Some Card: CUDA 13, cuDNN 9 and PyTorch 2.11"')
        self.assertTrue(streams.startswith("streams: 1 take 0 MiB, 2 take 0 MiB, 8 take 4 MiB, 16 take 8 MiB"), streams)

    def test_without_a_gpu(self):
        done = self.run_tool("def zeros(*_, **__): raise RuntimeError('no GPU here')")
        self.assertEqual(done.returncode, 3)
        self.assertIn("expected PyTorch and a GPU: RuntimeError: no GPU here", done.stderr)

    def test_a_process_that_fails(self):
        done = self.run_tool(TORCH.replace('cholesky=lambda _: handle("decomposition", 40)', "cholesky=None"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("measure-libraries: solver: ", done.stderr)


if __name__ == "__main__":
    unittest.main()
