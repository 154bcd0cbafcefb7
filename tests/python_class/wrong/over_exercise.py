"""The exercise's class, made wrong. BREAKS names for each the clause of its rule."""
import ctypes
import os
import pathlib
import sys
import threading

from numba import cuda
from numba.cuda.cudadrv import driver as drv

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "right"))
from exercise import ExerciseManager, cudart, finalizer_of, take  # noqa: E402


class NoSuperInit(ExerciseManager):
    def __init__(self, context):
        self.context = context


class NoContextKept(ExerciseManager):
    def __init__(self, **options):
        super().__init__(context=None)
        self.options = options


class VersionMethod(ExerciseManager):
    def interface_version(self):
        return 1


class VersionTwo(ExerciseManager):
    interface_version = 2


class VersionText(ExerciseManager):
    interface_version = "1"


class ResetWithoutBase(ExerciseManager):
    def reset(self):
        pass


class GuardWithoutBase(ExerciseManager):
    def defer_cleanup(self):
        import contextlib
        return contextlib.suppress()


class GuardIsNone(ExerciseManager):
    def defer_cleanup(self):
        return None


class InfoIsTuple(ExerciseManager):
    def get_memory_info(self):
        return tuple(super().get_memory_info())


class InfoIsDict(ExerciseManager):
    def get_memory_info(self):
        return dict(super().get_memory_info()._asdict())


class InfoOfCtypes(ExerciseManager):
    def get_memory_info(self):
        info = super().get_memory_info()
        return cuda.MemoryInfo(free=ctypes.c_size_t(info.free), total=ctypes.c_size_t(info.total))


class InfoSwapped(ExerciseManager):
    def get_memory_info(self):
        info = super().get_memory_info()
        return cuda.MemoryInfo(info.total, info.free)


class PointerIsInt(ExerciseManager):
    def memalloc(self, size):
        pointer = take(size).value
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer_of(pointer))


class PointerOf32Bits(ExerciseManager):
    def memalloc(self, size):
        pointer = take(size)
        return cuda.MemoryPointer(self.context, ctypes.c_int32(pointer.value), size, finalizer=finalizer_of(pointer.value))


class OtherSize(ExerciseManager):
    def memalloc(self, size):
        pointer = take(size)
        return cuda.MemoryPointer(self.context, pointer, (size + 511) // 512 * 512, finalizer=finalizer_of(pointer.value))


class SizeOfName(ExerciseManager):
    def memalloc(self, nbytes):
        return super().memalloc(nbytes)


class KeywordOnly(ExerciseManager):
    def get_ipc_handle(self, *, memory):
        return super().get_ipc_handle(memory)


class ClosureHoldsMemory(ExerciseManager):
    def memalloc(self, size):
        pointer = take(size)
        held = []

        def finalizer():
            cudart.cudaFree(ctypes.c_size_t(held[0].device_pointer.value))
        memory = cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer)
        held.append(memory)
        return memory


class ManagerHoldsMemory(ExerciseManager):
    def memalloc(self, size):
        memory = super().memalloc(size)
        self.allocations[memory.device_pointer.value] = memory
        return memory


class SliceFrees(ExerciseManager):
    def memalloc(self, size):
        pointer = take(size)
        return drv.AutoFreePointer(self.context, pointer, size, finalizer=finalizer_of(pointer.value))


every = []


class ManagersAreKept(ExerciseManager):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        every.append(self)


class NoFinalizer(ExerciseManager):
    def memalloc(self, size):
        return cuda.MemoryPointer(self.context, take(size), size)


class FinalizerRaises(ExerciseManager):
    def memalloc(self, size):
        pointer = take(size)

        def finalizer():
            if cudart.cudaFree(pointer) == 0:
                raise RuntimeError("freed")
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer)


class FinalizerAsksForContext(ExerciseManager):
    def memalloc(self, size):
        pointer, home = take(size), threading.get_ident()

        def finalizer():
            if threading.get_ident() != home:
                raise RuntimeError("no context is current")
            cudart.cudaFree(pointer)
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer)


class FinalizerAtExitRaises(ExerciseManager):
    def memalloc(self, size):
        pointer, records = take(size), self.records
        records[pointer.value] = size

        def finalizer():
            del records[pointer.value]
            cudart.cudaFree(pointer)
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer)

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.records = {}

    def reset(self):
        super().reset()
        self.records.clear()


class ForkedChildEnds(ExerciseManager):
    def memalloc(self, size):
        pointer, process = take(size), os.getpid()

        def finalizer():
            if os.getpid() != process:
                os._exit(3)
            cudart.cudaFree(pointer)
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer)


class OutOfMemoryIsKeyError(ExerciseManager):
    def memalloc(self, size):
        try:
            return super().memalloc(size)
        except RuntimeError as error:
            raise KeyError("memory") from error


class OutOfMemoryExits(ExerciseManager):
    def memalloc(self, size):
        try:
            return super().memalloc(size)
        except RuntimeError:
            sys.exit("out of memory")


class OutOfMemoryIsNone(ExerciseManager):
    def memalloc(self, size):
        try:
            return super().memalloc(size)
        except RuntimeError:
            return None


class HandleIsBytes(ExerciseManager):
    def get_ipc_handle(self, memory):
        return bytes(super().get_ipc_handle(memory).handle.reserved)


class HandleWithoutBase(ExerciseManager):
    def get_ipc_handle(self, memory):
        handle = super().get_ipc_handle(memory)
        return cuda.IpcHandle(None, handle.handle, handle.size, handle.source_info, offset=handle.offset)


class HandleWithoutOffset(ExerciseManager):
    def get_ipc_handle(self, memory):
        handle = super().get_ipc_handle(memory)
        return cuda.IpcHandle(memory, handle.handle, handle.size, handle.source_info)


class HandleOfAll(ExerciseManager):
    def get_ipc_handle(self, memory):
        handle = super().get_ipc_handle(memory)
        return cuda.IpcHandle(memory, handle.handle, memory.size + 512, handle.source_info, offset=handle.offset)


class OwnerIsDropped(ExerciseManager):
    def mempin(self, owner, pointer, size, mapped=False):
        return super().mempin(None, pointer, size, mapped)


class OwnerIsKept(ExerciseManager):
    def mempin(self, owner, pointer, size, mapped=False):
        every.append(owner)
        return super().mempin(owner, pointer, size, mapped)


class PinnedIsMapped(ExerciseManager):
    def memhostalloc(self, size, mapped=False, portable=False, wc=False):
        return super().memhostalloc(size, True, portable, wc)


BREAKS = {
    "NoSuperInit": "BASE-5", "NoContextKept": "BASE-5", "VersionMethod": "class/registers", "VersionTwo": "class/registers",
    "VersionText": "class/registers", "ResetWithoutBase": "RST-4", "GuardWithoutBase": "DFR-4", "GuardIsNone": "class/guard",
    "InfoIsTuple": "INF-7", "InfoIsDict": "INF-7", "InfoOfCtypes": "INF-7", "InfoSwapped": "memory_info/true", "PointerIsInt": "PTR-14",
    "PointerOf32Bits": "PTR-14", "OtherSize": "DEV-1", "SizeOfName": "class/keywords", "KeywordOnly": "class/keywords",
    "ClosureHoldsMemory": "class/end", "ManagerHoldsMemory": "class/end", "SliceFrees": "class/slice_end",
    "ManagersAreKept": "class/collected", "NoFinalizer": "accounts/balance", "FinalizerRaises": "class/finalizer",
    "FinalizerAsksForContext": "class/finalizer_thread", "FinalizerAtExitRaises": "class/finalizer_exit",
    "ForkedChildEnds": "class/fork", "OutOfMemoryIsKeyError": "class/out_of_memory", "OutOfMemoryExits": "class/out_of_memory",
    "OutOfMemoryIsNone": "class/out_of_memory", "HandleIsBytes": "class/ipc_handle", "HandleWithoutBase": "class/ipc_handle",
    "HandleWithoutOffset": "IPC-2", "HandleOfAll": "class/ipc_handle", "OwnerIsDropped": "class/owner",
    "OwnerIsKept": "class/owner", "PinnedIsMapped": "class/host_buffer",
}
