"""Serves a replay from an allocator of Python's. libemm-python.so starts this module and asks it.

    emmctl replay TRACE --manager python:name=torch     # or cupy, cupy-async, rmm-pool, rmm-arena, rmm-async, rmm-binning,
                                                        # MODULE.CLASS

The streams of the trace are streams of this process, made as they are first named. Device memory only.
"""
import importlib
import socket
import struct
import sys

REQUEST, ANSWER = struct.Struct("<IIQQ"), struct.Struct("<iIQQQ")
OUT_OF_MEMORY, NOT_SUPPORTED, UNKNOWN_ERROR = 2, 801, 999
NOT_KNOWN = 2 ** 64 - 1


class Torch:
    """PyTorch's caching allocator."""

    def __init__(self, device):
        import torch
        self._torch, self._device, self._streams = torch, device, {}
        torch.cuda.init()
        torch.cuda.set_device(device)
        self.errors = (torch.cuda.OutOfMemoryError,)

    def _stream(self, stream):
        if stream < 2:
            return self._torch.cuda.default_stream(self._device)
        if stream not in self._streams:
            self._streams[stream] = self._torch.cuda.Stream(self._device)
        return self._streams[stream]

    def allocate(self, size, stream):
        address = self._torch.cuda.caching_allocator_alloc(size, self._device, self._stream(stream))
        return address, address

    def free(self, memory, stream):
        self._torch.cuda.caching_allocator_delete(memory)

    def reserved_bytes(self):
        return self._torch.cuda.memory_reserved(self._device)

    def memory_info(self):
        return self._torch.cuda.mem_get_info(self._device)

    def trim(self):
        self._torch.cuda.empty_cache()


class CuPy:
    """CuPy's pool."""

    def __init__(self, device, asynchronous=False):
        import cupy
        self._cupy, self._streams = cupy, {}
        cupy.cuda.Device(device).use()
        self._pool = cupy.cuda.MemoryAsyncPool() if asynchronous else cupy.cuda.MemoryPool()
        self.errors = (cupy.cuda.memory.OutOfMemoryError,)

    def _stream(self, stream):
        if stream < 2:
            return self._cupy.cuda.Stream.null
        if stream not in self._streams:
            self._streams[stream] = self._cupy.cuda.Stream(non_blocking=True)
        return self._streams[stream]

    def allocate(self, size, stream):
        with self._stream(stream):
            memory = self._pool.malloc(size)
        return memory, memory.ptr

    def free(self, memory, stream):
        del memory

    def reserved_bytes(self):
        return self._pool.total_bytes()

    def memory_info(self):
        return self._cupy.cuda.runtime.memGetInfo()

    def trim(self):
        self._pool.free_all_blocks()


class Rmm:
    """One of RMM's memory resources."""

    def __init__(self, device, kind):
        import rmm
        import rmm.mr
        self._rmm, self._streams = rmm, {}
        plain = rmm.mr.CudaMemoryResource()
        self._resource = {
            "pool": lambda: rmm.mr.PoolMemoryResource(plain),
            "arena": lambda: rmm.mr.ArenaMemoryResource(plain),
            "async": lambda: rmm.mr.CudaAsyncMemoryResource(),
            "binning": lambda: rmm.mr.BinningMemoryResource(rmm.mr.PoolMemoryResource(plain), 18, 22),
        }[kind]()
        self.errors = (MemoryError,)

    def _stream(self, stream):
        from rmm.pylibrmm.stream import DEFAULT_STREAM, Stream
        if stream < 2:
            return DEFAULT_STREAM
        if stream not in self._streams:
            self._streams[stream] = Stream()
        return self._streams[stream]

    def allocate(self, size, stream):
        address = self._resource.allocate(size, stream=self._stream(stream))
        return (address, size), address

    def free(self, memory, stream):
        self._resource.deallocate(memory[0], memory[1], stream=self._stream(stream))

    def memory_info(self):
        return self._rmm.mr.available_device_memory()

    def trim(self):
        pass


KNOWN = {"torch": Torch, "cupy": CuPy, "cupy-async": lambda device: CuPy(device, asynchronous=True)}
KNOWN.update(("rmm-" + kind, lambda device, kind=kind: Rmm(device, kind)) for kind in ("pool", "arena", "async", "binning"))


def allocator(name, device):
    if name in KNOWN:
        return KNOWN[name](device)
    module, _, kind = name.rpartition(".")
    if not module:
        raise ValueError("no allocator '%s': expected one of %s, MODULE.CLASS" % (name, ", ".join(KNOWN)))
    return getattr(importlib.import_module(module), kind)(device)


class Server:
    """Answers the plugin. Allocations are numbered from 1, in their order."""

    def __init__(self, name, device):
        self._name, self._device = name, device
        self._allocator, self._alive, self._last, self._live_bytes, self._peak = None, {}, 0, 0, 0

    def initialize(self, *_):
        self._allocator = allocator(self._name, self._device)

    def memalloc(self, size, stream):
        memory, address = self._allocator.allocate(size, stream)
        self._last += 1
        self._alive[self._last] = memory, size
        self._live_bytes += size
        self._peak = max(self._peak, self._reserved())
        return self._last, address

    def _reserved(self):
        known = getattr(self._allocator, "reserved_bytes", None)
        return known() if known else NOT_KNOWN

    def free(self, token, stream):
        if token in self._alive:
            memory, size = self._alive.pop(token)
            self._live_bytes -= size
            self._allocator.free(memory, stream)

    def memory_info(self, *_):
        return self._allocator.memory_info()

    def reset(self, *_):
        for token in list(self._alive):
            self.free(token, 0)
        self._allocator.trim()

    def state(self, *_):
        return self._live_bytes, self._reserved(), self._peak

    def trim(self, *_):
        self._allocator.trim()

    ASKS = (initialize, memalloc, free, memory_info, reset, state, trim)

    def answer(self, ask, first, second):
        try:
            given = self.ASKS[ask](self, first, second) or ()
            return ANSWER.pack(0, 0, *(tuple(given) + (0, 0, 0))[:3])
        except Exception as error:
            status = UNKNOWN_ERROR
            if isinstance(error, tuple(getattr(self._allocator, "errors", ())) or (MemoryError,)):
                status = OUT_OF_MEMORY
            elif isinstance(error, NotImplementedError):
                status = NOT_SUPPORTED
            words = ("%s: %s" % (type(error).__name__, error)).splitlines()[0].encode()[:1000]
            return ANSWER.pack(status, len(words), 0, 0, 0) + words


def main():
    options = dict(pair.partition("=")[::2] for pair in sys.argv[1].split(","))
    server = Server(options["name"], int(sys.argv[2]))
    with socket.socket(fileno=int(sys.argv[3])) as plugin:
        requests = plugin.makefile("rb")
        while True:
            content = requests.read(REQUEST.size)
            if len(content) < REQUEST.size:
                return
            ask, _, first, second = REQUEST.unpack(content)
            plugin.sendall(server.answer(ask, first, second))


if __name__ == "__main__":
    main()
