"""Numba's device and host memory from emmctl's managers (NBEP 7).

    NUMBA_CUDA_MEMORY_MANAGER=emmctl.numba python program.py    # EMM_MEMORY_MANAGER says which manager
    emmctl.numba.use("pool:max=8GiB")                           # in the program, before its first context

For every Numba since 0.49 and every numba-cuda, with ctypes or NVIDIA's bindings below it. What Numba copies to the
device for a kernel's host arguments, which since numba-cuda 0.25 comes from cuda.core, is served too.
"""
import contextlib
import ctypes
import inspect
import itertools
import warnings
import weakref

from numba.cuda.cudadrv import driver as _drv

from emmctl import _library, _manager, _numba_device, _recorder

if not hasattr(_drv, "HostOnlyCUDAMemoryManager"):
    raise ImportError("this Numba takes no memory managers: expected one since 0.49, and not its simulator "
                      "(NUMBA_ENABLE_CUDASIM)")
# NVIDIA's bindings: never before 0.55, on request until numba-cuda 0.20, always since.
_BINDING = getattr(_drv, "binding", None)
# numba-cuda 0.21.0 and 0.21.1 have pointers without a context.
_POINTERS_HAVE_CONTEXT = "context" in inspect.signature(_drv.MemoryPointer.__init__).parameters


def _device_address(address):
    return _BINDING.CUdeviceptr(address) if _BINDING else _drv.drvapi.cu_device_ptr(address)


def _host_address(address):
    return address if _BINDING else ctypes.c_void_p(address)


def _value(pointer):
    return pointer if isinstance(pointer, int) else pointer.value


def _ipc_handle(content):
    if _BINDING:
        handle = _BINDING.CUipcMemHandle()
        handle.reserved = content
        return handle
    handle = _drv.drvapi.cu_ipc_mem_handle()
    ctypes.memmove(ctypes.addressof(handle), content, 64)
    return handle


def _default_stream():
    return 2 if getattr(_drv.config, "CUDA_PER_THREAD_DEFAULT_STREAM", 0) else 0


def _as_numba_says(error):
    """A failure in Numba's own classes."""
    if error.status == _library.NOT_SUPPORTED:
        return NotImplementedError(error.words)
    words = error.words.split("] ", 1)[-1]  # CudaAPIError puts the code before them itself
    code = _BINDING.CUresult(error.status) if _BINDING else error.status
    return _drv.CudaAPIError(code, words)


class _Deallocations(_drv._PendingDeallocs):
    """Numba's interface to deferred frees, over the manager's own queue."""

    def __init__(self, owner):
        super().__init__()
        self._owner = weakref.ref(owner)

    def clear(self):
        super().clear()
        owner = self._owner()
        if owner is not None and not self.is_disabled:
            owner.flush()

    def __len__(self):
        owner = self._owner()
        return super().__len__() + (owner.pending_count() if owner is not None else 0)


class EmmctlManager(_drv.HostOnlyCUDAMemoryManager):
    """The manager of one Numba context, over the manager that this process shares."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.deallocations = _Deallocations(self)
        self._keys = itertools.count()
        self._manager = None
        self._serves_copies = False

    def _open(self):
        manager = self._manager
        if manager is None or not manager.is_open:
            device = _numba_device.ordinal(self.context)
            before = _manager.known(device)
            # Another context on this device, after a reset of the last one's memory: Numba has reset the device.
            if before is not None and before.was_reset:
                before.abandon()
            _manager.use(exportable=True)
            self._manager = manager = _manager.manager(device)
        manager.was_reset = False
        return manager

    def _opened(self):
        try:
            return self._open()
        except _library.EmmError as error:
            raise _as_numba_says(error) from None

    def initialize(self):
        self._opened()
        if not self._serves_copies:
            self._serves_copies = True
            _serve_implicit_copies(self.context.device)

    def _ask(self, operation, *arguments):
        try:
            return getattr(self._open(), operation)(*arguments)
        except _library.EmmError as error:
            raise _as_numba_says(error) from None

    def _pointer(self, kind, address, size, token, recorded=True, **owner):
        """A pointer of Numba's class `kind` to memory that ends with it, or, where `recorded`, with reset()."""
        manager, allocations, key = self._manager, self.allocations, next(self._keys)

        def finalizer():
            allocations.pop(key, None)
            manager.free(token)

        arguments = (weakref.proxy(self.context),) if _POINTERS_HAVE_CONTEXT else ()
        try:
            memory = kind(*arguments, address, size, finalizer=finalizer, **owner)
        except Exception:
            manager.free(token)  # Memory that cannot be mapped is freed.
            raise
        if not recorded:
            return memory
        allocations[key] = memory
        return memory.own()

    def memalloc(self, size):
        address, token = self._ask("memalloc", size, _default_stream())
        return self._pointer(_drv.AutoFreePointer, _device_address(address), size, token)

    def memallocmanaged(self, size, attach_global=True):
        address, token = self._ask("memallocmanaged", size, attach_global)
        return self._pointer(_drv.ManagedMemory, _device_address(address), size, token)

    def memhostalloc(self, size, mapped=False, portable=False, wc=False):
        address, token = self._ask("memhostalloc", size, mapped, portable, wc)
        kind = _drv.MappedMemory if mapped else _drv.PinnedMemory
        return self._pointer(kind, _host_address(address), size, token, recorded=mapped)

    def mempin(self, owner, pointer, size, mapped=False):
        address = _value(pointer)
        _, token = self._ask("mempin", address, size, mapped)
        kind = _drv.MappedMemory if mapped else _drv.PinnedMemory
        return self._pointer(kind, _host_address(address), size, token, recorded=mapped, owner=owner)

    def get_ipc_handle(self, memory):
        content, offset = self._ask("get_ipc_handle", _drv.device_pointer(memory), memory.size)
        return _drv.IpcHandle(memory, _ipc_handle(content), memory.size, self.context.device.get_device_identity(),
                              offset=offset)

    def get_memory_info(self):
        free, total = self._ask("get_memory_info")
        return _drv.MemoryInfo(free=free, total=total)

    def flush(self):
        manager = self._manager
        if manager is not None and manager.is_open:
            try:
                manager.flush()
            except _library.EmmError as error:
                raise _as_numba_says(error) from None

    def pending_count(self):
        manager = self._manager
        return (manager.state()["pending_count"] or 0) if manager is not None and manager.is_open else 0

    def reset(self):
        """Ends Numba's memory, as Numba's own manager does: page-locked memory that is not mapped lives on. Memory of
        other frameworks in the same pool stays."""
        super().reset()
        manager = self._manager
        if manager is None or not manager.is_open:
            return
        manager.was_reset = True
        if not manager.end_if_idle():  # the device may be reset next
            manager.trim()

    @contextlib.contextmanager
    def defer_cleanup(self):
        with super().defer_cleanup():
            manager = self._opened()
            manager.begin_deferral()
            try:
                yield
            finally:
                manager.end_deferral()

    @property
    def interface_version(self):
        return 1


def _serve_implicit_copies(device):
    core_device = getattr(device, "_dev", None)
    if core_device is None:  # before numba-cuda 0.25 there is none, and such copies come by memalloc
        return
    from emmctl import core
    core.install(core_device)


def _recorded(kind):
    """`kind`, or where Numba is recorded the class of it that is."""
    if _recorder.active is None:
        return kind
    from emmctl import _record_numba
    return _record_numba.recording(kind)


def use(spec=None):
    """Makes Numba's memory come from the manager `spec`, "NAME" or "NAME:key=value,...", for contexts that are made
    from here on. A pool that is not told otherwise makes memory that other processes can open. Without a spec: what
    another framework of this process uses, else EMM_MEMORY_MANAGER, else "pool". Returns the spec. A RuntimeWarning where
    contexts are there that have another manager: they keep it until cuda.close()."""
    spec = _manager.use(spec, exportable=True)
    from numba import cuda
    cuda.set_memory_manager(_recorded(EmmctlManager))
    contexts = [getattr(device, "primary_context", None) for device in getattr(_drv.driver, "devices", {}).values()]
    if any(each is not None and not isinstance(each.memory_manager, EmmctlManager) for each in contexts):
        warnings.warn("Numba has a context already, which keeps its memory manager until cuda.close(): expected "
                      "emmctl.numba.use() before memory is first asked for", RuntimeWarning, stacklevel=2)
    return spec


_numba_memory_manager = EmmctlManager  # what NUMBA_CUDA_MEMORY_MANAGER=emmctl.numba looks for
