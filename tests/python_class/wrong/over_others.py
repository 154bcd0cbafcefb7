"""What authors of managers get wrong in passing. BREAKS names for each the clause of its rule."""
import contextlib
import ctypes
import pathlib
import sys
import threading
import weakref

from numba import cuda
from numba.cuda.cudadrv import driver as drv

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "right"))
from cupy_like import CuPyLikeManager  # noqa: E402
from exercise import ExerciseManager, cudart, finalizer_of, take  # noqa: E402
from host_only import DriverManager  # noqa: E402
from rmm_like import RMMLikeManager  # noqa: E402
import small_cupy  # noqa: E402
import small_rmm  # noqa: E402


class FreesTwice(ExerciseManager):
    def memalloc(self, size):
        pointer = take(size)

        def finalizer():
            cudart.cudaFree(pointer)
            cudart.cudaFree(pointer)
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer)


class FreesLastPointer(ExerciseManager):
    """The late binding of a closure: each finalizer frees what was asked for last."""
    def memalloc(self, size):
        self.pointer = take(size)
        cell = weakref.ref(self)

        def finalizer():
            manager = cell()
            if manager is not None:
                cudart.cudaFree(manager.pointer)
        return cuda.MemoryPointer(self.context, self.pointer, size, finalizer=finalizer)


class BufferDies(RMMLikeManager):
    """The buffer is kept by nobody."""
    def memalloc(self, size):
        buffer = small_rmm.DeviceBuffer(size)
        return cuda.MemoryPointer(self.context, ctypes.c_uint64(buffer.ptr), size, finalizer=lambda: None)


class LockHeldAtFree(ExerciseManager):
    """A lock that is not reentrant is taken by memalloc() and by the finalizer, which the collector may run inside."""
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.lock = threading.Lock()

    def memalloc(self, size):
        lock = self.lock
        with lock:
            pointer = take(size)

        def finalizer():
            with lock:
                cudart.cudaFree(pointer)
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer)


class InfoIsCached(ExerciseManager):
    def get_memory_info(self):
        if not hasattr(self, "info"):
            self.info = super().get_memory_info()
        return self.info


class InfoInMegabytes(ExerciseManager):
    def get_memory_info(self):
        info = super().get_memory_info()
        return cuda.MemoryInfo(info.free >> 20, info.total >> 20)


class SizeOf32Bits(ExerciseManager):
    """c_uint truncates what is asked for."""
    def memalloc(self, size):
        pointer = ctypes.c_size_t()
        if cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size & 0xffffffff)) != 0:
            raise RuntimeError("cudaMalloc")
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer_of(pointer.value))


class CodeIsIgnored(ExerciseManager):
    """The answer of cudaMalloc is not looked at."""
    def memalloc(self, size):
        pointer = ctypes.c_size_t()
        cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size))
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer_of(pointer.value))


class ResetFreesAgain(ExerciseManager):
    """reset() frees what is alive, and the finalizer does so later."""
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.addresses = set()

    def memalloc(self, size):
        memory = super().memalloc(size)
        self.addresses.add(memory.device_pointer.value)
        return memory

    def reset(self):
        super().reset()
        for address in self.addresses:
            cudart.cudaFree(ctypes.c_size_t(address))
        self.addresses.clear()


class DeferFreesLater(ExerciseManager):
    """Frees that are held are forgotten where the guard ends by an exception."""
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.held = None

    def memalloc(self, size):
        pointer, me = take(size), weakref.ref(self)

        def finalizer():
            manager = me()
            if manager is not None and manager.held is not None:
                manager.held.append(pointer)
            else:
                cudart.cudaFree(pointer)
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer)

    @contextlib.contextmanager
    def defer_cleanup(self):
        with super().defer_cleanup():
            self.held = []
            yield
            for pointer in self.held:
                cudart.cudaFree(pointer)
            self.held = None


class GuardDoesNotNest(ExerciseManager):
    """The inner guard's end makes the frees of the outer one."""
    @contextlib.contextmanager
    def defer_cleanup(self):
        pending = self.deallocations
        pending._disable_count = 1
        try:
            yield
        finally:
            pending._disable_count = 0


class GuardIsOne(ExerciseManager):
    """One guard object is made once."""
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.guard = super().defer_cleanup()

    def defer_cleanup(self):
        return self.guard


class HandleOfBase(RMMLikeManager):
    """The offset is of the whole allocation, and not that of the slice."""
    def get_ipc_handle(self, memory):
        handle = drv.drvapi.cu_ipc_mem_handle()
        begin, _ = drv.device_extents(memory)
        drv.driver.cuIpcGetMemHandle(ctypes.byref(handle), begin)
        return cuda.IpcHandle(memory, handle, memory.size, self.context.device.get_device_identity(), offset=0)


class HandleOfLast(ExerciseManager):
    """A handle is kept and given again for other memory."""
    def get_ipc_handle(self, memory):
        if not hasattr(self, "handle"):
            self.handle = super().get_ipc_handle(memory)
        return self.handle


class HandleIsNone(cuda.HostOnlyCUDAMemoryManager):
    """get_ipc_handle answers None."""
    memalloc = ExerciseManager.memalloc
    initialize = ExerciseManager.initialize
    get_memory_info = ExerciseManager.get_memory_info
    interface_version = ExerciseManager.interface_version

    def get_ipc_handle(self, memory):
        return None


class MappedWithoutFlag(ExerciseManager):
    """Flags are lost on the way to the base."""
    def memhostalloc(self, size, mapped=False, portable=False, wc=False):
        return super().memhostalloc(size)


class PinsAsWell(ExerciseManager):
    """mempin() without mapped gives mapped memory."""
    def mempin(self, owner, pointer, size, mapped=False):
        return super().mempin(owner, pointer, size, True)


class FinalizerNeedsContext(ExerciseManager):
    """The finalizer works on the main thread alone."""
    def memalloc(self, size):
        pointer = take(size)

        def finalizer():
            if threading.current_thread() is not threading.main_thread():
                raise drv.CudaDriverError("no context")
            cudart.cudaFree(pointer)
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer)


class ContextIsHeld(ExerciseManager):
    """A table of the module keeps each context."""
    contexts = {}

    def initialize(self):
        self.contexts[id(self.context)] = self.context


class RetriesForever(DriverManager):
    """Out of memory: it collects garbage and tries again, a thousand times."""
    def memalloc(self, size):
        import gc
        for _ in range(1000):
            try:
                return super().memalloc(size)
            except drv.CudaAPIError:
                gc.collect()
        return None


class OutOfMemoryLeaks(ExerciseManager):
    """It takes a spare block, to see whether memory is out, and does not give it back."""
    def memalloc(self, size):
        try:
            return super().memalloc(size)
        except RuntimeError:
            take(4096)
            raise


class AligningAllocator(ExerciseManager):
    """It hands out an address that is aligned upwards, and frees that one."""
    def memalloc(self, size):
        pointer = take(size + 4096)
        inside = ctypes.c_size_t(pointer.value + 4096)
        return cuda.MemoryPointer(self.context, inside, size, finalizer=finalizer_of(inside.value))


class ThreadLocalPool(CuPyLikeManager):
    """The chunks are of the thread: another one's end does nothing."""
    def memalloc(self, size):
        chunk = self.pool.malloc(size)
        here = threading.get_ident()
        self.chunks[chunk.ptr] = chunk
        chunks = self.chunks

        def finalizer():
            if threading.get_ident() == here:
                chunks.pop(chunk.ptr, None)
        return cuda.MemoryPointer(self.context, ctypes.c_uint64(chunk.ptr), size, finalizer=finalizer)


class InitializeFailsSilently(ExerciseManager):
    def initialize(self):
        try:
            free = ctypes.c_size_t()
            if cudart.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(free)) != 0:
                raise RuntimeError("no device")
            self.spare = take(1 << 20)
        except RuntimeError:
            pass


class StagedHandle(cuda.IpcHandle):
    """It owns the memory that it was opened into, as Numba once did, and so ends it at once."""
    def open_staged(self, context):
        return super().open_staged(context).own()


class StagedOwns(ExerciseManager):
    def get_ipc_handle(self, memory):
        handle = super().get_ipc_handle(memory)
        return StagedHandle(memory, handle.handle, handle.size, handle.source_info, offset=handle.offset)


class ResetNeedsPool(CuPyLikeManager):
    """Its reset() is not thought of before initialize()."""
    def reset(self):
        super(CuPyLikeManager, self).reset()
        self.chunks.clear()
        self.pool.free_all_blocks()


class ZeroIsNone(ExerciseManager):
    def memalloc(self, size):
        return super().memalloc(size) if size else None


class PortableIsWc(ExerciseManager):
    def memhostalloc(self, size, mapped=False, portable=False, wc=False):
        return super().memhostalloc(size, mapped, wc, portable)


class AttachIsLost(DriverManager):
    def memallocmanaged(self, size, attach_global):
        return super().memallocmanaged(size, True)


class HandleWithoutSource(ExerciseManager):
    def get_ipc_handle(self, memory):
        handle = super().get_ipc_handle(memory)
        return cuda.IpcHandle(memory, handle.handle, handle.size, offset=handle.offset)


class PoolOfAllDevices(CuPyLikeManager):
    """One pool is of the class."""
    one = small_cupy.MemoryPool()

    def initialize(self):
        self.pool = self.one


class LeavesContextPushed(ExerciseManager):
    def memalloc(self, size):
        self.context.push()
        return super().memalloc(size)


class FinalizerLeavesContextPushed(DriverManager):
    def memalloc(self, size):
        pointer = drv.drvapi.cu_device_ptr()
        self._attempt_allocation(lambda: drv.driver.cuMemAlloc(ctypes.byref(pointer), size))
        handle = self.context.handle

        def finalizer():
            drv.driver.cuCtxPushCurrent(handle)
            drv.driver.cuMemFree(pointer)
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer)


class MemoryWithoutContext(ExerciseManager):
    def memalloc(self, size):
        pointer = take(size)
        return cuda.MemoryPointer(None, pointer, size, finalizer=finalizer_of(pointer.value))


class InfoIteratesChunks(CuPyLikeManager):
    """A chunk that ends in between changes what is iterated."""
    def get_memory_info(self):
        used = 0
        for chunk in self.chunks.values():
            used += chunk.size
        return cuda.MemoryInfo(free=self.pool.free_bytes(), total=self.pool.free_bytes() + used)


class SizeInSelf(ExerciseManager):
    """What a request is about is kept where another thread's request writes."""
    def memalloc(self, size):
        self.size = size
        pointer = take(self.size)
        return cuda.MemoryPointer(self.context, pointer, self.size, finalizer=finalizer_of(pointer.value))


BREAKS = {
    "FreesTwice": "accounts/balance", "FreesLastPointer": "live/overlap_address", "BufferDies": "live/overlap_address",
    "LockHeldAtFree": "class/finalizer", "InfoIsCached": "memory_info/true", "InfoInMegabytes": "memory_info/true",
    "SizeOf32Bits": "class/out_of_memory", "CodeIsIgnored": "class/out_of_memory", "ResetFreesAgain": "accounts/balance",
    "DeferFreesLater": "class/guard", "GuardDoesNotNest": "deferral/nests", "GuardIsOne": "class/guard",
    "HandleOfBase": "IPC-2", "HandleOfLast": "IPC-4", "HandleIsNone": "class/ipc_handle",
    "MappedWithoutFlag": "class/host_buffer", "PinsAsWell": "class/host_buffer",
    "FinalizerNeedsContext": "class/finalizer_thread", "ContextIsHeld": "class/collected",
    "RetriesForever": "class/out_of_memory", "OutOfMemoryLeaks": "class/out_of_memory",
    "AligningAllocator": "accounts/balance", "ThreadLocalPool": "threads/ended",
    "InitializeFailsSilently": "class/initialize", "StagedOwns": "class/staged", "ResetNeedsPool": "class/reset",
    "ZeroIsNone": "class/zero", "PortableIsWc": "flags/memhostalloc", "AttachIsLost": "flags/memallocmanaged",
    "HandleWithoutSource": "class/staged", "PoolOfAllDevices": "class/devices", "LeavesContextPushed": "class/contexts",
    "FinalizerLeavesContextPushed": "class/contexts", "SizeInSelf": "class/threads", "MemoryWithoutContext": "PTR-14", "InfoIteratesChunks": "class/finalizer",
}
