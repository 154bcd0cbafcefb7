"""What emmctl.torch needs of PyTorch: the pluggable allocator, which keeps size, device and stream of what it got and
calls the functions that it was given as torch/csrc/cuda/CUDAPluggableAllocator.cpp does."""
from torch import cuda  # noqa: F401
