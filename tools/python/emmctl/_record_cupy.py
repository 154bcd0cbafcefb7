"""A recording allocator around the one that CuPy has."""
import sys

from emmctl import _recorder


class _Block:
    """Owns memory of the allocator below; its end is a free."""

    __slots__ = ("memory", "number", "device", "stream")

    def __init__(self, memory, number, device, stream):
        self.memory, self.number, self.device, self.stream = memory, number, device, stream

    def __del__(self):
        with _recorder.causing(_recorder.freed(self.number, device=self.device, stream=self.stream)):
            self.memory = None


def begin(recorder):
    import cupy
    recorder.add_source("cupy %s" % getattr(cupy, "__version__", "?"))
    ours = sys.modules.get("emmctl.cupy")
    below = cupy.cuda.get_allocator()
    if ours is not None and ours.is_ours(below):
        return lambda: None  # its requests are recorded where they arrive

    def malloc(size):
        if not size or _recorder.active is None:
            return below(size)
        stream = cupy.cuda.get_current_stream().ptr
        device = cupy.cuda.device.get_device_id()
        with _recorder.request(size=size, device=device, stream=stream) as asked:
            memory = below(size)
            number = asked.answered(memory.ptr)
        block = _Block(memory, number, device, stream)
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(memory.ptr, size, block, device), 0)

    choose = cupy.cuda.set_allocator
    choose(malloc)

    def set_allocator(allocator=None):
        """The program chooses another one, which is asked beneath the recording."""
        nonlocal below
        choose(allocator)
        now, ours = cupy.cuda.get_allocator(), sys.modules.get("emmctl.cupy")
        if now is not malloc and not (ours is not None and ours.is_ours(now)):
            below = now
            choose(malloc)

    cupy.cuda.set_allocator = set_allocator
    used = getattr(getattr(below, "__self__", None), "used_bytes", None)  # of a pool of CuPy's
    recorder.complete = recorder.complete and not (used is not None and used())

    def end():
        cupy.cuda.set_allocator = choose
        if cupy.cuda.get_allocator() is malloc:
            choose(below)

    return end
