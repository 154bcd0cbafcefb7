"""What emmctl.torch needs of PyTorch: the pluggable allocator, which keeps size, device and stream of what it got and
calls the functions that it was given as torch/csrc/cuda/CUDAPluggableAllocator.cpp does."""
import types

from torch import _C, cuda  # noqa: F401


class _Setting:
    """A setting of a module, which is read and written by two functions."""

    def __init__(self, getter, setter):
        self.getter, self.setter = getter, setter

    def __get__(self, instance, kind):
        return self.getter()

    def __set__(self, instance, value):
        self.setter(value)


class _Cudnn:
    _on = [False]
    benchmark = _Setting(lambda: _Cudnn._on[0], lambda on: _Cudnn._on.__setitem__(0, on))


backends = types.SimpleNamespace(cudnn=_Cudnn())
