"""A manager of the shape of the prototype's for CuPy: device memory from a pool, host memory from Numba."""
import contextlib
import ctypes

from numba import cuda
from numba.cuda.cudadrv import driver as drv

import small_cupy

# Numba wants NVIDIA's pointers where it calls the driver by NVIDIA's bindings, and those of ctypes elsewhere.
device_pointer = drv.binding.CUdeviceptr if getattr(drv, "binding", None) else ctypes.c_uint64


def finalizer_of(address, chunks):
    def finalizer():
        chunks.pop(address, None)  # the chunk's end gives the memory back to the pool
    return finalizer


class CuPyLikeManager(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.chunks, self.pool = {}, None

    def initialize(self):
        super().initialize()
        if self.pool is None:
            self.pool = small_cupy.MemoryPool()

    def memalloc(self, size):
        chunk = self.pool.malloc(size)
        self.chunks[chunk.ptr] = chunk
        return cuda.MemoryPointer(self.context, device_pointer(chunk.ptr), size,
                                  finalizer=finalizer_of(chunk.ptr, self.chunks))

    def get_memory_info(self):
        return cuda.MemoryInfo(free=self.pool.free_bytes(), total=self.pool.total_bytes())

    def reset(self):
        super().reset()
        self.chunks.clear()
        if self.pool is not None:
            self.pool.free_all_blocks()

    @contextlib.contextmanager
    def defer_cleanup(self):
        """Numba's own frees wait. Device memory goes back to the pool at once."""
        with super().defer_cleanup():
            yield

    @property
    def interface_version(self):
        return 1


_numba_memory_manager = CuPyLikeManager
