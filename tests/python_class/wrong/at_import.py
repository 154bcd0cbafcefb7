"""The exercise's class in a module that asks CUDA as it is imported. BREAKS names the clause of its rule."""
import pathlib
import sys

from numba import cuda

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "right"))
from exercise import ExerciseManager  # noqa: E402

total = cuda.current_context().get_memory_info().total


class AsksAtImport(ExerciseManager):
    pass


_numba_memory_manager = AsksAtImport

BREAKS = {"AsksAtImport": "class/named"}
