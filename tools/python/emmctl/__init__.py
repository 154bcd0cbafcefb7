"""emmctl's CUDA memory managers for Numba, CuPy and PyTorch, and traces of what they ask for.

    import emmctl.numba, emmctl.cupy, emmctl.torch
    emmctl.numba.use("pool:max=8GiB")   # or NUMBA_CUDA_MEMORY_MANAGER=emmctl.numba
    emmctl.cupy.use()                   # the same pool
    emmctl.torch.use()

    import emmctl.record
    emmctl.record.start("run.jsonl")    # replays with: emmctl replay run.jsonl --manager M

Importing a module of this package touches no device, and none but emmctl.numba loads a framework. docs/python.md
tells the rest.
"""
from emmctl._library import EmmError, bundled_managers, library_path, prefix
from emmctl._manager import Manager, manager, use

__version__ = "0.1.0"
__all__ = ["EmmError", "Manager", "bundled_managers", "library_path", "manager", "prefix", "use"]
