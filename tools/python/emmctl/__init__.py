"""emmctl's CUDA memory managers for Numba, CuPy and PyTorch, and traces of what they ask for.

    import emmctl.numba, emmctl.cupy, emmctl.torch
    emmctl.numba.use("pool:max=8GiB")   # or NUMBA_CUDA_MEMORY_MANAGER=emmctl.numba
    emmctl.cupy.use()                   # the same pool
    emmctl.torch.use()

    import emmctl.record
    emmctl.record.start("run.jsonl")    # replays with: emmctl replay run.jsonl --manager M

    emmctl.load("run.jsonl"), emmctl.replay("run.jsonl", manager="pool")    # tables for notebooks

    import emmctl.simulated
    emmctl.simulated.run(train, gpu="l4")       # does it fit on that card? without a GPU; emmctl.pytest has a fixture

Importing a module of this package touches no device, and none but emmctl.numba loads a framework. docs/python.md
tells the rest.
"""
from emmctl._library import EmmError, bundled_managers, library_path, prefix
from emmctl._manager import Manager, manager, use

__version__ = "0.1.0"
__all__ = ["EmmError", "Manager", "ask", "bundled_managers", "library_path", "load", "manager", "prefix", "replay", "report", "use"]


def load(path, format=None, partial=False):
    """A recording as tables: emmctl.tables.load."""
    from emmctl import tables
    return tables.load(path, format, partial)


def replay(trace, manager="pool", device="sim", **options):
    """A replay as tables: emmctl.tables.replay."""
    from emmctl import tables
    return tables.replay(trace, manager, device, **options)


def report(*inputs, **options):
    """The page of a report, for a notebook: emmctl.tables.report."""
    from emmctl import tables
    return tables.report(*inputs, **options)


def ask(command, *arguments, **options):
    """What a command writes with --json: emmctl.tables.ask."""
    from emmctl import tables
    return tables.ask(command, *arguments, **options)
