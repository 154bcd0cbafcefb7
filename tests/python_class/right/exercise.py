"""A plugin on cudaMalloc and cudaFree: device memory is its own, host memory is Numba's."""
import ctypes

from numba import cuda
from numba.cuda.cudadrv import driver as drv

# Numba wants NVIDIA's pointers where it calls the driver by NVIDIA's bindings, and those of ctypes elsewhere.
device_pointer = drv.binding.CUdeviceptr if getattr(drv, "binding", None) else ctypes.c_size_t
cudart = ctypes.CDLL("libcudart.so")


def take(size):
    pointer = ctypes.c_size_t()
    code = cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size))
    if code != 0:
        raise RuntimeError("cudaMalloc answered %d" % code)
    return pointer


def finalizer_of(address):
    def finalizer():
        cudart.cudaFree(ctypes.c_size_t(address))
    return finalizer


class ExerciseManager(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):
    def memalloc(self, size):
        address = take(size).value
        return cuda.MemoryPointer(self.context, device_pointer(address), size, finalizer=finalizer_of(address))

    def initialize(self):
        pass

    def get_memory_info(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        code = cudart.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        if code != 0:
            raise RuntimeError("cudaMemGetInfo answered %d" % code)
        return cuda.MemoryInfo(free=free.value, total=total.value)

    @property
    def interface_version(self):
        return 1


_numba_memory_manager = ExerciseManager
