"""The manager of this repository's package for Numba."""
from emmctl.numba import EmmctlManager as _numba_memory_manager  # noqa: F401
