"""The size classes' class, made wrong. BREAKS names for each the clause of its rule."""
import collections
import ctypes
import dataclasses
import pathlib
import sys

from numba import cuda
from numba.cuda.cudadrv import driver as drv

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "right"))
from size_classes import Cache, Settings, SizeClassManager, cudart, finalizer_of, to_driver  # noqa: E402


def with_cache(manager, kind):
    """The manager's cache is of another class."""
    manager.cache = kind(manager.cache.settings)


class SizeOfBlock(SizeClassManager):
    """The memory has the size of its block."""

    def memalloc(self, size):
        address = self.cache.take(size)
        return cuda.MemoryPointer(self.context, ctypes.c_uint64(address), self.cache.settings.class_of(size),
                                  finalizer=finalizer_of(self.cache, address))


@dataclasses.dataclass(frozen=True)
class Floor(Settings):
    def class_of(self, size):
        return size if size > self.largest else max(self.least, 1 << max(size, 1).bit_length() - 1)


class RoundsDown(SizeClassManager):
    """A block may be smaller than what is asked for."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cache = Cache(Floor())


shared = Cache(Settings())


class OneCacheForAll(SizeClassManager):
    """The cache belongs to the factory, so that managers of all devices draw on it."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cache = shared


class GivesTwice(SizeClassManager):
    """A freed block waits twice, and is handed out twice."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

        class Twice(Cache):
            def give(self, address):
                block = self.living.get(address)
                if block in self.waiting:
                    self.waiting[block].append(address)
                super().give(address)
        with_cache(self, Twice)


class ForgetsLiving(SizeClassManager):
    """reset() makes a new cache, and what lived goes back to the old one, which nobody empties."""

    def reset(self):
        cuda.HostOnlyCUDAMemoryManager.reset(self)
        self.cache.trim()
        self.cache = Cache(self.cache.settings)


class ReturnsAfterReset(SizeClassManager):
    """reset() frees what lives; its finalizer puts the freed block among those that wait."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

        class Returns(Cache):
            def take(self, size):
                address = super().take(size)
                self.sizes = getattr(self, "sizes", {})
                self.sizes[address] = self.settings.class_of(size)
                return address

            def give(self, address):
                self.living.pop(address, None)
                block = self.sizes.get(address)
                if block in self.waiting:
                    self.waiting[block].append(address)
                elif block:
                    to_driver(address)
        with_cache(self, Returns)


class InfoCountsLiving(SizeClassManager):
    """What is handed out counts as free."""

    def get_memory_info(self):
        info = super().get_memory_info()
        return cuda.MemoryInfo(info.free + sum(self.cache.living.values()), info.total)


class InfoTotalOfCache(SizeClassManager):
    """The total is that of the cache, and free that of the device."""

    def get_memory_info(self):
        info = super().get_memory_info()
        return cuda.MemoryInfo(info.free, sum(self.cache.living.values()) + self.cache.waiting_bytes())


class LargeIsLost(SizeClassManager):
    """What is larger than the largest class is never freed."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

        class Loses(Cache):
            def give(self, address):
                block = self.living.pop(address, None)
                if block in self.waiting:
                    self.waiting[block].append(address)
        with_cache(self, Loses)


class FailureIsNull(SizeClassManager):
    """Where the driver refuses, memory without an address is given."""

    def memalloc(self, size):
        try:
            return super().memalloc(size)
        except drv.CudaAPIError:
            return cuda.MemoryPointer(self.context, ctypes.c_uint64(0), size)


@dataclasses.dataclass(frozen=True)
class AllClasses(Settings):
    def class_of(self, size):
        return max(self.least, 1 << (max(size, 1) - 1).bit_length())


class WrapsAround(SizeClassManager):
    """A request of more than 2**63 bytes is rounded to 2**64, which is 0 to the driver's type."""

    def memalloc(self, size):
        block = AllClasses().class_of(size)
        pointer = ctypes.c_void_p()
        code = cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(max(block % (1 << 64), 512)))
        if code != 0:
            raise drv.CudaAPIError(code, "cudaMalloc of %d bytes" % size)
        return cuda.MemoryPointer(self.context, ctypes.c_uint64(pointer.value), size,
                                  finalizer=lambda: to_driver(pointer.value))


class NewCacheEachTime(SizeClassManager):
    """Each initialize() makes a new cache."""

    def initialize(self):
        self.cache = Cache(self.cache.settings)


class LooksThenTakes(SizeClassManager):
    """Another thread may come between the look and the taking."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

        class Looks(Cache):
            def take(self, size):
                block = self.settings.class_of(size)
                address = None
                if self.waiting.get(block):
                    address = self.waiting[block][-1]
                    self.waiting[block].pop()
                if address is None:
                    address = self.ask(block)
                self.living[address] = block
                return address
        with_cache(self, Looks)


class FreesOldestFirst(SizeClassManager):
    """Each class keeps four blocks at most; what is put out is forgotten, not freed."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for size in self.cache.waiting:
            self.cache.waiting[size] = collections.deque(maxlen=4)


class SetDeviceZero(SizeClassManager):
    """Each request goes to the first device."""

    def memalloc(self, size):
        cudart.cudaSetDevice(0)
        return super().memalloc(size)


BREAKS = {
    "SizeOfBlock": "DEV-1", "RoundsDown": "live/overlap_address", "OneCacheForAll": "class/devices", "GivesTwice": "live/overlap_address",
    "ForgetsLiving": "accounts/balance", "ReturnsAfterReset": "DEV-11", "InfoCountsLiving": "memory_info/true",
    "InfoTotalOfCache": "memory_info/true", "LargeIsLost": "accounts/balance", "FailureIsNull": "class/out_of_memory",
    "WrapsAround": "class/out_of_memory", "NewCacheEachTime": "class/initialize", "LooksThenTakes": "class/threads",
    "FreesOldestFirst": "threads/ended", "SetDeviceZero": "class/devices",
}
