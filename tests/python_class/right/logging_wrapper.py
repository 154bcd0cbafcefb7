"""Writes down what another manager, Numba's own, is asked for."""
import collections
import dataclasses
import logging
import weakref

from numba import cuda
from numba.cuda.cudadrv.driver import NumbaCUDAMemoryManager

log = logging.getLogger("memory")


@dataclasses.dataclass(frozen=True)
class Request:
    operation: str
    size: int


@dataclasses.dataclass
class Book:
    requests: collections.deque = dataclasses.field(default_factory=lambda: collections.deque(maxlen=1000))
    ended: collections.deque = dataclasses.field(default_factory=lambda: collections.deque(maxlen=1000))

    def write(self, operation, size):
        self.requests.append(Request(operation, size))
        log.debug("%s %d", operation, size)

    def end(self, size):
        self.ended.append(size)


class LoggingManager(cuda.BaseCUDAMemoryManager):
    kind = NumbaCUDAMemoryManager

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.inner, self.book = self.kind(context=self.context), Book()

    def given(self, operation, memory):
        self.book.write(operation, memory.size)
        weakref.finalize(memory, self.book.end, memory.size).atexit = False
        return memory

    def initialize(self):
        self.inner.initialize()

    def memalloc(self, size):
        return self.given("memalloc", self.inner.memalloc(size))

    def memhostalloc(self, size, mapped, portable, wc):
        return self.given("memhostalloc", self.inner.memhostalloc(size, mapped, portable, wc))

    def mempin(self, owner, pointer, size, mapped):
        return self.given("mempin", self.inner.mempin(owner, pointer, size, mapped))

    def memallocmanaged(self, size, attach_global):
        return self.given("memallocmanaged", self.inner.memallocmanaged(size, attach_global))

    def get_ipc_handle(self, memory):
        self.book.write("get_ipc_handle", memory.size)
        return self.inner.get_ipc_handle(memory)

    def get_memory_info(self):
        return self.inner.get_memory_info()

    def reset(self):
        self.book.write("reset", 0)
        self.inner.reset()

    def defer_cleanup(self):
        return self.inner.defer_cleanup()

    @property
    def interface_version(self):
        return self.inner.interface_version


_numba_memory_manager = LoggingManager
