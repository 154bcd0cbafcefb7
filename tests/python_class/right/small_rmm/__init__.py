"""As much of RMM as its Numba manager needs: a buffer of device memory that ends with its object."""
import ctypes

cudart = ctypes.CDLL("libcudart.so")
STATUS_OF_OUT_OF_MEMORY = 2


class DeviceBuffer:
    """Device memory of `size` bytes. Out of memory is a MemoryError, as std::bad_alloc becomes one in RMM."""

    def __init__(self, size):
        pointer = ctypes.c_void_p()
        code = cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size))
        if code == STATUS_OF_OUT_OF_MEMORY:
            raise MemoryError("std::bad_alloc: out_of_memory: CUDA error at cudaMalloc")
        if code != 0:
            raise RuntimeError("CUDA error %d at cudaMalloc" % code)
        self.ptr, self.size = pointer.value or 0, size

    def __del__(self):
        if getattr(self, "ptr", 0):
            cudart.cudaFree(ctypes.c_void_p(self.ptr))


def memory_info():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    code = cudart.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    if code != 0:
        raise RuntimeError("CUDA error %d at cudaMemGetInfo" % code)
    return free.value, total.value
