"""A manager of the shape of RMM's: each pointer's buffer is recorded by its address, and ends with the record."""
import ctypes

from numba import cuda
from numba.cuda.cudadrv import driver as drv

import small_rmm

# Numba wants NVIDIA's pointers where it calls the driver by NVIDIA's bindings, and those of ctypes elsewhere.
device_pointer = drv.binding.CUdeviceptr if getattr(drv, "binding", None) else ctypes.c_uint64


def finalizer_of(address, allocations):
    def finalizer():
        if allocations:  # a reset has emptied it, and so freed the buffer
            del allocations[address]
    return finalizer


class RMMLikeManager(cuda.HostOnlyCUDAMemoryManager):
    def initialize(self):
        pass

    def memalloc(self, size):
        buffer = small_rmm.DeviceBuffer(size)
        self.allocations[buffer.ptr] = buffer
        return cuda.MemoryPointer(self.context, device_pointer(buffer.ptr), size, finalizer=finalizer_of(buffer.ptr, self.allocations))

    def get_ipc_handle(self, memory):
        begin, _ = drv.device_extents(memory)
        if getattr(drv, "binding", None):
            handle, address = drv.driver.cuIpcGetMemHandle(begin), int(memory.handle)
        else:
            handle, address = drv.drvapi.cu_ipc_mem_handle(), memory.handle.value
            drv.driver.cuIpcGetMemHandle(ctypes.byref(handle), begin)
        return cuda.IpcHandle(memory, handle, memory.size, self.context.device.get_device_identity(),
                              offset=address - int(begin))

    def get_memory_info(self):
        return cuda.MemoryInfo(*small_rmm.memory_info())

    @property
    def interface_version(self):
        return 1


_numba_memory_manager = RMMLikeManager
