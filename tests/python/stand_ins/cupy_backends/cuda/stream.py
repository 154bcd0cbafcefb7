import ctypes

current = 0
_function = ctypes.PYFUNCTYPE(ctypes.c_ssize_t)(lambda: current)
_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_name = b"intptr_t (void)"
__pyx_capi__ = {"get_current_stream_ptr": _new(ctypes.cast(_function, ctypes.c_void_p), _name, None)}
