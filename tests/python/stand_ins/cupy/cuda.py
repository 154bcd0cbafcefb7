import ctypes
import types

from cupy_backends.cuda import stream as _stream

_MALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
DEVICE = 0


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total=0, limit=0):
        super().__init__("Out of memory allocating %s bytes (allocated so far: %s bytes)" % (size, total))


memory = types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError)


class _Memory:
    def __init__(self, size, malloc, free):
        self.size, self.ptr, self._free = size, malloc(size, DEVICE) if size else 0, free

    def __del__(self):
        if self.ptr:
            self._free(self.ptr, DEVICE)


class CFunctionAllocator:
    def __init__(self, param, malloc_func, free_func, owner):
        malloc = ctypes.PYFUNCTYPE(*([_MALLOC._restype_] + list(_MALLOC._argtypes_)))(malloc_func)  # the GIL is held
        free = _FREE(free_func)
        self._make = lambda size: _Memory(size, lambda n, d: malloc(param, n, d) or 0, lambda p, d: free(param, p, d))
        self._owner = owner

    def malloc(self, size):
        return self._make(size)


class PythonFunctionAllocator:
    def __init__(self, malloc_func, free_func):
        self._functions = malloc_func, free_func

    def malloc(self, size):
        return _Memory(size, *self._functions)


_allocator = None


def set_allocator(allocator):
    global _allocator
    _allocator = allocator


def alloc(size):
    return _allocator(size)


class Stream:
    def __init__(self, ptr=2, non_blocking=False):
        self.ptr = ptr

    def __enter__(self):
        self._before, _stream.current = _stream.current, self.ptr
        return self

    def __exit__(self, *exception):
        _stream.current = self._before


Stream.null = Stream(0)


def get_current_stream():
    return Stream(_stream.current)


class MemoryPool:
    def __init__(self):
        from served_allocator import Bump
        self._bump = Bump(DEVICE)

    def malloc(self, size):
        memory = _Memory(size, lambda n, d: self._bump.allocate(n, 0)[1], lambda p, d: self._bump.free(p, 0))
        return memory

    def total_bytes(self):
        return self._bump.reserved_bytes()

    def free_all_blocks(self):
        pass


class Device:
    def __init__(self, device):
        pass

    def use(self):
        pass


device = types.SimpleNamespace(get_device_id=lambda: DEVICE)


class UnownedMemory:
    def __init__(self, ptr, size, owner, device_id=-1):
        self.ptr, self.size, self._owner, self.device_id = ptr, size, owner, device_id


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.ptr = mem, mem.ptr + offset


def get_allocator():
    return _allocator
