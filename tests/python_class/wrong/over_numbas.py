"""Numba's own classes subclassed, made wrong. BREAKS names for each the clause of its rule."""
import contextlib
import ctypes
import pathlib
import sys

from numba import cuda
from numba.cuda.cudadrv import driver as drv

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "right"))
from host_only import DriverManager  # noqa: E402


class InitializeWithoutBase(drv.NumbaCUDAMemoryManager):
    def initialize(self):
        self.is_ready = True


class GuardYieldsTwice(drv.NumbaCUDAMemoryManager):
    @contextlib.contextmanager
    def defer_cleanup(self):
        with super().defer_cleanup():
            yield
            yield


class GuardSwallows(drv.NumbaCUDAMemoryManager):
    @contextlib.contextmanager
    def defer_cleanup(self):
        with super().defer_cleanup():
            try:
                yield
            except Exception:
                pass


open_guards = []


class GuardIsLeftOpen(drv.NumbaCUDAMemoryManager):
    @contextlib.contextmanager
    def defer_cleanup(self):
        guard = super().defer_cleanup()
        open_guards.append(guard)
        guard.__enter__()
        yield
        guard.__exit__(None, None, None)


class GuardIsNotEntered(drv.NumbaCUDAMemoryManager):
    @contextlib.contextmanager
    def defer_cleanup(self):
        super().defer_cleanup()
        yield


class GuardIsGenerator(drv.NumbaCUDAMemoryManager):
    def defer_cleanup(self):
        yield


class ResetKeepsRecords(drv.NumbaCUDAMemoryManager):
    def reset(self):
        self.deallocations.clear()


class InfoIsFloat(drv.NumbaCUDAMemoryManager):
    def get_memory_info(self):
        info = super().get_memory_info()
        return cuda.MemoryInfo(free=float(info.free), total=float(info.total))


class SizeIsRounded(drv.NumbaCUDAMemoryManager):
    def memalloc(self, size):
        return super().memalloc((size + 511) // 512 * 512)


class VersionIsTrue(drv.NumbaCUDAMemoryManager):
    interface_version = True


class PositionalHost(drv.NumbaCUDAMemoryManager):
    def memhostalloc(self, size, **flags):
        return super().memhostalloc(size, **flags)


class RetriesWithoutCode(DriverManager):
    """Its failure within _attempt_allocation() is no CudaAPIError."""

    def memalloc(self, size):
        pointer = drv.drvapi.cu_device_ptr()

        def allocator():
            try:
                drv.driver.cuMemAlloc(ctypes.byref(pointer), size)
            except drv.CudaAPIError as error:
                raise MemoryError(str(error))
        self._attempt_allocation(allocator)
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=lambda: drv.driver.cuMemFree(pointer))


class WaitsForItsContext(DriverManager):
    """Its finalizer makes a driver call that needs a context."""

    def memalloc(self, size):
        pointer = drv.drvapi.cu_device_ptr()
        drv.driver.cuMemAlloc(ctypes.byref(pointer), size)

        def finalizer():
            drv.driver.cuCtxSynchronize()
            drv.driver.cuMemFree(pointer)
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer)


class DeletesTwice(DriverManager):
    """Its finalizer takes a record out that reset() has cleared."""

    def memalloc(self, size):
        pointer = drv.drvapi.cu_device_ptr()
        drv.driver.cuMemAlloc(ctypes.byref(pointer), size)
        allocations, deallocations = self.allocations, self.deallocations
        allocations[pointer.value] = size

        def finalizer():
            del allocations[pointer.value]
            deallocations.add_item(drv.driver.cuMemFree, pointer, size)
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer)


class OtherCode(DriverManager):
    """It names another error where memory is out."""

    def memalloc(self, size):
        try:
            return super().memalloc(size)
        except drv.CudaAPIError as error:
            raise drv.CudaAPIError(999, error.msg)


BREAKS = {
    "InitializeWithoutBase": "class/initialize", "GuardYieldsTwice": "class/guard", "GuardSwallows": "class/guard",
    "GuardIsLeftOpen": "class/guard", "GuardIsNotEntered": "DFR-4", "GuardIsGenerator": "class/guard",
    "ResetKeepsRecords": "RST-4", "InfoIsFloat": "INF-7", "SizeIsRounded": "DEV-1",
    "VersionIsTrue": "class/registers", "PositionalHost": "class/keywords", "RetriesWithoutCode": "DEV-12",
    "WaitsForItsContext": "class/finalizer_thread", "DeletesTwice": "class/finalizer", "OtherCode": "class/out_of_memory",
}
