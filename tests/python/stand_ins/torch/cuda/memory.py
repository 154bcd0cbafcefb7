import ctypes

import torch._C

_P, _N = ctypes.c_void_p, ctypes.c_ssize_t
_OF = {
    "set_reset_fn": ctypes.CFUNCTYPE(None),
    "set_memory_fraction_fn": ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_int),
    "set_base_alloc_fn": ctypes.CFUNCTYPE(_P, _P, ctypes.POINTER(ctypes.c_size_t)),
    "set_record_stream_fn": ctypes.CFUNCTYPE(None, _P, _P),
    # MempoolId_t, two numbers, goes in registers; std::function by its address.
    "set_begin_allocate_to_pool": ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, _P),
    "set_end_allocate_to_pool_fn": ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64),
    "set_release_pool": ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64),
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


_MANAGE = ctypes.CFUNCTYPE(ctypes.c_bool, _P, _P, ctypes.c_int)
_INVOKE = ctypes.CFUNCTYPE(ctypes.c_bool, _P, ctypes.POINTER(_P))


class _Function(ctypes.Structure):
    """libstdc++'s std::function<bool(cudaStream_t)> of a function without a state."""

    _fields_ = [("state", _P * 2), ("manage", _MANAGE), ("invoke", _INVOKE)]


class graph:
    """`with graph(stream):` is a capture; release() is the end of its torch.cuda.CUDAGraph."""

    _last = 0

    def __init__(self, stream, pool=None):
        if pool is None:
            graph._last += 1
            pool = graph._last, 0
        self.pool = pool
        self._takes = _Function((None, None), _MANAGE(lambda to, of, ask: False),
                                _INVOKE(lambda state, asked: asked[0] == stream))

    def __enter__(self):
        current.given["set_begin_allocate_to_pool"](0, *self.pool, ctypes.addressof(self._takes))
        return self

    def __exit__(self, *exception):
        current.given["set_end_allocate_to_pool_fn"](0, *self.pool)

    def release(self):
        current.given["set_release_pool"](0, *self.pool)


def empty_cache():
    current.given["set_reset_fn"]()


def set_per_process_memory_fraction(fraction, device=0):
    torch._C._cuda_setMemoryFraction(fraction, device)


def get_per_process_memory_fraction(device=0):
    return torch._C._cuda_getMemoryFraction(device)


def memory_stats(device=None):
    """Flat, from what C++ nests."""
    flat = {}

    def take(before, inside):
        for name, value in inside.items():
            if isinstance(value, dict):
                take(before + name + ".", value)
            else:
                flat[before + name] = value
    take("", torch._C._cuda_memoryStats(device or 0))
    return flat


def memory_allocated(device=None):
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device=None):
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device=None):
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device=None):
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def memory_summary(device=None, abbreviated=False):
    return str(memory_stats(device)["allocated_bytes.small_pool.current"])


def reset_peak_memory_stats(device=None):
    torch._C._cuda_resetPeakMemoryStats(device or 0)


def reset_accumulated_memory_stats(device=None):
    torch._C._cuda_resetAccumulatedMemoryStats(device or 0)


def memory_snapshot():
    return torch._C._cuda_memorySnapshot()


def base_allocation(block):
    size = ctypes.c_size_t()
    return current.given["set_base_alloc_fn"](block.ptr, ctypes.byref(size)), size.value
