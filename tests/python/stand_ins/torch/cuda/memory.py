import ctypes

_P, _N = ctypes.c_void_p, ctypes.c_ssize_t
_OF = {
    "set_reset_fn": ctypes.CFUNCTYPE(None),
    "set_memory_fraction_fn": ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_int),
    "set_base_alloc_fn": ctypes.CFUNCTYPE(_P, _P, ctypes.POINTER(ctypes.c_size_t)),
    "set_record_stream_fn": ctypes.CFUNCTYPE(None, _P, _P),
}


class _Inner:
    def __init__(self, library, alloc, free):
        self.alloc = ctypes.CFUNCTYPE(_P, _N, ctypes.c_int, _P)((alloc, library))
        self.free = ctypes.CFUNCTYPE(None, _P, _N, ctypes.c_int, _P)((free, library))
        self.given = {}
        for setter, kind in _OF.items():
            setattr(self, setter, lambda address, s=setter, k=kind: self.given.__setitem__(s, k(address)))


class CUDAPluggableAllocator:
    def __init__(self, path_to_so_file, alloc_fn_name, free_fn_name):
        self._allocator = _Inner(ctypes.CDLL(path_to_so_file), alloc_fn_name, free_fn_name)

    def allocator(self):
        return self._allocator


current = None


def change_current_allocator(allocator):
    global current
    current = allocator._allocator


class Block:
    """A tensor's storage."""

    def __init__(self, size, device=0, stream=0):
        self.kept = size, device, stream
        self.ptr = current.alloc(size, device, stream)

    def __del__(self):
        if getattr(self, "ptr", None):
            current.free(self.ptr, *self.kept)

    def record_stream(self, stream):
        current.given["set_record_stream_fn"](self.ptr, stream)


def empty_cache():
    current.given["set_reset_fn"]()


def set_per_process_memory_fraction(fraction, device=0):
    current.given["set_memory_fraction_fn"](fraction, device)


def base_allocation(block):
    size = ctypes.c_size_t()
    return current.given["set_base_alloc_fn"](block.ptr, ctypes.byref(size)), size.value
