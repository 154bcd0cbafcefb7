"""Numba's own memory manager, writing down every call made to it, one JSON line a call.

The rows are those that emmctl imports as numba-calls. For the Numba of Debian, 0.56, whose pointers are ctypes
values.
"""
import contextlib
import json
import os
import threading
import time

from numba.cuda.cudadrv import driver as numba_driver


class _Rows:
    def __init__(self, path):
        self._file = open(path, "w", buffering=1)
        self._lock = threading.Lock()
        self._seq = 0
        self._start = time.monotonic_ns()

    def add(self, op, **members):
        with self._lock:
            self._seq += 1
            members.update(op=op, seq=self._seq, t_ns=time.monotonic_ns() - self._start,
                           tid=threading.get_native_id())
            self._file.write(json.dumps(members) + "\n")


_rows = _Rows(os.environ["NUMBA_CALLS"]) if "NUMBA_CALLS" in os.environ else None


def _value(pointer):
    return pointer if isinstance(pointer, int) else pointer.value


class _Pending(numba_driver._PendingDeallocs):
    """Numba's queue, saying what goes in and when it empties."""

    def add_item(self, dtor, handle, size=numba_driver._SizeNotSet):
        name = dtor.__name__.removesuffix("_v2")  # as the library spells it
        if name in ("cuMemFree", "cuMemFreeHost"):
            _rows.add("pending_add", dtor=name, ptr=_value(handle), size=int(size))
        super().add_item(dtor, handle, size)

    def clear(self):
        if not self.is_disabled and len(self) != 0:
            count, size = len(self), self._size
            _rows.add("pending_flush", n=count, bytes=int(size))
        super().clear()


_pin_finalizer = numba_driver._pin_finalizer


def _recorded_pin_finalizer(manager, ptr, alloc_key, mapped):
    unpin = _pin_finalizer(manager, ptr, alloc_key, mapped)

    def core():
        _rows.add("unpin", ptr=alloc_key)
        unpin()
    return core


numba_driver._pin_finalizer = _recorded_pin_finalizer


class RecordingManager(numba_driver.NumbaCUDAMemoryManager):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.deallocations = _Pending()

    def initialize(self):
        _rows.add("initialize")
        super().initialize()

    def memalloc(self, size):
        memory = super().memalloc(size)
        _rows.add("alloc", size=size, ptr=memory.device_ctypes_pointer.value)
        return memory

    def memallocmanaged(self, size, attach_global):
        memory = super().memallocmanaged(size, attach_global)
        _rows.add("managed", size=size, attach_global=attach_global, ptr=memory.device_ctypes_pointer.value)
        return memory

    def memhostalloc(self, size, mapped=False, portable=False, wc=False):
        memory = super().memhostalloc(size, mapped, portable, wc)
        _rows.add("hostalloc", size=size, mapped=mapped, portable=portable, wc=wc, ptr=_value(memory.host_pointer))
        return memory

    def mempin(self, owner, pointer, size, mapped=False):
        memory = super().mempin(owner, pointer, size, mapped)
        _rows.add("pin", size=size, mapped=mapped, ptr=_value(pointer))
        return memory

    def get_ipc_handle(self, memory):
        handle = super().get_ipc_handle(memory)
        _rows.add("ipc_export", ptr=memory.device_ctypes_pointer.value, size=memory.size, offset=handle.offset)
        return handle

    def get_memory_info(self):
        info = super().get_memory_info()
        _rows.add("memory_info", free=info.free, total=info.total)
        return info

    def reset(self):
        _rows.add("reset")
        super().reset()

    @contextlib.contextmanager
    def defer_cleanup(self):
        _rows.add("defer_begin")
        try:
            with super().defer_cleanup():
                yield
        finally:
            _rows.add("defer_end")


_numba_memory_manager = RecordingManager
