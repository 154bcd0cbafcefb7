"""What PyTorch's C++ says of memory with a pluggable allocator: nothing."""


def _no(*_, **__):
    raise RuntimeError("a pluggable allocator does not support it")


_cuda_memoryStats = _cuda_resetPeakMemoryStats = _cuda_resetAccumulatedMemoryStats = _no
_cuda_memorySnapshot = _cuda_record_memory_history = _cuda_getMemoryFraction = _no


def _cuda_setMemoryFraction(fraction, device):
    from torch.cuda import memory
    memory.current.given["set_memory_fraction_fn"](fraction, device)
