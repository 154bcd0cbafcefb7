"""The class that has all of NBEP 7 itself, made wrong. BREAKS names for each the clause of its rule."""
import contextlib
import ctypes
import pathlib
import sys
import weakref

from numba import cuda
from numba.cuda.cudadrv import driver as drv

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "right"))
from whole import PORTABLE, WRITE_COMBINED, WholeManager, at_once, checked, cudart  # noqa: E402


class IgnoresWc(WholeManager):
    def memhostalloc(self, size, mapped, portable, wc):
        return super().memhostalloc(size, mapped, portable, False)


class OtherOrder(WholeManager):
    """portable and wc have changed places."""

    def memhostalloc(self, size, mapped, wc, portable):
        return super().memhostalloc(size, mapped, portable, wc)


class NotMapped(WholeManager):
    """Mapped memory is asked for without the flag."""

    def memhostalloc(self, size, mapped, portable, wc):
        pointer = ctypes.c_void_p()
        flags = (PORTABLE if portable else 0) | (WRITE_COMBINED if wc else 0)
        checked(cudart.cudaHostAlloc, ctypes.byref(pointer), ctypes.c_size_t(size), ctypes.c_uint(flags))
        return self.host_memory(pointer, size, mapped, None, self.gate.do, cudart.cudaFreeHost)


class MappedOwnerDies(WholeManager):
    def mempin(self, owner, pointer, size, mapped):
        return super().mempin(None if mapped else owner, pointer, size, mapped)


class NeverUnpins(WholeManager):
    def mempin(self, owner, pointer, size, mapped):
        pointer = ctypes.c_void_p(getattr(pointer, "value", pointer))
        checked(cudart.cudaHostRegister, pointer, ctypes.c_size_t(size), ctypes.c_uint(2 if mapped else 0))
        return self.host_memory(pointer, size, mapped, owner, at_once, lambda pointer: None)


class EndHoldsMemory(WholeManager):
    """What is called at the end of the memory holds it."""

    def memalloc(self, size):
        memory = super().memalloc(size)
        weakref.finalize(memory, lambda: memory.size)
        return memory


class GateStaysShut(WholeManager):
    """After an exception nothing is freed any more."""

    @contextlib.contextmanager
    def defer_cleanup(self):
        self.gate.depth += 1
        yield
        self.gate.depth -= 1
        if self.gate.depth == 0:
            self.gate.open()


class InnerOpens(WholeManager):
    """The inner guard's end makes the frees of the outer one."""

    @contextlib.contextmanager
    def defer_cleanup(self):
        self.gate.depth = 1
        try:
            yield
        finally:
            self.gate.depth = 0
            self.gate.open()


class ResetIterates(WholeManager):
    """The dict changes while it is gone through."""

    def reset(self):
        for end in self.ends.values():
            end()


class HandleOfZeros(WholeManager):
    """What cudaIpcGetMemHandle answers is not looked at."""

    def get_ipc_handle(self, memory):
        handle = drv.drvapi.cu_ipc_mem_handle()
        cudart.cudaIpcGetMemHandle(ctypes.byref(handle), memory.handle)
        return cuda.IpcHandle(memory, handle, memory.size, self.context.device.get_device_identity(), offset=0)


class MappedTwice(WholeManager):
    """Mapped memory has Numba's finalizer and one of ours."""

    def memhostalloc(self, size, mapped, portable, wc):
        if not mapped:
            return super().memhostalloc(size, mapped, portable, wc)
        pointer = ctypes.c_void_p()
        flags = (PORTABLE if portable else 0) | 2 | (WRITE_COMBINED if wc else 0)
        checked(cudart.cudaHostAlloc, ctypes.byref(pointer), ctypes.c_size_t(size), ctypes.c_uint(flags))
        memory = self.host_memory(pointer, size, mapped, None, self.gate.do, cudart.cudaFreeHost)
        return self.ends_with(memory, self.gate.do, cudart.cudaFreeHost, pointer)


class HostMappedIsPinned(WholeManager):
    """Mapped memory is given as pinned memory."""

    def memhostalloc(self, size, mapped, portable, wc):
        pointer = ctypes.c_void_p()
        flags = (PORTABLE if portable else 0) | (2 if mapped else 0) | (WRITE_COMBINED if wc else 0)
        checked(cudart.cudaHostAlloc, ctypes.byref(pointer), ctypes.c_size_t(size), ctypes.c_uint(flags))
        return self.ends_with(cuda.PinnedMemory(self.context, pointer, size), self.gate.do, cudart.cudaFreeHost, pointer)


class FirstContext(WholeManager):
    """Memory is of the context that was current when the class first asked."""
    first = []

    def memalloc(self, size):
        memory = super().memalloc(size)
        if not self.first:
            self.first.append(self.context)
        memory.context = self.first[0]
        return memory


class GuardForgetsHeld(WholeManager):
    """What ended in the guard is never freed."""

    @contextlib.contextmanager
    def defer_cleanup(self):
        self.gate.depth += 1
        try:
            yield
        finally:
            self.gate.depth -= 1
            if self.gate.depth == 0:
                self.gate.held.clear()


class InfoOfFirst(WholeManager):
    """What was free at first is told for ever."""

    def initialize(self):
        if not hasattr(self, "info"):
            self.info = super().get_memory_info()

    def get_memory_info(self):
        return self.info


BREAKS = {
    "IgnoresWc": "flags/memhostalloc", "OtherOrder": "flags/memhostalloc", "NotMapped": "flags/memhostalloc",
    "MappedOwnerDies": "class/owner", "NeverUnpins": "accounts/balance", "EndHoldsMemory": "class/end", "GateStaysShut": "class/guard",
    "InnerOpens": "deferral/nests", "ResetIterates": "class/reset", "HandleOfZeros": "class/staged", "MappedTwice": "accounts/balance",
    "HostMappedIsPinned": "class/host_buffer", "FirstContext": "class/collected", "GuardForgetsHeld": "accounts/balance",
    "InfoOfFirst": "memory_info/true",
}
