"""What emmctl.cupy needs of CuPy: its allocators, called as CuPy's own Cython calls them, and a current stream."""
from cupy import cuda  # noqa: F401
