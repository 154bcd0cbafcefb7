

# The last text: the C side gets the addresses of the functions.
addresses = (ctypes.c_void_p * len(kept)).from_address(FUNCTIONS)
addresses[:] = [ctypes.cast(function, ctypes.c_void_p).value for function in kept]
gc.collect()
gc.freeze()  # so that a collection, and a fork, do not walk through all of Numba
