"""The class that writes down what another is asked for, made wrong. BREAKS names for each the clause of its rule."""
import ctypes
import pathlib
import sys
import threading
import weakref

from numba import cuda

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "right"))
from logging_wrapper import LoggingManager  # noqa: E402


class DropsArguments(LoggingManager):
    def memhostalloc(self, size, mapped, portable, wc):
        return self.given("memhostalloc", self.inner.memhostalloc(size))


class KeepsWhatIsGiven(LoggingManager):
    """The book has the memory itself."""

    def given(self, operation, memory):
        self.book.requests.append((operation, memory))
        return memory


class ForgetsReset(LoggingManager):
    def reset(self):
        self.book.write("reset", 0)


class InfoWithoutReturn(LoggingManager):
    def get_memory_info(self):
        self.book.write("get_memory_info", 0)
        self.inner.get_memory_info()


class HandleWithoutReturn(LoggingManager):
    def get_ipc_handle(self, memory):
        self.inner.get_ipc_handle(memory)


class AsksInInit(LoggingManager):
    """Its __init__ asks CUDA for the device's name."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.name = cuda.get_current_device().name


class OneInnerForAll(LoggingManager):
    """All managers share the first one's."""
    inner_of_all = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.context is not None:
            if OneInnerForAll.inner_of_all is None:
                OneInnerForAll.inner_of_all = self.inner
            self.inner = OneInnerForAll.inner_of_all


class ErrorWithoutText(LoggingManager):
    """What it writes about a failure fails itself."""

    def memalloc(self, size):
        try:
            return super().memalloc(size)
        except Exception as error:
            self.book.write("failed: " + error.args[2], size)
            raise


class LocksItsBook(LoggingManager):
    """The end of memory waits for the lock under which a request is written down."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.lock = threading.Lock()

    def given(self, operation, memory):
        with self.lock:
            self.book.write(operation, memory.size)
            size = memory.size
        weakref.finalize(memory, self.ended, self.lock, self.book, size).atexit = False
        return memory

    @staticmethod
    def ended(lock, book, size):
        with lock:
            book.end(size)


class WrapsAddress(LoggingManager):
    """The memory is wrapped anew, and what it was made of ends."""

    def memalloc(self, size):
        memory = super().memalloc(size)
        return cuda.MemoryPointer(self.context, ctypes.c_uint64(memory.device_pointer_value or 0), size)


class AttachInverted(LoggingManager):
    def memallocmanaged(self, size, attach_global):
        return super().memallocmanaged(size, not attach_global)


class OwnerIsNobody(LoggingManager):
    def mempin(self, owner, pointer, size, mapped):
        return self.given("mempin", self.inner.mempin(None, pointer, size, mapped))


class OfMainThread(LoggingManager):
    """The end of memory is written down on one thread alone."""

    def given(self, operation, memory):
        weakref.finalize(memory, self.ended, threading.get_ident()).atexit = False
        return memory

    @staticmethod
    def ended(thread):
        if threading.get_ident() != thread:
            raise RuntimeError("memory ended on another thread")


class KeepsFrames(LoggingManager):
    """The book has the frames of the callers, and so their memory."""

    def memalloc(self, size):
        memory = self.inner.memalloc(size)
        self.book.requests.append(("memalloc", sys._getframe()))
        return memory


class BookedHandle(cuda.IpcHandle):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.closed = lambda: None

    def __reduce__(self):
        return BookedHandle, (None, self.handle, self.size, self.source_info, self.offset), {"closed": self.closed}


class HandleHasBook(LoggingManager):
    """The handle has what cannot be pickled."""

    def get_ipc_handle(self, memory):
        handle = super().get_ipc_handle(memory)
        return BookedHandle(handle.base, handle.handle, handle.size, handle.source_info, handle.offset)


class InfoIsSwallowed(LoggingManager):
    """What it cannot tell is told as nothing."""

    def get_memory_info(self):
        return cuda.MemoryInfo(0, 0)


BREAKS = {
    "DropsArguments": "flags/memhostalloc", "KeepsWhatIsGiven": "class/end", "ForgetsReset": "class/reset", "InfoWithoutReturn": "INF-7",
    "HandleWithoutReturn": "class/ipc_handle", "AsksInInit": "class/staged", "OneInnerForAll": "PTR-14",
    "ErrorWithoutText": "class/out_of_memory", "LocksItsBook": "class/finalizer", "WrapsAddress": "live/overlap_address",
    "AttachInverted": "flags/memallocmanaged", "OwnerIsNobody": "class/owner", "OfMainThread": "class/finalizer_thread",
    "KeepsFrames": "class/end", "HandleHasBook": "class/ipc_handle", "InfoIsSwallowed": "memory_info/true",
}
