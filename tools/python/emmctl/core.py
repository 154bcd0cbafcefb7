"""cuda.core's device memory from emmctl's managers: a MemoryResource.

    emmctl.core.use("pool:max=8GiB")     # on the current device
    Device().memory_resource = emmctl.core.memory_resource(0)
"""
import threading

from emmctl import _manager, _recorder

_resources = {}
_lock = threading.Lock()


def _stream_handle(stream):
    """The handle of a cuda.core stream, a Numba stream, an object with __cuda_stream__, or a number."""
    if stream is None or isinstance(stream, int):
        return stream or 0
    if hasattr(stream, "__cuda_stream__"):
        described = stream.__cuda_stream__
        return int((described() if callable(described) else described)[1])
    return int(getattr(stream, "handle", None) or 0)


def _classes():
    try:
        from cuda.core import Buffer, MemoryResource
    except ImportError:
        from cuda.core.experimental import Buffer, MemoryResource
    return Buffer, MemoryResource


def _make_class():
    Buffer, MemoryResource = _classes()

    class EmmctlMemoryResource(MemoryResource):
        """Device memory of one device, in the order of the stream that asks for it. Buffers belong to a resource of the
        manager that made them: a late one must not free what a later manager has at its address."""

        def __init__(self, device, manager=None):
            self._device = device
            self._manager = manager
            self._tokens = {}  # by address, of what is alive
            self._now = self  # the resource of the manager that there is

        def _of(self, manager):
            if self._now._manager is not manager:
                self._now = EmmctlMemoryResource(self._device, manager)
            return self._now

        def allocate(self, size, stream=None):
            manager = self._manager or _manager.manager(self._device)
            owner = self._of(manager)
            if size == 0:
                return Buffer.from_handle(ptr=0, size=0, mr=owner)
            handle = _stream_handle(stream)
            with _recorder.request(size=size, device=self._device, stream=handle) as asked:
                address, token = manager.memalloc(size, handle)
                number = asked.answered(address)
            owner._tokens[address] = token, handle, number
            return Buffer.from_handle(ptr=address, size=size, mr=owner)

        def deallocate(self, ptr, size, stream=None):
            if not int(ptr):
                return
            owner = self._now
            if int(ptr) not in owner._tokens:
                raise ValueError("no memory of this resource begins at %#x: it was freed before, or is another's"
                                 % int(ptr))
            token, made_on, number = owner._tokens.pop(int(ptr))
            made_on = _stream_handle(stream) or made_on
            _recorder.freed(number, device=self._device, stream=made_on)
            owner._manager.free(token, made_on)

        is_device_accessible = property(lambda self: True)
        is_host_accessible = property(lambda self: False)
        is_managed = property(lambda self: False)
        device_id = property(lambda self: self._device)

    return EmmctlMemoryResource


_class = None


def memory_resource(device=0):
    """The one MemoryResource of a device."""
    global _class
    with _lock:
        if _class is None:
            _class = _make_class()
        if device not in _resources:
            _resources[device] = _class(device)
        return _resources[device]


def install(core_device):
    """Makes what cuda.core allocates on `core_device` come from the manager."""
    core_device.memory_resource = memory_resource(int(core_device.device_id))


def use(spec=None):
    """Chooses the manager as emmctl.use(), and installs it on cuda.core's current device. Returns the spec."""
    spec = _manager.use(spec)
    try:
        from cuda.core import Device
    except ImportError:
        from cuda.core.experimental import Device
    install(Device())
    return spec
