"""CuPy's device memory from emmctl's managers.

    emmctl.cupy.use("pool:max=8GiB")     # for all threads; what is alive already stays where it is

Memory is ordered on the stream that is CuPy's current one when it is asked for, and freed in that stream's order.
"""
import ctypes
import gc

from emmctl import _library, _manager, _recorder

_in_use = False
_by_python = None
_STREAM_SIGNATURE = b"intptr_t (void)"


def _compiled_stream_function():
    """The address of CuPy's C function that gives the calling thread's stream; None where it has none."""
    try:
        from cupy_backends.cuda import stream
        capsule = stream.__pyx_capi__["get_current_stream_ptr"]
    except (ImportError, AttributeError, KeyError):
        return None
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = name_of(capsule)
    return pointer_of(capsule, name) if name == _STREAM_SIGNATURE else None


def _stream_function():
    """The address of a function that gives the calling thread's stream. It lives as long as the process."""
    global _by_python
    compiled = _compiled_stream_function()
    if compiled:
        return compiled
    if _by_python is None:
        import cupy
        _by_python = ctypes.CFUNCTYPE(ctypes.c_ssize_t)(lambda: cupy.cuda.get_current_stream().ptr)
    return ctypes.cast(_by_python, ctypes.c_void_p).value


def _raise_unless_out_of_memory(library):
    status = library.emm_shared_status()
    if status != _library.OUT_OF_MEMORY:
        raise _library.EmmError(status, _library.text_of(library.emm_shared_error))


def allocator():
    """A function for cupy.cuda.set_allocator() and cupy.cuda.using_allocator()."""
    import cupy
    library = _library.library()
    allocate = cupy.cuda.CFunctionAllocator(_stream_function(), library.address_of("emm_cupy_malloc"),
                                            library.address_of("emm_cupy_free"), library).malloc

    def malloc(size):
        memory = allocate(size)
        if memory.ptr or not size:
            return memory
        _raise_unless_out_of_memory(library)
        gc.collect()  # as CuPy's own pool does: a cycle may hold what is missing
        memory = allocate(size)
        if memory.ptr:
            return memory
        _raise_unless_out_of_memory(library)
        state = _manager.manager(cupy.cuda.device.get_device_id()).state()
        error = cupy.cuda.memory.OutOfMemoryError(size, state["live_bytes"] or 0)
        error.args = ("%s %s" % (error, _library.text_of(library.emm_shared_error)),)
        raise error

    malloc.of_emmctl = True
    return malloc


def is_ours(allocator):
    return getattr(allocator, "of_emmctl", False)


def use(spec=None):
    """Makes CuPy's memory come from the manager `spec`, "NAME" or "NAME:key=value,...". A pool that is not told
    otherwise makes memory that other processes can open, as CuPy's own does. Without a spec: what another framework of
    this process uses, else EMM_MEMORY_MANAGER, else "pool". Returns the spec."""
    spec = _manager.use(spec, exportable=True)
    import cupy
    cupy.cuda.set_allocator(allocator())
    global _in_use
    _in_use = True
    _recorder.record_shared()
    return spec


def in_use():
    """Whether CuPy was told to take its memory from here."""
    return _in_use
