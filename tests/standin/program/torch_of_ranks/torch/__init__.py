"""As much of PyTorch as a few ranks need that find one another and exchange memory of the device: the way its own modules lead one
another, where they wait for others, and the keys that they leave. Its tensors are bytes of the device."""
import ctypes
import os
import types

from torch.utils import _python_dispatch  # noqa: F401


class Tensor:
    """int32 on the device."""

    def __torch_dispatch__(self):
        pass

    def __init__(self, values=None, count=None):
        self.count = count or len(values)
        self.at = ctypes.c_uint64()
        cuda.memory("cuMemAlloc_v2", ctypes.byref(self.at), ctypes.c_size_t(4 * self.count))
        if values is not None:
            cuda.memory("cuMemcpyHtoD_v2", self.at, (ctypes.c_int32 * self.count)(*values), ctypes.c_size_t(4 * self.count))

    def tolist(self):
        found = (ctypes.c_int32 * self.count)()
        cuda.synchronize()
        cuda.memory("cuMemcpyDtoH_v2", found, self.at, ctypes.c_size_t(4 * self.count))
        return list(found)


class Cuda:
    def __init__(self):
        self._driver = self._context = None

    def memory(self, function, *arguments):
        if self._driver is None:
            self._driver, self._context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
            self._driver.cuInit(0)
            self._driver.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), int(os.environ["LOCAL_RANK"]))
            self._driver.cuCtxSetCurrent(self._context)
        code = getattr(self._driver, function)(*arguments)
        if code:
            raise RuntimeError("%s: %d" % (function, code))

    def synchronize(self):
        self.memory("cuCtxSynchronize")

    def is_initialized(self):
        return False


class Generator:
    def manual_seed(self, _):
        return self

    def get_state(self):
        return None


cuda = Cuda()
autograd = types.SimpleNamespace(Variable=types.SimpleNamespace(_execution_engine=None), function=types.SimpleNamespace(BackwardCFunction=None))
version = types.SimpleNamespace(cuda="13.0")
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(enabled=True), cuda=types.SimpleNamespace())
