"""All of NBEP 7 over ctypes: stream-ordered device memory, and host memory of its own. weakref.finalize ends each."""
import contextlib
import ctypes
import itertools
import weakref

from numba import cuda
from numba.cuda.cudadrv import driver as drv

cudart = ctypes.CDLL("libcudart.so")
# Numba wants NVIDIA's pointers where it calls the driver by NVIDIA's bindings, and those of ctypes elsewhere.
device_pointer = drv.binding.CUdeviceptr if getattr(drv, "binding", None) else ctypes.c_uint64
PORTABLE, MAPPED, WRITE_COMBINED = 1, 2, 4
REGISTER_MAPPED = 2


def checked(function, *arguments):
    code = function(*arguments)
    if code != 0:
        raise drv.CudaAPIError(code, "%s answered %d" % (function.__name__, code))


class Gate:
    """Frees wait here while it is shut."""

    def __init__(self):
        self.depth, self.held = 0, []

    def do(self, function, *arguments):
        if self.depth:
            self.held.append((function, arguments))
        else:
            function(*arguments)

    def open(self):
        while self.held:
            function, arguments = self.held.pop(0)
            function(*arguments)


def release(ends, number, act, function, *arguments):
    ends.pop(number, None)
    act(function, *arguments)


def at_once(function, *arguments):
    function(*arguments)


class WholeManager(cuda.BaseCUDAMemoryManager):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ends, self.mapped, self.numbers, self.gate = {}, {}, itertools.count(), Gate()

    def initialize(self):
        pass

    def ends_with(self, memory, act, function, *arguments):
        number = next(self.numbers)
        end = weakref.finalize(memory, release, self.ends, number, act, function, *arguments)
        end.atexit = False  # the driver has all back then
        self.ends[number] = end
        return memory

    def memalloc(self, size):
        pointer = ctypes.c_void_p()
        if size >= 1 << 63:
            raise drv.CudaAPIError(2, "%d bytes" % size)
        checked(cudart.cudaMallocAsync, ctypes.byref(pointer), ctypes.c_size_t(size), None)
        memory = cuda.MemoryPointer(self.context, device_pointer(pointer.value or 0), size)
        return self.ends_with(memory, self.gate.do, cudart.cudaFreeAsync, pointer, None)

    def host_memory(self, pointer, size, mapped, owner, act, function):
        host_pointer = pointer.value if getattr(drv, "binding", None) else pointer
        if not mapped:
            return self.ends_with(cuda.PinnedMemory(self.context, host_pointer, size, owner=owner), act, function, pointer)
        living = self.mapped

        def finalizer():
            living.pop(pointer.value, None)
            act(function, pointer)
        try:
            memory = cuda.MappedMemory(self.context, host_pointer, size, owner=owner, finalizer=finalizer)
        except BaseException:
            function(pointer)
            raise
        living[pointer.value] = memory
        return memory.own()  # a buffer, which MappedMemory itself is not

    def memhostalloc(self, size, mapped, portable, wc):
        pointer = ctypes.c_void_p()
        flags = (PORTABLE if portable else 0) | (MAPPED if mapped else 0) | (WRITE_COMBINED if wc else 0)
        checked(cudart.cudaHostAlloc, ctypes.byref(pointer), ctypes.c_size_t(size), ctypes.c_uint(flags))
        return self.host_memory(pointer, size, mapped, None, self.gate.do, cudart.cudaFreeHost)

    def mempin(self, owner, pointer, size, mapped):
        pointer = ctypes.c_void_p(getattr(pointer, "value", pointer))
        checked(cudart.cudaHostRegister, pointer, ctypes.c_size_t(size), ctypes.c_uint(REGISTER_MAPPED if mapped else 0))
        return self.host_memory(pointer, size, mapped, owner, at_once, cudart.cudaHostUnregister)

    def get_ipc_handle(self, memory):
        raise NotImplementedError("stream-ordered memory has no handle of this kind")

    def get_memory_info(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        checked(cudart.cudaMemGetInfo, ctypes.byref(free), ctypes.byref(total))
        return cuda.MemoryInfo(free=free.value, total=total.value)

    def reset(self):
        self.mapped.clear()
        for end in list(self.ends.values()):
            end()

    @contextlib.contextmanager
    def defer_cleanup(self):
        """Device and host memory is freed when the outermost guard ends. Pinned regions are given up at once."""
        self.gate.depth += 1
        try:
            yield
        finally:
            self.gate.depth -= 1
            if self.gate.depth == 0:
                self.gate.open()

    @property
    def interface_version(self):
        return 1


_numba_memory_manager = WholeManager
