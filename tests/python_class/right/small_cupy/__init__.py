"""As much of CuPy's memory pool as the prototype's manager needs."""
import ctypes
import threading

cudart = ctypes.CDLL("libcudart.so")
ROUNDED_TO = 512


class OutOfMemoryError(MemoryError):
    pass


class Chunk:
    """Memory from a pool. It goes back when the object ends."""

    def __init__(self, pool, pointer, size):
        self.pool, self.ptr, self.size = pool, pointer, size

    def __del__(self):
        self.pool.give_back(self.ptr, self.size)


class MemoryPool:
    """Keeps freed blocks by their size."""

    def __init__(self):
        self.idle, self.idle_bytes, self.used_bytes_ = {}, 0, 0
        self.lock = threading.RLock()

    def malloc(self, size):
        size = max(size + ROUNDED_TO - 1 & ~(ROUNDED_TO - 1), ROUNDED_TO)
        pointer = None
        with self.lock:
            same = self.idle.get(size)
            if same:
                pointer = same.pop()
                self.idle_bytes -= size
        if pointer is None:
            pointer = self.from_device(size)  # without the lock, so that no free waits for the driver
        with self.lock:
            self.used_bytes_ += size
        return Chunk(self, pointer, size)

    def from_device(self, size):
        if size >= 1 << 63:
            raise OutOfMemoryError("Out of memory allocating %d bytes" % size)
        pointer = ctypes.c_void_p()
        code = cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size))
        if code == 2:
            self.free_all_blocks()
            code = cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size))
        if code == 2:
            raise OutOfMemoryError("Out of memory allocating %d bytes" % size)
        if code != 0:
            raise RuntimeError("cudaMalloc answered %d" % code)
        return pointer.value

    def give_back(self, pointer, size):
        with self.lock:
            self.idle.setdefault(size, []).append(pointer)
            self.idle_bytes += size
            self.used_bytes_ -= size

    def free_all_blocks(self):
        with self.lock:
            blocks, self.idle, self.idle_bytes = self.idle, {}, 0
        for pointers in blocks.values():
            for pointer in pointers:
                cudart.cudaFree(ctypes.c_void_p(pointer))

    def free_bytes(self):
        return self.idle_bytes

    def total_bytes(self):
        return self.idle_bytes + self.used_bytes_
