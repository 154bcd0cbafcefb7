"""A recording manager around any manager of Numba's."""
import contextlib
import itertools
import threading
import weakref

from numba.cuda.cudadrv import driver as _drv

from emmctl import _numba_device, _recorder

_classes = {}
_begun = []  # the managers that were there when the recording began
_inside = threading.local()  # .flushes: of the request that this thread makes, whose row is still to come


def _number(pointer):
    return int(pointer.value or 0) if hasattr(pointer, "value") else int(pointer)


def _owner_of(memory):
    """The object that owns the memory of `memory`, which may be a reference to it."""
    inner = getattr(memory, "_mem", memory)
    own = getattr(inner, "own", None)  # a method of a weak proxy knows the object
    return getattr(own, "__self__", inner)


def _on_end(owner, ended):
    """Calls `ended` before the finalizer of `owner`. The finalizer object stays the same: at the end of a process
    finalizers run in the order of their age, and Numba's own rely on that."""
    finalizer = getattr(owner, "_finalizer", None)
    info = getattr(type(finalizer), "_registry", {}).get(finalizer)
    if info is None:
        weakref.finalize(owner, ended)  # the last one that is made is called first
        return
    end = info.func

    def both(*arguments, **named):
        with _recorder.causing(ended()):
            end(*arguments, **named)

    info.func = both


def _record_flushes(manager, pending):
    """`pending` is Numba's own queue. A flush of it is a row behind the operation that caused it."""
    clear = pending.clear

    def recorded_clear():
        count, size = len(pending), int(getattr(pending, "_size", 0))
        clear()
        if count and not len(pending):
            row = dict(count=count, bytes=size, layer="backing", device=manager._emm_device())
            waiting = getattr(_inside, "flushes", None)
            if waiting is None:
                if _recorder.active is not None:
                    _recorder.active.write("flush", **row)
            else:
                waiting.append(row)

    pending.clear = recorded_clear


@contextlib.contextmanager
def _request():
    """Flushes during a request are written behind its row."""
    before = getattr(_inside, "flushes", None)
    _inside.flushes = []
    try:
        yield
    finally:
        flushes, _inside.flushes = _inside.flushes, before
        for row in flushes:
            if _recorder.active is not None:
                _recorder.active.write("flush", **row)


@contextlib.contextmanager
def _at_once():
    """Flushes here are written at once, since the row of what causes them is written already."""
    before = getattr(_inside, "flushes", None)
    _inside.flushes = None
    try:
        yield
    finally:
        _inside.flushes = before


class _Recording:
    """A mixin, before a manager's own class, which records its calls."""

    def _emm_device(self):
        return _numba_device.ordinal(self.context)

    def _emm_begin(self):
        """State of an instance, which may be older than the recording."""
        if "_emm_buffers" in self.__dict__:
            return
        self._emm_quiet = False
        self._emm_buffers = {}
        self._emm_handles = itertools.count(1)
        self._emm_in_reset = None
        pending = getattr(self, "deallocations", None)
        if type(pending) is _drv._PendingDeallocs:
            _record_flushes(self, pending)

    def _emm_make(self, op, ask, size, **members):
        self._emm_begin()
        with _request(), _recorder.request(op, size=size, device=self._emm_device(), **members) as asked:
            memory = ask()
            owner = _owner_of(memory)
            pointer = getattr(owner, "host_pointer", None)
            address = _number(pointer if pointer is not None else owner.device_pointer)
            number = asked.answered(address)
        if number:
            self._emm_follow(owner, number, address)
        return memory

    def _emm_write_preexisting(self, recorder):
        """Writes rows for memory that lives already, as far as the manager keeps account of it."""
        for memory in list(getattr(self, "allocations", {}).values()):
            owner = _owner_of(memory)
            op, members = _kind_of(owner)
            if op is not None:
                address = _number(getattr(owner, "host_pointer", None) or owner.device_pointer)
                number = recorder.number()
                recorder.write(op, id=number, size=owner.size, addr="0x%x" % address, preexisting=True,
                               device=self._emm_device(), **members)
                self._emm_follow(owner, number, address)

    def _emm_follow(self, owner, number, address):
        device, manager = self._emm_device(), weakref.ref(self)

        def ended():
            alive = manager()
            if alive is None or alive._emm_in_reset != threading.get_ident():  # what reset() ends is its own
                return _recorder.freed(number, device=device)
            return 0

        owner._emm_number, owner._emm_address = number, address
        _on_end(owner, ended)

    def initialize(self):
        self._emm_begin()
        recorder = _recorder.active
        self._emm_quiet = True  # questions here are the managers' own
        try:
            if recorder is not None:
                if not recorder.knows(self._emm_device()):
                    with contextlib.suppress(Exception):  # not every manager can say
                        recorder.add_device(self._emm_device(), *super().get_memory_info())
                recorder.write("initialize", device=self._emm_device())
            return super().initialize()
        finally:
            self._emm_quiet = False

    def memalloc(self, size):
        stream = 2 if getattr(_drv.config, "CUDA_PER_THREAD_DEFAULT_STREAM", 0) else 0  # where Numba's work is
        return self._emm_make("memalloc", lambda: super(_Recording, self).memalloc(size), size, stream=stream)

    def memallocmanaged(self, size, attach_global=True):
        return self._emm_make("memallocmanaged", lambda: super(_Recording, self).memallocmanaged(size, attach_global),
                              size, attach="global" if attach_global else "host")

    def memhostalloc(self, size, mapped=False, portable=False, wc=False):
        return self._emm_make("memhostalloc", lambda: super(_Recording, self).memhostalloc(size, mapped, portable, wc),
                              size, mapped=bool(mapped), portable=bool(portable), wc=bool(wc))

    def mempin(self, owner, pointer, size, mapped=False):
        self._emm_begin()
        address = _number(pointer)
        buffer = self._emm_buffers.setdefault(address, "b%d" % (len(self._emm_buffers) + 1))
        return self._emm_make("mempin", lambda: super(_Recording, self).mempin(owner, pointer, size, mapped), size,
                              mapped=bool(mapped), buffer=buffer, page_offset=address % 4096)

    def get_ipc_handle(self, memory):
        self._emm_begin()
        owner = _owner_of(memory)
        number = getattr(owner, "_emm_number", 0)
        if not number:  # a view without an owned reference
            owner = _owner_of(getattr(memory, "owner", memory))
            number = getattr(owner, "_emm_number", 0)
        recorder = _recorder.active
        if recorder is None or not recorder.has_row_for(number or 0):  # memory of somebody else's
            return super().get_ipc_handle(memory)
        row = dict(id=number, size=memory.size, offset=_drv.device_pointer(memory) - owner._emm_address,
                   handle="h%d" % next(self._emm_handles), device=self._emm_device())
        try:
            handle = super().get_ipc_handle(memory)
        except Exception as error:
            recorder.write("get_ipc_handle", result=_recorder.result_of(error), **row)
            raise
        recorder.write("get_ipc_handle", **row)
        return handle

    def get_memory_info(self):
        self._emm_begin()
        recorder = _recorder.active if not self._emm_quiet else None
        try:
            info = super().get_memory_info()
        except Exception as error:
            if recorder is not None:
                recorder.write("get_memory_info", result=_recorder.result_of(error), device=self._emm_device())
            raise
        if recorder is not None:
            recorder.add_device(self._emm_device(), info.free, info.total)
            recorder.write("get_memory_info", free=info.free, total=info.total, device=self._emm_device())
        return info

    def reset(self):
        self._emm_begin()
        cause = _recorder.next_cause()
        if _recorder.active is not None and self.context is not None:
            _recorder.active.write("reset", device=self._emm_device(), **_recorder.of_cause(cause))
        self._emm_in_reset = threading.get_ident()
        try:
            with _at_once(), _recorder.causing(cause):
                super().reset()
        finally:
            self._emm_in_reset = None

    @contextlib.contextmanager
    def defer_cleanup(self):
        self._emm_begin()
        with super().defer_cleanup():
            if _recorder.active is not None:
                _recorder.active.write("defer_cleanup", device=self._emm_device())
            try:
                yield
            finally:
                if _recorder.active is not None:
                    _recorder.active.write("end_defer_cleanup", device=self._emm_device())


def _kind_of(owner):
    """The operation that made it, and its members; None of a pinned buffer, whose rows say which it is."""
    if isinstance(owner, _drv.MappedMemory):
        return ("memhostalloc", {"mapped": True}) if getattr(owner, "owner", None) is None else (None, {})
    managed = getattr(_drv, "ManagedMemory", ())
    return ("memallocmanaged", {"attach": "global"}) if isinstance(owner, managed) else ("memalloc", {})


def recording(manager):
    """The class `manager`, which records what it is asked."""
    if issubclass(manager, _Recording):
        return manager
    if manager not in _classes:
        _classes[manager] = type("Recording" + manager.__name__, (_Recording, manager), {})
    return _classes[manager]


def begin(recorder):
    """Makes the managers of all contexts record from here on, also of later contexts. Numba's simulator has none."""
    if not hasattr(_drv, "HostOnlyCUDAMemoryManager"):
        return lambda: None
    import numba
    recorder.add_source("numba %s" % numba.__version__)
    ensure, chosen = _drv._ensure_memory_manager, _drv.set_memory_manager
    if _drv._memory_manager is not None:
        _drv._memory_manager = recording(_drv._memory_manager)

    def ensure_memory_manager():
        """Numba chooses a manager at its first context. To choose it before would import the plugin that
        NUMBA_CUDA_MEMORY_MANAGER names while numba.cuda, or the plugin, is still being imported."""
        ensure()
        if _recorder.active is not None:
            _drv._memory_manager = recording(_drv._memory_manager)

    def set_memory_manager(plugin):
        """The program chooses another one, which records too."""
        chosen(plugin)
        if _recorder.active is not None:
            _drv._memory_manager = recording(_drv._memory_manager)

    _drv._ensure_memory_manager, _drv.set_memory_manager = ensure_memory_manager, set_memory_manager
    _begun[:] = []
    for device in _devices():
        manager = getattr(getattr(device, "primary_context", None), "memory_manager", None)
        if manager is None:
            continue
        _begun.append(manager)
        manager.__class__ = recording(type(manager))
        manager._emm_begin()
        with contextlib.suppress(Exception):  # not every manager can say
            recorder.add_device(manager._emm_device(), *type(manager).__bases__[1].get_memory_info(manager))

    def end():
        _drv._ensure_memory_manager, _drv.set_memory_manager = ensure, chosen
        for plain, recorded in _classes.items():
            if _drv._memory_manager is recorded:
                _drv._memory_manager = plain

    return end


def write_preexisting(recorder):
    """Writes rows for what the managers that begin() found had handed out before."""
    for manager in _begun:
        pending = getattr(manager, "deallocations", ())
        alive = [_owner_of(memory) for memory in list(getattr(manager, "allocations", {}).values())]
        if type(pending) is _drv._PendingDeallocs and len(pending) or any(_kind_of(owner)[0] is None for owner in alive):
            recorder.complete = False
    for manager in _begun:
        manager._emm_write_preexisting(recorder)
    _begun[:] = []


def _devices():
    """The contexts that Numba has opened. Opens none."""
    return [entry for entry in getattr(_drv.driver, "devices", {}).values()]
