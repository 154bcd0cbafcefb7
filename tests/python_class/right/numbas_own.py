"""Numba's own manager, subclassed."""
from numba.cuda.cudadrv.driver import NumbaCUDAMemoryManager


class OwnManager(NumbaCUDAMemoryManager):
    pass
