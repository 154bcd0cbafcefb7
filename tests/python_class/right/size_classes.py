"""A class that a factory makes: freed blocks wait by their size, a power of two. Settings and figures are dataclasses."""
import collections
import ctypes
import dataclasses

from numba import cuda
from numba.cuda.cudadrv import driver as drv

cudart = ctypes.CDLL("libcudart.so")
# Numba wants NVIDIA's pointers where it calls the driver by NVIDIA's bindings, and those of ctypes elsewhere.
device_pointer = drv.binding.CUdeviceptr if getattr(drv, "binding", None) else ctypes.c_uint64


@dataclasses.dataclass(frozen=True)
class Settings:
    least: int = 512
    largest: int = 32 << 20  # what is larger goes straight to the driver

    def sizes(self):
        size = self.least
        while size <= self.largest:
            yield size
            size *= 2

    def class_of(self, size):
        """The bytes of a block for a request."""
        return size if size > self.largest else max(self.least, 1 << (max(size, 1) - 1).bit_length())


def from_driver(size):
    pointer = ctypes.c_void_p()
    code = cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)) if size < 1 << 63 else 2
    if code != 0:
        raise drv.CudaAPIError(code, "cudaMalloc of %d bytes" % size)
    return pointer.value


def to_driver(address):
    cudart.cudaFree(ctypes.c_void_p(address))


@dataclasses.dataclass
class Cache:
    """The blocks of one manager. A finalizer may run at any line, so each step is one call of a container."""
    settings: Settings
    waiting: dict = dataclasses.field(default_factory=dict)  # addresses by the size of their blocks
    living: dict = dataclasses.field(default_factory=dict)  # the size of a block by its address

    def __post_init__(self):
        for size in self.settings.sizes():
            self.waiting[size] = collections.deque()

    def take(self, size):
        block = self.settings.class_of(size)
        try:
            address = self.waiting[block].pop()
        except LookupError:
            address = self.ask(block)
        self.living[address] = block
        return address

    def ask(self, block):
        try:
            return from_driver(block)
        except drv.CudaAPIError as error:
            if error.code != 2:
                raise
            self.trim()
            return from_driver(block)

    def give(self, address):
        block = self.living.pop(address, None)
        if block is None:
            return  # a reset has freed it
        if block in self.waiting:
            self.waiting[block].append(address)
        else:
            to_driver(address)

    def trim(self):
        for addresses in self.waiting.values():
            while addresses:
                to_driver(addresses.pop())

    def end(self):
        while self.living:
            to_driver(self.living.popitem()[0])
        self.trim()

    def waiting_bytes(self):
        return sum(size * len(addresses) for size, addresses in self.waiting.items())


def finalizer_of(cache, address):
    def finalizer():
        cache.give(address)
    return finalizer


def manager_class(settings):
    """A class of managers with these settings."""
    class SizeClassManager(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.cache = Cache(settings)

        def initialize(self):
            pass

        def memalloc(self, size):
            address = self.cache.take(size)
            return cuda.MemoryPointer(self.context, device_pointer(address), size, finalizer=finalizer_of(self.cache, address))

        def get_memory_info(self):
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            code = cudart.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
            if code != 0:
                raise drv.CudaAPIError(code, "cudaMemGetInfo")
            return cuda.MemoryInfo(free=free.value + self.cache.waiting_bytes(), total=total.value)

        def reset(self):
            super().reset()
            self.cache.end()

        @property
        def interface_version(self):
            return 1
    return SizeClassManager


SizeClassManager = manager_class(Settings())
_numba_memory_manager = SizeClassManager
