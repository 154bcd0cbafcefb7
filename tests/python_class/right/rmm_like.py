"""A manager of the shape of RMM's: each pointer's buffer is recorded by its address, and ends with the record."""
import ctypes

from numba import cuda
from numba.cuda.cudadrv import driver as drv

import small_rmm


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
        pointer = ctypes.c_uint64(buffer.ptr)
        self.allocations[pointer.value] = buffer
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer_of(pointer.value, self.allocations))

    def get_ipc_handle(self, memory):
        begin, _ = drv.device_extents(memory)
        handle = drv.drvapi.cu_ipc_mem_handle()
        drv.driver.cuIpcGetMemHandle(ctypes.byref(handle), begin)
        return cuda.IpcHandle(memory, handle, memory.size, self.context.device.get_device_identity(),
                              offset=memory.handle.value - begin)

    def get_memory_info(self):
        return cuda.MemoryInfo(*small_rmm.memory_info())

    @property
    def interface_version(self):
        return 1


_numba_memory_manager = RMMLikeManager
