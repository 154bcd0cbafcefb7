"""Finds libemm.so and calls its functions by ctypes. src/core/plugin/emm_plugin.h says what each promises.

Every call releases the GIL, but that of append_with_gil.
"""
import ctypes
import os
import pathlib
import shutil
import sys
import threading
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char, c_char_p, c_double, c_int, c_int32, c_size_t, \
    c_ssize_t, c_ubyte, c_uint32, c_uint64, c_void_p

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_READY, NOT_SUPPORTED = 0, 1, 2, 600, 801
NOT_KNOWN = 2 ** 64 - 1

_HERE = pathlib.Path(__file__).resolve().parent


class EmmError(RuntimeError):
    """A call that failed. `status` is a CUresult, `words` says what happened."""

    def __init__(self, status, words):
        super().__init__(words)
        self.status = status
        self.words = words

    @property
    def is_out_of_memory(self):
        return self.status == OUT_OF_MEMORY


class Memory(Structure):
    _fields_ = [("struct_size", c_size_t), ("token", c_uint64), ("device_pointer", c_uint64),
                ("host_pointer", c_void_p)]


class MemoryInfo(Structure):
    _fields_ = [("struct_size", c_size_t), ("free", c_uint64), ("total", c_uint64)]


class IpcHandle(Structure):
    _fields_ = [("struct_size", c_size_t), ("bytes", c_ubyte * 64), ("offset", c_uint64), ("pci", c_int32 * 3)]


class State(Structure):
    _fields_ = [("struct_size", c_size_t), ("live_bytes", c_uint64), ("reserved_bytes", c_uint64),
                ("largest_free_bytes", c_uint64), ("pending_count", c_uint64), ("pending_bytes", c_uint64)]


class Statistic(Structure):
    _fields_ = [("name", c_char_p), ("value", c_uint64)]


class ManagerInfo(Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("summary", c_char_p), ("options", c_char_p)]


def made(kind):
    """A struct with its size in its first member, as the library wants it."""
    return kind(struct_size=ctypes.sizeof(kind))


_SELF = c_void_p
# The slots of emm_plugin_table_v1 after its head, in their order.
_SLOTS = [
    ("create", CFUNCTYPE(c_int32, c_void_p, POINTER(c_void_p))),
    ("destroy", CFUNCTYPE(None, _SELF)),
    ("last_error", CFUNCTYPE(c_size_t, _SELF, c_char_p, c_size_t)),
    ("initialize", CFUNCTYPE(c_int32, _SELF)),
    ("memalloc", CFUNCTYPE(c_int32, _SELF, c_uint64, c_uint64, POINTER(Memory))),
    ("free", CFUNCTYPE(c_int32, _SELF, c_uint64, c_uint64)),
    ("memhostalloc", CFUNCTYPE(c_int32, _SELF, c_uint64, c_uint32, POINTER(Memory))),
    ("mempin", CFUNCTYPE(c_int32, _SELF, c_void_p, c_uint64, c_uint32, POINTER(Memory))),
    ("memallocmanaged", CFUNCTYPE(c_int32, _SELF, c_uint64, c_uint32, POINTER(Memory))),
    ("get_ipc_handle", CFUNCTYPE(c_int32, _SELF, c_uint64, c_uint64, POINTER(IpcHandle))),
    ("get_memory_info", CFUNCTYPE(c_int32, _SELF, POINTER(MemoryInfo))),
    ("reset", CFUNCTYPE(None, _SELF)),
    ("defer_cleanup", CFUNCTYPE(None, _SELF)),
    ("end_defer_cleanup", CFUNCTYPE(None, _SELF)),
    ("interface_version", CFUNCTYPE(c_int32, _SELF)),
    ("flush", CFUNCTYPE(c_int32, _SELF)),
    ("state", CFUNCTYPE(None, _SELF, POINTER(State))),
    ("report", CFUNCTYPE(c_size_t, _SELF, c_char_p, c_size_t)),
    ("trim", CFUNCTYPE(c_int32, _SELF, c_uint64)),
    ("statistics", CFUNCTYPE(c_size_t, _SELF, POINTER(Statistic), c_size_t)),
]


class _Table(Structure):
    _fields_ = [("struct_size", c_size_t), ("abi_version", c_uint32), ("flags", c_uint32), ("name", c_char_p),
                ("summary", c_char_p), ("options", c_char_p)] + _SLOTS


_FUNCTIONS = {
    "emm_plugin_v1": (POINTER(_Table), []),
    "emm_bundled_manager": (c_int32, [c_size_t, POINTER(ManagerInfo)]),
    "emm_trace_open": (c_int32, [c_char_p, c_char_p, POINTER(c_void_p)]),
    "emm_trace_append": (c_int32, [c_void_p, c_char_p]),
    "emm_trace_flush": (c_int32, [c_void_p]),
    "emm_trace_close": (c_int32, [c_void_p]),
    "emm_trace_end": (c_int32, [c_void_p, c_uint64]),
    "emm_trace_convert": (c_int32, [c_char_p, c_char_p]),
    "emm_shared_record": (None, [c_void_p, c_uint64]),
    "emm_trace_error": (c_size_t, [c_char_p, c_size_t]),
    "emm_shared_use": (c_int32, [c_char_p, c_uint32]),
    "emm_shared_manager": (c_int32, [c_int32, POINTER(c_void_p)]),
    "emm_shared_end": (c_int32, [c_int32]),
    "emm_shared_reset_peaks": (c_int32, [c_int32]),
    "emm_shared_abandon": (None, [c_int32]),
    "emm_shared_error": (c_size_t, [c_char_p, c_size_t]),
    "emm_shared_status": (c_int32, []),
    "emm_torch_alloc": (c_void_p, [c_ssize_t, c_int, c_void_p]),
    "emm_torch_free": (None, [c_void_p, c_ssize_t, c_int, c_void_p]),
    "emm_torch_record_stream": (None, [c_void_p, c_void_p]),
    "emm_torch_reset": (None, []),
    "emm_torch_base_alloc": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "emm_torch_memory_fraction": (None, [c_double, c_int]),
    "emm_torch_begin_allocate_to_pool": (None, [c_int, c_uint64, c_uint64, c_void_p]),
    "emm_torch_end_allocate_to_pool": (None, [c_int, c_uint64, c_uint64]),
    "emm_torch_release_pool": (None, [c_int, c_uint64, c_uint64]),
    "emm_cupy_malloc": (c_void_p, [c_void_p, c_size_t, c_int]),
    "emm_cupy_free": (None, [c_void_p, c_void_p, c_int]),
}


class Library:
    """The loaded library: a function of its own for each of _FUNCTIONS, and the slots of its table."""

    def __init__(self, path):
        self.path = path
        self.dll = ctypes.CDLL(path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(self.dll, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        # Between a row and what it tells of no other thread of Python's comes by. It waits for nobody who needs the GIL.
        self.append_with_gil = ctypes.PyDLL(path).emm_trace_append
        self.append_with_gil.restype, self.append_with_gil.argtypes = _FUNCTIONS["emm_trace_append"]
        table = self.emm_plugin_v1().contents
        if table.struct_size < ctypes.sizeof(_Table):
            raise OSError("%s is of an older emmctl" % path)
        for name, _ in _SLOTS:
            setattr(self, name, getattr(table, name))

    def address_of(self, name):
        """The address of a function, for callers that take a number."""
        return ctypes.cast(getattr(self.dll, name), c_void_p).value


def text_of(ask):
    """The text that `ask(buffer, size)` writes."""
    buffer = (c_char * 1024)()
    size = ask(buffer, len(buffer))  # without ctypes.cast(), which makes a cycle for the garbage collector
    if size >= len(buffer):
        buffer = (c_char * (size + 1))()
        ask(buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace")


def candidates():
    """Where the library may be, best first."""
    named = os.environ.get("EMM_LIBRARY")
    if named:
        return [named]
    folders = [_HERE, _HERE / "_installed" / "lib",  # of a wheel
               _HERE.parent.parent.parent / "build" / "release" / "lib"]  # of a checkout
    folders += [above / "lib" for above in (*_HERE.parents, pathlib.Path(sys.prefix))]  # of an installed prefix
    found = [str(folder / "libemm.so") for folder in folders if (folder / "libemm.so").is_file()]
    return found + [os.environ.get("EMM_RECORD_WRITER", "libemm.so")]  # that of the emmctl record which runs this program


def program():
    """The path of the program emmctl: EMM_PROGRAM, a wheel's, a checkout's, an installed prefix's, the path's."""
    named = os.environ.get("EMM_PROGRAM")
    if named:
        return named
    folders = [_HERE / "_installed" / "bin", _HERE.parent.parent.parent / "build" / "release" / "bin"]
    folders += [above / "bin" for above in _HERE.parents]
    for folder in folders:
        if (folder / "emmctl").is_file():
            return str(folder / "emmctl")
    found = shutil.which("emmctl")
    if found is None:
        raise ImportError("the program emmctl is not installed; EMM_PROGRAM names it")
    return found


def prefix():
    """The folder that emmctl is installed in, for CMAKE_PREFIX_PATH."""
    return str(pathlib.Path(os.path.realpath(program())).parent.parent)


_loaded = None
_loading = threading.Lock()


def library():
    """The library, loaded at the first call. ImportError names the paths that were tried."""
    global _loaded
    if _loaded is None:
        with _loading:
            if _loaded is None:
                try:
                    _loaded = Library(candidates()[0])
                except (OSError, AttributeError) as error:  # AttributeError: an older one lacks a function
                    raise ImportError("emmctl needs libemm.so: %s. EMM_LIBRARY names it; in a checkout of emmctl "
                                      "`cmake --preset release && cmake --build --preset release --target libemm` "
                                      "builds it" % error) from None
    return _loaded


def library_path():
    return library().path


def check(status, ask):
    """Raises EmmError for a status other than success, with the words that `ask(buffer, size)` writes."""
    if status != SUCCESS:
        raise EmmError(status, text_of(ask))


def bundled_managers():
    """The managers of the library: name, summary and known options of each."""
    found, info = [], made(ManagerInfo)
    while library().emm_bundled_manager(len(found), byref(info)) == SUCCESS:
        found.append((info.name.decode(), info.summary.decode(), info.options.decode()))
        info = made(ManagerInfo)
    return found
