"""Numba's manager of host memory, with device memory from the driver that is recorded until it ends."""
import ctypes
import weakref

from numba import cuda
from numba.cuda.cudadrv import driver as drv


class DriverManager(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):
    def initialize(self):
        if self.deallocations.memory_capacity == 0:
            self.deallocations.memory_capacity = self.get_memory_info().total

    def memalloc(self, size):
        pointer = drv.drvapi.cu_device_ptr()
        self._attempt_allocation(lambda: drv.driver.cuMemAlloc(ctypes.byref(pointer), size))
        address, allocations, deallocations = pointer.value, self.allocations, self.deallocations

        def finalizer():
            if allocations:
                del allocations[address]
            deallocations.add_item(drv.driver.cuMemFree, pointer, size)

        memory = drv.AutoFreePointer(weakref.proxy(self.context), pointer, size, finalizer=finalizer)
        self.allocations[address] = memory
        return memory.own()

    def get_memory_info(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        drv.driver.cuMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        return cuda.MemoryInfo(free=free.value, total=total.value)

    @property
    def interface_version(self):
        return 1
