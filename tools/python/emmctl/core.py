"""cuda.core's device memory from emmctl's managers: a MemoryResource.

    emmctl.core.use("pool:max=8GiB")     # on the current device
    Device().memory_resource = emmctl.core.memory_resource(0)
"""
import threading

from emmctl import _manager, _recorder

_resources = {}
_lock = threading.Lock()


def _stream_handle(stream):
    """Of a cuda.core stream, a Numba stream, whatever has __cuda_stream__, or a number."""
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
        """Device memory of one device, in the order of the stream that asks for it."""

        def __init__(self, device):
            self._device = device
            self._tokens = {}  # by address, of what is alive

        def allocate(self, size, stream=None):
            manager = _manager.manager(self._device)
            if size == 0:
                return Buffer.from_handle(ptr=0, size=0, mr=self)
            handle = _stream_handle(stream)
            with _recorder.request(size=size, device=self._device, stream=handle) as asked:
                address, token = manager.memalloc(size, handle)
                number = asked.answered(address)
            self._tokens[address] = manager, token, handle, number
            return Buffer.from_handle(ptr=address, size=size, mr=self)

        def deallocate(self, ptr, size, stream=None):
            if not int(ptr):
                return
            if int(ptr) not in self._tokens:
                raise ValueError("no memory of this resource begins at %#x: it was freed before, or is another's"
                                 % int(ptr))
            manager, token, made_on, number = self._tokens.pop(int(ptr))
            made_on = _stream_handle(stream) or made_on
            _recorder.freed(number, device=self._device, stream=made_on)
            manager.free(token, made_on)

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
