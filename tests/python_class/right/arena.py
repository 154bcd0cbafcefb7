"""An arena: slabs of the driver's are cut by best fit, and neighbours are joined when they come back.

A finalizer only appends to `ended`, so it needs no lock and no current context. All else holds the arena's lock.
"""
import bisect
import collections
import contextlib
import ctypes
import os
import threading

from numba import cuda
from numba.cuda.cudadrv import driver as drv

# Where Numba calls the driver by NVIDIA's bindings, its functions return what they write elsewhere.
BINDING = getattr(drv, "binding", None)
ALIGNMENT = 256
SLAB = 8 << 20
INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED = 1, 2, 3


def from_driver(size):
    if size >= 1 << 63:
        raise drv.CudaAPIError(OUT_OF_MEMORY, "%d bytes" % size)
    if BINDING:
        return int(drv.driver.cuMemAlloc(size))
    pointer = drv.drvapi.cu_device_ptr()
    drv.driver.cuMemAlloc(ctypes.byref(pointer), size)
    return pointer.value


def pointer_to(address):
    return BINDING.CUdeviceptr(address) if BINDING else drv.drvapi.cu_device_ptr(address)


def to_driver(address):
    drv.driver.cuMemFree(pointer_to(address))


def device_memory():
    """(free, total) of the device, in bytes."""
    if BINDING:
        return drv.driver.cuMemGetInfo()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    drv.driver.cuMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


class Holes:
    """Free ranges, by size for best fit and by both ends for joining. Ranges of two slabs are never joined."""

    def __init__(self):
        self.by_size, self.by_begin, self.by_end = [], {}, {}

    def bytes(self):
        return sum(size for size, _ in self.by_size)

    def add(self, begin, size):
        bisect.insort(self.by_size, (size, begin))
        self.by_begin[begin] = size
        self.by_end[begin + size] = begin

    def remove(self, begin):
        size = self.by_begin.pop(begin)
        del self.by_end[begin + size]
        del self.by_size[bisect.bisect_left(self.by_size, (size, begin))]
        return size

    def best(self, size):
        """The begin of the smallest range that holds `size` bytes, or None."""
        index = bisect.bisect_left(self.by_size, (size, 0))
        return self.by_size[index][1] if index < len(self.by_size) else None


class Arena:
    """Blocks of one context. It lives as long as a finalizer does, and knows neither the manager nor a pointer."""

    def __init__(self):
        self.lock = threading.Lock()
        self.ended = collections.deque()  # blocks whose pointers have ended, and which wait to be joined
        self.deferred = 0
        self.clear()

    def clear(self):
        self.holes = Holes()
        self.bases = []  # of slabs, rising
        self.slab_sizes = {}  # by base
        self.living = {}  # the size of a block by its address
        self.generation = object()

    def slab_of(self, address):
        """The base of the slab that holds an address, or None."""
        index = bisect.bisect_right(self.bases, address) - 1
        if index < 0 or address >= self.bases[index] + self.slab_sizes[self.bases[index]]:
            return None
        return self.bases[index]

    def take_back(self):
        """Joins what has ended, except while cleanup is deferred."""
        if self.deferred:
            return
        while self.ended:
            address, generation = self.ended.popleft()
            if generation is not self.generation:
                continue  # a reset has freed it
            self.join(address, self.living.pop(address))

    def join(self, begin, size):
        base = self.slab_of(begin)
        limit = base + self.slab_sizes[base]
        if begin + size < limit and begin + size in self.holes.by_begin:
            size += self.holes.remove(begin + size)
        if begin > base and begin in self.holes.by_end:
            before = self.holes.by_end[begin]
            size += self.holes.remove(before)
            begin = before
        if size > SLAB and begin == base and begin + size == limit:
            self.end_slab(base)  # a slab of one large block is not worth keeping
        else:
            self.holes.add(begin, size)

    def end_slab(self, base):
        self.bases.remove(base)
        del self.slab_sizes[base]
        to_driver(base)

    def trim(self):
        """Gives slabs without a living block back to the driver."""
        for base in list(self.bases):
            if self.holes.by_begin.get(base) == self.slab_sizes[base]:
                self.holes.remove(base)
                self.end_slab(base)

    def grow(self, size):
        base = from_driver(size)
        bisect.insort(self.bases, base)
        self.slab_sizes[base] = size
        self.holes.add(base, size)
        return base

    def begin_of(self, size):
        """The begin of a hole of at least `size` bytes, new or not."""
        begin = self.holes.best(size)
        if begin is not None:
            return begin
        for each in (max(size, SLAB), size):
            try:
                return self.grow(each)
            except drv.CudaAPIError as error:
                if error.code != OUT_OF_MEMORY:
                    raise
                self.trim()
        return self.grow(size)

    def take(self, size):
        """(address, generation) of a new block."""
        size = max(1, -(-size // ALIGNMENT)) * ALIGNMENT
        with self.lock:
            self.take_back()
            begin = self.begin_of(size)
            hole = self.holes.remove(begin)
            if hole > size:
                self.holes.add(begin + size, hole - size)
            self.living[begin] = size
            return begin, self.generation

    def free_bytes(self):
        with self.lock:
            self.take_back()
            return self.holes.bytes()

    def reset(self):
        with self.lock:
            bases = self.bases
            self.ended.clear()
            self.clear()
            for base in bases:
                to_driver(base)

    @contextlib.contextmanager
    def deferring(self):
        with self.lock:
            self.deferred += 1
        try:
            yield
        finally:
            with self.lock:
                self.deferred -= 1
                self.take_back()


def finalizer_of(ended, block):
    def finalizer():
        ended.append(block)
    return finalizer


class ArenaManager(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.arena = Arena()
        self.process = os.getpid()

    def initialize(self):
        if self.deallocations.memory_capacity == 0:
            self.deallocations.memory_capacity = device_memory()[1]

    def memalloc(self, size):
        if os.getpid() != self.process:
            raise drv.CudaAPIError(NOT_INITIALIZED, "CUDA was initialized before forking")
        try:
            block = self.arena.take(size)
        except drv.CudaAPIError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            self.deallocations.clear()
            block = self.arena.take(size)
        try:
            return cuda.MemoryPointer(self.context, pointer_to(block[0]), size, finalizer=finalizer_of(self.arena.ended, block))
        except BaseException:
            self.arena.ended.append(block)
            raise

    def get_ipc_handle(self, memory):
        address = int(memory.handle) if BINDING else memory.handle.value
        with self.arena.lock:
            base = self.arena.slab_of(address)
        if base is None:
            return super().get_ipc_handle(memory)
        if BINDING:
            handle = drv.driver.cuIpcGetMemHandle(pointer_to(base))
        else:
            handle = drv.drvapi.cu_ipc_mem_handle()
            drv.driver.cuIpcGetMemHandle(ctypes.byref(handle), base)
        return cuda.IpcHandle(memory, handle, memory.size, self.context.device.get_device_identity(), offset=address - base)

    def get_memory_info(self):
        free, total = device_memory()
        return cuda.MemoryInfo(free=free + self.arena.free_bytes(), total=total)

    def reset(self):
        super().reset()
        self.arena.reset()

    @contextlib.contextmanager
    def defer_cleanup(self):
        with super().defer_cleanup():
            with self.arena.deferring():
                yield

    @property
    def interface_version(self):
        return 1


_numba_memory_manager = ArenaManager
