"""Numba's manager of host memory, with device memory from the driver that is recorded until it ends."""
import ctypes
import weakref

from numba import cuda
from numba.cuda.cudadrv import driver as drv

# Where Numba calls the driver by NVIDIA's bindings, its functions return what they write elsewhere.
BINDING = getattr(drv, "binding", None)


def from_driver(size):
    if BINDING:
        return drv.driver.cuMemAlloc(size)
    pointer = drv.drvapi.cu_device_ptr()
    drv.driver.cuMemAlloc(ctypes.byref(pointer), size)
    return pointer


class DriverManager(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):
    def initialize(self):
        if self.deallocations.memory_capacity == 0:
            self.deallocations.memory_capacity = self.get_memory_info().total

    def memalloc(self, size):
        made = []  # older Numbas lose what an attempt returns
        self._attempt_allocation(lambda: made.append(from_driver(size)))
        pointer = made[0]
        address = int(pointer) if BINDING else pointer.value
        allocations, deallocations = self.allocations, self.deallocations

        def finalizer():
            if allocations:
                del allocations[address]
            deallocations.add_item(drv.driver.cuMemFree, pointer, size)

        memory = drv.AutoFreePointer(weakref.proxy(self.context), pointer, size, finalizer=finalizer)
        self.allocations[address] = memory
        return memory.own()

    def get_memory_info(self):
        if BINDING:
            free, total = drv.driver.cuMemGetInfo()
            return cuda.MemoryInfo(free=free, total=total)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        drv.driver.cuMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        return cuda.MemoryInfo(free=free.value, total=total.value)

    @property
    def interface_version(self):
        return 1
