

@ctypes.CFUNCTYPE(STATUS, TEXT)
def import_early(spec):
    """Imports the class's module, in silence. 1: a process that forks may do so, since no thread was begun and CUDA not asked."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            class_of(spec.decode())
    except BaseException:  # noqa: B902: create() tells it
        return 0
    gc.collect()
    gc.freeze()
    return not drv.driver.is_initialized and len(os.listdir("/proc/self/task")) == 1


kept.append(import_early)

# The last text: the C side gets the addresses of the functions.
addresses = (ctypes.c_void_p * len(kept)).from_address(FUNCTIONS)
addresses[:] = [ctypes.cast(function, ctypes.c_void_p).value for function in kept]
gc.collect()
gc.freeze()  # so that a collection, and a fork, do not walk through all of Numba
