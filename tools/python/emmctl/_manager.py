"""The manager of each device that all frameworks of this process share."""
import os
import threading
from ctypes import byref, c_void_p, sizeof

from emmctl import _library
from emmctl._library import EmmError, check, library, made, text_of

DEFAULT = "pool"
_MEMORY_SIZE = sizeof(_library.Memory)

_lock = threading.RLock()
_chosen = _said = None  # the spec, once somebody has said one, and as it was said
_managers = {}  # by device


def options_of(spec):
    """"pool:max=8GiB" as the library's options."""
    name, _, options = spec.partition(":")
    return "name=" + name + ("," + options if options else "")


def _with_exportable_memory(spec):
    """`spec`; a pool without backing= is given the one whose memory 64-byte IPC handles can name."""
    name, _, options = spec.partition(":")
    if name != "pool" or "backing=" in options:
        return spec
    if not any(known == name and "backing" in names for known, _, names in _library.bundled_managers()):
        return spec
    return "pool:" + ",".join(filter(None, ["backing=cumem", options]))


def use(spec=None, exportable=False):
    """Chooses the manager of this process, "NAME" or "NAME:key=value,...", before memory is first asked for.

    Without a spec: what was chosen, else what EMM_MEMORY_MANAGER names, else "pool". With `exportable` a pool that is
    not told otherwise, and that nobody chose yet, makes memory that other processes can open. Returns the spec.
    EmmError where the manager or an option is not known, or where another manager is in use already.
    """
    global _chosen, _said
    if spec is not None and not isinstance(spec, str):
        raise TypeError("a manager is named in words such as \"pool:max=8GiB\", not by %r" % (spec,))
    with _lock:
        if _chosen is not None and spec in (None, _said, _chosen):
            spec = _chosen
        else:
            said = spec or os.environ.get("EMM_MEMORY_MANAGER") or DEFAULT
            spec = _with_exportable_memory(said) if exportable else said
            check(library().emm_shared_use(options_of(spec).encode(), 0), library().emm_shared_error)
            _chosen, _said = spec, said
        return spec


def known(device):
    """The Manager of a device; None before it is made and after its end."""
    found = _managers.get(device)
    return found if found is not None and found.is_open else None


def manager(device=0):
    """The Manager of a device; the first call makes it."""
    found = known(device)
    if found is not None:
        return found
    with _lock:
        found = known(device)
        if found is None:
            use()
            found = _managers[device] = Manager(device)
        return found


class Manager:
    """One device's manager: NBEP 7's operations. Memory is a pair of address and token; the token frees it.

    Any thread. Failures are EmmError.
    """

    def __init__(self, device):
        self.device = device
        self.was_reset = False  # Numba's word: a context on the device was
        self._library = library()
        handle = c_void_p()
        check(self._library.emm_shared_manager(device, byref(handle)), self._library.emm_shared_error)
        self._self = handle
        self._memalloc, self._free = self._library.memalloc, self._library.free

    @property
    def is_open(self):
        return self._self is not None

    def _check(self, status):
        if status != _library.SUCCESS:
            raise EmmError(status, text_of(lambda buffer, size: self._library.last_error(self._self, buffer, size)))

    def memalloc(self, size, stream=0):
        memory = _library.Memory(_MEMORY_SIZE)
        status = self._memalloc(self._self, size, stream, byref(memory))
        if status:
            self._check(status)
        return memory.device_pointer, memory.token

    def memallocmanaged(self, size, attach_global=True):
        memory = made(_library.Memory)
        self._check(self._library.memallocmanaged(self._self, size, 1 if attach_global else 2, byref(memory)))
        return memory.device_pointer, memory.token

    def memhostalloc(self, size, mapped=False, portable=False, wc=False):
        memory = made(_library.Memory)
        flags = (1 if portable else 0) | (2 if mapped else 0) | (4 if wc else 0)
        self._check(self._library.memhostalloc(self._self, size, flags, byref(memory)))
        return memory.host_pointer, memory.token

    def mempin(self, pointer, size, mapped=False):
        memory = made(_library.Memory)
        self._check(self._library.mempin(self._self, pointer, size, 2 if mapped else 0, byref(memory)))
        return memory.host_pointer, memory.token

    def free(self, token, stream=0):
        """May be called at any time. After reset() or the manager's end it does nothing. It cannot fail: a second free
        is only counted in statistics()."""
        self_ = self._self
        if self_ is not None and token:
            self._free(self_, token, stream)

    def get_ipc_handle(self, pointer, size):
        """The driver's 64 bytes, and the offset of `pointer` in what they name."""
        handle = made(_library.IpcHandle)
        self._check(self._library.get_ipc_handle(self._self, pointer, size, byref(handle)))
        return bytes(handle.bytes), handle.offset

    def get_memory_info(self):
        info = made(_library.MemoryInfo)
        self._check(self._library.get_memory_info(self._self, byref(info)))
        return info.free, info.total

    def flush(self):
        self._check(self._library.flush(self._self))

    def trim(self, keep=0):
        self._check(self._library.trim(self._self, keep))

    def begin_deferral(self):
        self._library.defer_cleanup(self._self)

    def end_deferral(self):
        if self._self is not None:
            self._library.end_defer_cleanup(self._self)

    def state(self):
        """What the manager says of itself, in bytes; None where it does not know."""
        state = made(_library.State)
        self._library.state(self._self, byref(state))
        return {name: None if value == _library.NOT_KNOWN else value
                for name, value in ((name, getattr(state, name)) for name, _ in state._fields_[1:])}

    def statistics(self):
        """What the manager counts, by PyTorch's names; and "wrong_frees.not_alive", "wrong_frees.inside" and
        "wrong_frees.size", frees of what was not alive, of addresses inside of memory, and with another size."""
        ask = self._library.statistics
        counted = (_library.Statistic * ask(self._self, None, 0))()
        ask(self._self, counted, len(counted))
        return {each.name.decode(): each.value for each in counted}

    def report(self):
        return text_of(lambda buffer, size: self._library.report(self._self, buffer, size))

    def end_if_idle(self):
        """Ends the manager, unless any of its memory is alive. Returns whether it ended; manager() then makes another."""
        with _lock:
            if self._self is None:
                return True
            if self._library.emm_shared_end(self.device) != _library.SUCCESS:
                return False
            self._self = None
            return True

    def abandon(self):
        """Tells the manager that somebody else has reset the device and ended all its memory."""
        with _lock:
            if self._self is not None:
                self._library.emm_shared_abandon(self.device)
                self._self = None
