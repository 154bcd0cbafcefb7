"""An allocator of addresses that nobody uses: 64 MiB, each handed out once."""
import os


class Bump:
    errors = (MemoryError,)

    def __init__(self, device):
        self._next, self._sizes = 1 << 32, {}

    def allocate(self, size, stream):
        if size == 13:
            os._exit(3)
        if size == 7:
            raise NotImplementedError("7 is not served")
        if sum(self._sizes.values()) + size > 64 << 20:
            raise MemoryError("no %d bytes" % size)
        address, self._next = self._next, self._next + (size + 511 & ~511)
        self._sizes[address] = size
        return address, address

    def free(self, memory, stream):
        del self._sizes[memory]

    def reserved_bytes(self):
        return sum(self._sizes.values())

    def memory_info(self):
        return (64 << 20) - self.reserved_bytes(), 64 << 20

    def trim(self):
        pass


class OneOfNoSize(Bump):
    """One memory at a time, whatever its size."""

    def allocate(self, size, stream):
        if self._sizes:
            raise MemoryError("one lives")
        return super().allocate(size, stream)
