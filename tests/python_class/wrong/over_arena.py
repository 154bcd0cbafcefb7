"""The arena, made wrong. BREAKS names for each the clause of its rule."""
import contextlib
import ctypes
import pathlib
import sys
import threading

from numba import cuda

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "right"))
import arena as right  # noqa: E402
from arena import ALIGNMENT, SLAB, Arena, ArenaManager, drv, pointer_to  # noqa: E402


class Over(ArenaManager):
    arena_class = Arena

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.arena = self.arena_class()

    def pointer(self, block, size):
        return cuda.MemoryPointer(self.context, pointer_to(block[0]), size, finalizer=right.finalizer_of(self.arena.ended, block))


class FinalizerTakesLock(Over):
    """GC inside take() with the lock held runs a finalizer that wants it: deadlock."""
    def memalloc(self, size):
        arena = self.arena
        block = arena.take(size)

        def finalizer():
            with arena.lock:
                arena.ended.append(block)
                arena.take_back()
        return cuda.MemoryPointer(self.context, pointer_to(block[0]), size, finalizer=finalizer)


class NoLock(Over):
    class arena_class(Arena):
        def __init__(self):
            super().__init__()
            self.lock = contextlib.nullcontext()


class LockHeldOnError(Over):
    """No finally: after an out of memory each call waits for ever."""
    class arena_class(Arena):
        def take(self, size):
            size = max(1, -(-size // ALIGNMENT)) * ALIGNMENT
            self.lock.acquire()
            self.take_back()
            begin = self.begin_of(size)
            hole = self.holes.remove(begin)
            if hole > size:
                self.holes.add(begin + size, hole - size)
            self.living[begin] = size
            self.lock.release()
            return begin, self.generation


class RegistryHoldsPointers(Over):
    """Books keep the pointers alive: nothing ever ends."""
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.books = {}

    def memalloc(self, size):
        memory = super().memalloc(size)
        self.books[id(memory)] = memory
        return memory


class DelFreesTwice(Over):
    """__del__ gives back what free() has given back."""
    def memalloc(self, size):
        ended, block = self.arena.ended, self.arena.take(size)

        class Pointer(cuda.MemoryPointer):
            def __del__(self):
                ended.append(block)
        return Pointer(self.context, pointer_to(block[0]), size, finalizer=right.finalizer_of(ended, block))


class OnlyThisThreadFrees(Over):
    def memalloc(self, size):
        block, ended, thread = self.arena.take(size), self.arena.ended, threading.get_ident()

        def finalizer():
            if threading.get_ident() == thread:
                ended.append(block)
        return cuda.MemoryPointer(self.context, pointer_to(block[0]), size, finalizer=finalizer)


class ThreadLocalArena(Over):
    """Each thread has an arena; what ends elsewhere is not found there."""
    def __init__(self, *args, **kwargs):
        self.local = threading.local()
        super().__init__(*args, **kwargs)

    @property
    def arena(self):
        if not hasattr(self.local, "arena"):
            self.local.arena = Arena()
        return self.local.arena

    @arena.setter
    def arena(self, value):
        pass

    def memalloc(self, size):
        block = self.arena.take(size)

        def finalizer():
            if block[0] in self.arena.living:
                self.arena.ended.append(block)
        return cuda.MemoryPointer(self.context, pointer_to(block[0]), size, finalizer=finalizer)


class AutoFreeNotOwned(Over):
    """A slice's end frees the whole."""
    def memalloc(self, size):
        block = self.arena.take(size)
        return drv.AutoFreePointer(self.context, pointer_to(block[0]), size, finalizer=right.finalizer_of(self.arena.ended, block))


class FreedAtOnceKeepsNoOwner(Over):
    """A fresh pointer over the right one's address, which is dropped: the block is free while it lives."""
    def memalloc(self, size):
        memory = super().memalloc(size)
        return cuda.MemoryPointer(self.context, memory.device_pointer, size)


class NoJoining(Over):
    class arena_class(Arena):
        def join(self, begin, size):
            self.holes.add(begin, size)


class JoinsAcrossSlabs(Over):
    class arena_class(Arena):
        def join(self, begin, size):
            if begin + size in self.holes.by_begin:
                size += self.holes.remove(begin + size)
            if begin in self.holes.by_end:
                before = self.holes.by_end[begin]
                size += self.holes.remove(before)
                begin = before
            self.holes.add(begin, size)


class FitsTooSmall(Over):
    """Off by one unit where the best hole is looked for."""
    class arena_class(Arena):
        def take(self, size):
            size = max(1, -(-size // ALIGNMENT)) * ALIGNMENT
            with self.lock:
                self.take_back()
                begin = self.holes.best(size - ALIGNMENT)
                if begin is None:
                    begin = self.begin_of(size)
                hole = self.holes.remove(begin)
                if hole > size:
                    self.holes.add(begin + size, hole - size)
                self.living[begin] = size
                return begin, self.generation


class LosesTail(Over):
    """What a block leaves of its hole is lost, though the block is booked with its own size."""
    class arena_class(Arena):
        def take(self, size):
            begin, generation = super().take(size)
            with self.lock:
                tail = begin + self.living[begin]
                if self.holes.by_begin.get(tail, 1 << 60) < 65536:
                    self.holes.remove(tail)
            return begin, generation


class Aligned64(Over):
    class arena_class(Arena):
        def take(self, size):
            size = max(1, -(-size // 64)) * 64
            with self.lock:
                self.take_back()
                begin = self.begin_of(size)
                hole = self.holes.remove(begin)
                if hole > size:
                    self.holes.add(begin + size, hole - size)
                self.living[begin] = size
                return begin, self.generation


class ZeroShares(Over):
    """A request of no bytes takes the address of the next block, and its end frees that block."""
    class arena_class(Arena):
        def take(self, size):
            if size:
                return super().take(size)
            with self.lock:
                begin = self.begin_of(ALIGNMENT)
                self.living.setdefault(begin, ALIGNMENT)
                return begin, self.generation


class IpcOver(Over):
    def handle_of(self, base):
        handle = drv.drvapi.cu_ipc_mem_handle()
        drv.driver.cuIpcGetMemHandle(ctypes.byref(handle), base)
        return handle

    def info(self):
        return self.context.device.get_device_identity()

    def parts(self, memory):
        address = memory.handle.value
        base = self.arena.slab_of(address)
        return address, base, self.handle_of(base)


class IpcOffsetZero(IpcOver):
    def get_ipc_handle(self, memory):
        address, base, handle = self.parts(memory)
        return cuda.IpcHandle(memory, handle, memory.size, self.info())


class IpcOffsetModulo(IpcOver):
    """The offset by the slab's size: slabs need not begin at its multiple."""
    def get_ipc_handle(self, memory):
        address, base, handle = self.parts(memory)
        return cuda.IpcHandle(memory, handle, memory.size, self.info(), offset=address % SLAB)


class IpcOffsetInElements(IpcOver):
    def get_ipc_handle(self, memory):
        address, base, handle = self.parts(memory)
        return cuda.IpcHandle(memory, handle, memory.size, self.info(), offset=(address - base) // 256)


class IpcSizeOfBlock(IpcOver):
    """The rounded size; for a slice the whole's."""
    def get_ipc_handle(self, memory):
        address, base, handle = self.parts(memory)
        return cuda.IpcHandle(memory, handle, self.arena.living.get(address, memory.size), self.info(), offset=address - base)


class IpcNoBase(IpcOver):
    """The handle does not keep the memory."""
    def get_ipc_handle(self, memory):
        address, base, handle = self.parts(memory)
        return cuda.IpcHandle(None, handle, memory.size, self.info(), offset=address - base)


class IpcNoSource(IpcOver):
    def get_ipc_handle(self, memory):
        address, base, handle = self.parts(memory)
        return cuda.IpcHandle(memory, handle, memory.size, offset=address - base)


class IpcOwnClass(IpcOver):
    """A subclass that another process cannot rebuild."""
    class Handle(cuda.IpcHandle):
        def __init__(self, arena, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.arena = arena

    def get_ipc_handle(self, memory):
        address, base, handle = self.parts(memory)
        return self.Handle(self.arena, memory, handle, memory.size, self.info(), offset=address - base)


class IpcNotOfSlices(IpcOver):
    def get_ipc_handle(self, memory):
        self.arena.living[memory.handle.value]
        return super().get_ipc_handle(memory)


class IpcSourceIsDeviceZero(IpcOver):
    def get_ipc_handle(self, memory):
        address, base, handle = self.parts(memory)
        return cuda.IpcHandle(memory, handle, memory.size, cuda.gpus[0].get_device_identity(), offset=address - base)


class IpcHandleKept(IpcOver):
    """Handles are kept by base, and outlive the slab: after a reset the old slab's is told."""
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.handles = {}

    def get_ipc_handle(self, memory):
        address = memory.handle.value
        base = self.arena.slab_of(address)
        if base not in self.handles:
            self.handles[base] = self.handle_of(base)
        return cuda.IpcHandle(memory, self.handles[base], memory.size, self.info(), offset=address - base)


class ResetKeepsHost(Over):
    def reset(self):
        self.arena.reset()


class ResetForgetsGeneration(Over):
    """A pointer of before the reset that ends after it frees the new block at its address."""
    class arena_class(Arena):
        def take_back(self):
            if self.deferred:
                return
            while self.ended:
                address, _ = self.ended.popleft()
                size = self.living.pop(address, None)
                if size is not None:
                    self.join(address, size)


class ResetRaisesLater(Over):
    """A late end meets an empty book: the next memalloc raises KeyError."""
    class arena_class(Arena):
        def take_back(self):
            if self.deferred:
                return
            while self.ended:
                address, _ = self.ended.popleft()
                self.join(address, self.living.pop(address))


class ResetClearsDepth(Over):
    """A reset inside a guard forgets its depth, which is -1 when the guard ends: nothing is freed any more."""
    class arena_class(Arena):
        def reset(self):
            super().reset()
            self.deferred = 0


class ResetKeepsHoles(Over):
    """The slabs go, the holes stay: memory that was given back is handed out."""
    class arena_class(Arena):
        def reset(self):
            holes = self.holes
            super().reset()
            self.holes = holes

        def join(self, begin, size):
            if self.slab_of(begin) is not None:
                super().join(begin, size)


class DeferIsFlag(Over):
    class arena_class(Arena):
        @contextlib.contextmanager
        def deferring(self):
            self.deferred = 1
            try:
                yield
            finally:
                with self.lock:
                    self.deferred = 0
                    self.take_back()


class DeferNoFinally(Over):
    class arena_class(Arena):
        @contextlib.contextmanager
        def deferring(self):
            with self.lock:
                self.deferred += 1
            yield
            with self.lock:
                self.deferred -= 1
                self.take_back()


class DeferOnlyOwn(Over):
    @contextlib.contextmanager
    def defer_cleanup(self):
        with self.arena.deferring():
            yield


class DeferInnerFlush(Over):
    class arena_class(Arena):
        @contextlib.contextmanager
        def deferring(self):
            with self.lock:
                self.deferred += 1
            try:
                yield
            finally:
                with self.lock:
                    self.deferred -= 1
                    depth, self.deferred = self.deferred, 0
                    self.take_back()
                    self.deferred = depth


class DeferOfThread(Over):
    class arena_class(Arena):
        def __init__(self):
            self.local = threading.local()
            super().__init__()

        @property
        def deferred(self):
            return getattr(self.local, "depth", 0)

        @deferred.setter
        def deferred(self, depth):
            self.local.depth = depth


class DeferSwallows(Over):
    """The guard swallows the body's exception."""
    class arena_class(Arena):
        @contextlib.contextmanager
        def deferring(self):
            with self.lock:
                self.deferred += 1
            try:
                yield
            except Exception:
                pass
            finally:
                with self.lock:
                    self.deferred -= 1
                    self.take_back()


class DeferHoldsLock(Over):
    """The lock is held as long as the guard: another thread's memalloc, and this one's, wait for ever."""
    class arena_class(Arena):
        @contextlib.contextmanager
        def deferring(self):
            self.deferred += 1
            self.lock, outer = threading.RLock(), self.lock
            self.lock.acquire()
            try:
                yield
            finally:
                self.lock.release()
                self.lock = outer
                self.deferred -= 1
                with self.lock:
                    self.take_back()


class InfoSwapped(Over):
    def get_memory_info(self):
        info = super().get_memory_info()
        return cuda.MemoryInfo(info.total, info.free)


class InfoOnlyPool(Over):
    def get_memory_info(self):
        return cuda.MemoryInfo(free=self.arena.free_bytes(), total=sum(self.arena.slab_sizes.values()))


class InfoCountsLiving(Over):
    """All slabs count as free."""
    def get_memory_info(self):
        return cuda.MemoryInfo(free=right.device_memory()[0] + sum(self.arena.slab_sizes.values()), total=right.device_memory()[1])


class InfoIgnoresOthers(Over):
    """What others hold counts as free."""
    def get_memory_info(self):
        total = right.device_memory()[1]
        return cuda.MemoryInfo(free=total - sum(self.arena.living.values()), total=total)


class InfoKept(Over):
    """Asked once, told for ever."""
    kept = None

    def get_memory_info(self):
        if self.kept is None:
            self.kept = super().get_memory_info()
        return self.kept


class InfoInMegabytes(Over):
    def get_memory_info(self):
        info = super().get_memory_info()
        return cuda.MemoryInfo(info.free >> 20, info.total >> 20)


class InfoIsFloat(Over):
    def get_memory_info(self):
        info = super().get_memory_info()
        return cuda.MemoryInfo(info.free / 1.0, info.total / 1.0)


class SizeRounded(Over):
    def memalloc(self, size):
        block = self.arena.take(size)
        return self.pointer(block, self.arena.living[block[0]])


class PointerIsInt(Over):
    def memalloc(self, size):
        block = self.arena.take(size)
        return cuda.MemoryPointer(self.context, block[0], size, finalizer=right.finalizer_of(self.arena.ended, block))


class PointerIs32Bits(Over):
    def memalloc(self, size):
        block = self.arena.take(size)
        return cuda.MemoryPointer(self.context, ctypes.c_uint32(block[0]), size, finalizer=right.finalizer_of(self.arena.ended, block))


class PointerIsSigned(Over):
    """c_int: negative above 2 GiB, cut to 32 bits."""
    def memalloc(self, size):
        block = self.arena.take(size)
        return cuda.MemoryPointer(self.context, ctypes.c_void_p(ctypes.c_int(block[0]).value), size,
                                  finalizer=right.finalizer_of(self.arena.ended, block))


class PointerShared(Over):
    """One ctypes object is reused for each pointer: all pointers move with the last."""
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.out = ctypes.c_uint64()

    def memalloc(self, size):
        block = self.arena.take(size)
        self.out.value = block[0]
        return cuda.MemoryPointer(self.context, self.out, size, finalizer=right.finalizer_of(self.arena.ended, block))


class SizeOf32Bits(Over):
    """The size goes through c_uint32: 4 GiB are 0."""
    def memalloc(self, size):
        block = self.arena.take(ctypes.c_uint32(size).value)
        return self.pointer(block, size)


class NoTrim(Over):
    """Empty slabs are kept where a larger request finds no room."""
    class arena_class(Arena):
        def trim(self):
            pass


class AnyErrorIsFull(Over):
    class arena_class(Arena):
        def grow(self, size):
            try:
                return super().grow(size)
            except drv.CudaAPIError:
                raise drv.CudaAPIError(2, "out of memory")


class FullIsNone(Over):
    def memalloc(self, size):
        try:
            return super().memalloc(size)
        except drv.CudaAPIError:
            return None


class FullIsNull(Over):
    def memalloc(self, size):
        try:
            return super().memalloc(size)
        except drv.CudaAPIError:
            return cuda.MemoryPointer(self.context, pointer_to(0), size)


class FullIsFewer(Over):
    """Where there is no room, it hands out half as much."""
    def memalloc(self, size):
        try:
            return super().memalloc(size)
        except drv.CudaAPIError:
            return self.pointer(self.arena.take(size // 2), size)


class WaitsForEver(Over):
    def memalloc(self, size):
        while True:
            try:
                return super().memalloc(size)
            except drv.CudaAPIError as error:
                if error.code != 2:
                    raise


class OneArenaForAll(Over):
    """All devices share an arena."""
    shared = Arena()

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.arena = OneArenaForAll.shared


class SetsDevice(Over):
    """Each memalloc makes device 0 the current one."""
    def memalloc(self, size):
        ctypes.CDLL("libcudart.so").cudaSetDevice(0)
        return super().memalloc(size)


class InitializeReserves(Over):
    """Each initialize() takes a slab; Numba calls it at each push of the context."""
    def initialize(self):
        super().initialize()
        self.arena.grow(SLAB)


class InitializeAnew(Over):
    """Each initialize() makes a new arena: the memory of the old one is lost."""
    def initialize(self):
        super().initialize()
        self.arena = Arena()


class HostFlagsSwapped(Over):
    def memhostalloc(self, size, mapped=False, portable=False, wc=False):
        return super().memhostalloc(size, portable, mapped, wc)


class HostLacksWc(Over):
    def memhostalloc(self, size, mapped=False, portable=False):
        return super().memhostalloc(size, mapped, portable)


class HostAlwaysMapped(Over):
    """Answers mapped memory where pinned memory was asked for."""
    def memhostalloc(self, size, mapped=False, portable=False, wc=False):
        return super().memhostalloc(size, True, portable, wc)


class PinIgnoresMapped(Over):
    def mempin(self, owner, pointer, size, mapped=False):
        return super().mempin(owner, pointer, size, False)


class PinDropsOwner(Over):
    def mempin(self, owner, pointer, size, mapped=False):
        return super().mempin(None, pointer, size, mapped)


class PinSwallows(Over):
    """A second pin of a region is not told, and the first end gives up both."""
    def mempin(self, owner, pointer, size, mapped=False):
        try:
            return super().mempin(owner, pointer, size, mapped)
        except drv.CudaAPIError:
            at = ctypes.c_void_p(getattr(pointer, "value", pointer))
            return cuda.PinnedMemory(self.context, at, size, owner=owner)


class PinDeferred(Over):
    """A region is given up with the queue: pinned again at once, it is refused."""
    def mempin(self, owner, pointer, size, mapped=False):
        if mapped:
            return super().mempin(owner, pointer, size, mapped)
        at = ctypes.c_void_p(getattr(pointer, "value", pointer))
        drv.driver.cuMemHostRegister(at, size, 0)
        add_item = self.deallocations.add_item

        def finalizer():
            add_item(drv.driver.cuMemHostUnregister, at, size)
        return cuda.PinnedMemory(self.context, at, size, owner=owner, finalizer=finalizer)


class PinWholePages(Over):
    """Pins whole pages, and gives their begin and size as the user's buffer."""
    def mempin(self, owner, pointer, size, mapped=False):
        at = getattr(pointer, "value", pointer)
        begin = at & ~4095
        return super().mempin(owner, begin, (at + size - begin + 4095) & ~4095, mapped)


BREAKS = {
    "FinalizerTakesLock": "class/finalizer", "NoLock": "class/threads", "LockHeldOnError": "suite/too_large",
    "RegistryHoldsPointers": "class/end", "DelFreesTwice": "DEV-1", "OnlyThisThreadFrees": "threads/ended",
    "ThreadLocalArena": "threads/ended", "AutoFreeNotOwned": "class/slice_end",
    "FreedAtOnceKeepsNoOwner": "live/overlap_address", "NoJoining": "class/room", "JoinsAcrossSlabs": "suite/sizes",
    "FitsTooSmall": "live/overlap_address", "LosesTail": "class/room", "Aligned64": "suite/alignment",
    "ZeroShares": "suite/size_zero", "IpcOffsetZero": "IPC-4", "IpcOffsetModulo": "IPC-2",
    "IpcOffsetInElements": "IPC-2", "IpcSizeOfBlock": "class/ipc_handle", "IpcNoBase": "class/ipc_handle",
    "IpcNoSource": "class/staged", "IpcOwnClass": "class/ipc_handle", "IpcNotOfSlices": "class/staged",
    "IpcSourceIsDeviceZero": "class/ipc_handle", "IpcHandleKept": "random/program", "ResetKeepsHost": "RST-4",
    "ResetForgetsGeneration": "random/program", "ResetRaisesLater": "class/reset",
    "ResetClearsDepth": "deferral/reset", "ResetKeepsHoles": "random/program", "DeferIsFlag": "deferral/nests",
    "DeferNoFinally": "class/guard", "DeferOnlyOwn": "DFR-4", "DeferInnerFlush": "deferral/nests",
    "DeferOfThread": "deferral/threads", "DeferSwallows": "class/guard", "DeferHoldsLock": "deferral/threads",
    "InfoSwapped": "memory_info/true", "InfoOnlyPool": "memory_info/true", "InfoCountsLiving": "memory_info/true",
    "InfoIgnoresOthers": "memory_info/true", "InfoKept": "memory_info/true", "InfoInMegabytes": "memory_info/true",
    "InfoIsFloat": "INF-7", "SizeRounded": "DEV-1", "PointerIsInt": "PTR-14", "PointerIs32Bits": "PTR-14",
    "PointerIsSigned": "PTR-14", "PointerShared": "class/threads", "SizeOf32Bits": "class/out_of_memory",
    "NoTrim": "class/room", "AnyErrorIsFull": "errors/passed_on", "FullIsNone": "class/out_of_memory",
    "FullIsNull": "class/out_of_memory", "FullIsFewer": "errors/callbacks", "WaitsForEver": "suite/too_large",
    "OneArenaForAll": "class/devices", "SetsDevice": "class/devices", "InitializeReserves": "INI-2",
    "InitializeAnew": "class/initialize", "HostFlagsSwapped": "flags/memhostalloc", "HostLacksWc": "class/keywords",
    "HostAlwaysMapped": "class/host_buffer", "PinIgnoresMapped": "flags/mempin", "PinDropsOwner": "class/owner",
    "PinDeferred": "PIN-10", "PinWholePages": "flags/region", "PinSwallows": "PIN-7",
}
