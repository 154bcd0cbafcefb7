"""The pool's class, made wrong. BREAKS names for each the clause of its rule."""
import contextlib
import ctypes
import pathlib
import sys

from numba import cuda

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "right"))
import small_cupy  # noqa: E402
from cupy_like import CuPyLikeManager, finalizer_of  # noqa: E402


class ResetForgetsBase(CuPyLikeManager):
    """As the prototype's does."""

    def reset(self):
        self.chunks.clear()
        if self.pool is not None:
            self.pool.free_all_blocks()


class InitializeAnew(CuPyLikeManager):
    """Each initialize() makes another pool, and the blocks of the last are nobody's."""

    def initialize(self):
        self.pool = small_cupy.MemoryPool()


class GuardForgetsBase(CuPyLikeManager):
    @contextlib.contextmanager
    def defer_cleanup(self):
        yield


class ChunkEndsAtOnce(CuPyLikeManager):
    """Nobody keeps the chunk, so that its memory goes back while the pointer lives."""

    def memalloc(self, size):
        chunk = self.pool.malloc(size)
        return cuda.MemoryPointer(self.context, ctypes.c_uint64(chunk.ptr), size)


class ChunkIsKept(CuPyLikeManager):
    """Its finalizer is never run: it holds the pointer."""

    def memalloc(self, size):
        chunk = self.pool.malloc(size)
        memory = cuda.MemoryPointer(self.context, ctypes.c_uint64(chunk.ptr), size, finalizer=lambda: drop(chunk, kept))
        kept = [memory]
        return memory


def drop(chunk, kept):
    kept.clear()


class PopWithoutDefault(CuPyLikeManager):
    """Its finalizer raises after reset()."""

    def memalloc(self, size):
        chunk, chunks = self.pool.malloc(size), self.chunks
        chunks[chunk.ptr] = chunk
        address = chunk.ptr
        del chunk
        return cuda.MemoryPointer(self.context, ctypes.c_uint64(address), size, finalizer=lambda: chunks.pop(address))


class WholeChunk(CuPyLikeManager):
    def memalloc(self, size):
        chunk = self.pool.malloc(size)
        self.chunks[chunk.ptr] = chunk
        return cuda.MemoryPointer(self.context, ctypes.c_uint64(chunk.ptr), chunk.size,
                                  finalizer=finalizer_of(chunk.ptr, self.chunks))


class InfoBackwards(CuPyLikeManager):
    def get_memory_info(self):
        return cuda.MemoryInfo(free=self.pool.total_bytes(), total=self.pool.free_bytes())


class OutOfMemoryIsAssertion(CuPyLikeManager):
    def memalloc(self, size):
        try:
            return super().memalloc(size)
        except MemoryError:
            raise AssertionError("the pool is empty")


pools = []


class PoolsAreKept(CuPyLikeManager):
    def initialize(self):
        super().initialize()
        pools.append(self.reset)


BREAKS = {
    "ResetForgetsBase": "RST-4", "InitializeAnew": "class/initialize", "GuardForgetsBase": "DFR-4",
    "ChunkEndsAtOnce": "live/overlap_address", "ChunkIsKept": "class/end", "PopWithoutDefault": "class/finalizer",
    "WholeChunk": "DEV-1", "InfoBackwards": "memory_info/true", "OutOfMemoryIsAssertion": "class/out_of_memory",
    "PoolsAreKept": "class/collected",
}
