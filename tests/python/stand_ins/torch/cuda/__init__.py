"""The functions of PyTorch's own allocator, over addresses that nobody uses."""
from served_allocator import Bump

from torch.cuda import memory  # noqa: F401

OutOfMemoryError = MemoryError
_bump = Bump(0)


def init():
    pass


def set_device(device):
    pass


class MemPool:
    pass


class Stream:
    def __init__(self, device=None):
        self.cuda_stream = id(self)


def default_stream(device=None):
    return 0


def caching_allocator_alloc(size, device=None, stream=None):
    return _bump.allocate(size, stream)[1]


def caching_allocator_delete(address):
    _bump.free(address, 0)


def memory_reserved(device=None):
    return _bump.reserved_bytes()


def mem_get_info(device=None):
    return _bump.memory_info()


def empty_cache():
    pass
