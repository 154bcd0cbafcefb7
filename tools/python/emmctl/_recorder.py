"""The trace that this process writes, if any: requests when they were answered, frees when they were asked for, each
at once, so that the order of the file is the order in which things happened.

Finalizers may run between any two lines here, on any thread: nothing holds a lock of Python's.
"""
import contextlib
import itertools
import json
import operator
import os
import threading
import time
from ctypes import byref, c_void_p

from emmctl import _library
from emmctl._library import library

FORMAT = {"format": "emmctl-trace", "version": "1.0"}
REQUIRES = ["ipc", "multi-device", "streams", "threads"]  # what such a trace may hold

_thread_id = getattr(threading, "get_native_id", threading.get_ident)


def _monotonic_ns():
    return time.monotonic_ns() if hasattr(time, "monotonic_ns") else int(time.monotonic() * 1e9)


class Recorder:
    """A trace file. Its header is written with the first operation, when the devices are known. A failure of the
    file never reaches the program: `failed` keeps it in words."""

    _numbers = itertools.count(1)  # of all recorders of this process

    def __init__(self, path, name=None):
        """OSError where `path` cannot be written."""
        self.path = path
        self._folder = os.getcwd()  # the program may go elsewhere
        with open(self.place(path), "wb"):
            pass
        self.lost = 0
        self.failed = None
        self.complete = True  # as long as nobody says that something lived before which has no row
        self.start_ns = _monotonic_ns()
        self._realtime_ns = int(time.time() * 1e9)
        self._name = name
        self.first = next(Recorder._numbers)
        Recorder._numbers = itertools.count(self.first)
        self.has_room = None  # called with the size of a row, where there is a limit
        self._devices = {}
        self._sources = []
        self._trace = None
        self._closed = False
        self._append = library().append_with_gil
        self._opening = threading.RLock()

    def place(self, path):
        return os.path.join(self._folder, path)

    @property
    def is_open(self):
        """Whether it has rows or will have some."""
        return self._trace is not None

    def add_source(self, words):
        if words not in self._sources:
            self._sources.append(words)

    def add_device(self, device, free, total):
        self._devices.setdefault(device, {"id": device, "capacity": total, "free_at_start": free})

    def knows(self, device):
        return device in self._devices

    def _header(self):
        header = dict(FORMAT, level="emm", complete=self.complete, requires=REQUIRES)
        if self._name:
            header["name"] = self._name
        header["clock"] = {"source": "CLOCK_MONOTONIC", "start_ns": self.start_ns,
                           "start_realtime_ns": str(self._realtime_ns)}
        with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as boot:
            header["clock"]["boot_id"] = boot.read().strip()
        header["source"] = {"tool": "emmctl.record", "framework": ", ".join(self._sources) or "none"}
        limit = os.environ.get("EMM_RUN_CAPACITY", "")  # of `emmctl run`, which the device's figures below obey
        if limit.isdigit():
            header["source"]["options"] = {"run_capacity": int(limit)}
        if self._devices:
            header["devices"] = [self._devices[key] for key in sorted(self._devices)]
        return header

    def open(self):
        """The trace; None where it cannot be written, or was closed."""
        if self._trace is None and not self._closed and not self.failed:
            with self._opening:
                header, trace = json.dumps(self._header()).encode(), c_void_p()
                if self._trace is None and not self._closed and not self.failed:
                    self._go_beside_calls()
                    self._note(library().emm_trace_open(os.fsencode(self.place(self.path)), header, byref(trace)))
                    self._trace = trace if trace else None
        return self._trace

    def _go_beside_calls(self):
        """The file of the requests is named as that of the driver's calls, which says whose these are after an exec too."""
        calls = os.fsdecode(driver.emm_record_file()) if driver is not None else ""
        if calls:
            beside = calls[:-len("emmraw")] + "requests.jsonl"
            if not os.path.exists(beside) or not os.path.getsize(beside):
                self.path = beside

    def _note(self, status):
        if status != _library.SUCCESS and not self.failed:
            self.failed = _library.text_of(library().emm_trace_error)

    def number(self):
        return next(Recorder._numbers)

    def has_row_for(self, number):
        """Not of memory whose row stands in a trace that ended before this one."""
        return number >= self.first

    def write(self, op, **members):
        """One operation, with the time of its row. It is in the file when this returns, so that a process may end in
        any way."""
        device = members.pop("device", 0)
        row = {"op": op, "thread": _thread_id()}
        if driver is not None:
            row["seq"] = driver.emm_record_place()
            if "id" in members:  # the driver's calls have ids of their own
                members["id"] = "q%d" % members["id"]
        if device:
            row.update(context="c%d" % device, device=device)
        stream = stream_name(members.pop("stream", 0))
        if stream is not None:
            row["stream"] = stream
        row.update(members)
        trace = self.open()
        if trace is None or self.failed:
            return
        try:
            text = json.dumps(row, default=operator.index)  # sizes may be NumPy's
        except TypeError:  # what no trace can say, as a size that is no number
            self.lost += 1
            return
        if self.has_room is not None and not self.has_room(len(text)):
            self.lost += 1
            return
        status = self._append(trace, text.encode())
        if status != _library.SUCCESS and not self._closed:
            self.lost += 1
            if status != _library.INVALID_VALUE:  # which is one row's fault
                self._note(status)

    def now_ns(self):
        return _monotonic_ns() - self.start_ns

    def close(self):
        """Ends the trace. Threads that are about to write a row write none."""
        with self._opening:
            self._closed = True
            trace, self._trace = self._trace, None
        if trace is not None:
            library().emm_shared_record(None, 0)
            self._note(library().emm_trace_end(trace, self.lost))
            self._note(library().emm_trace_close(trace))

    def misses(self):
        """What is missing in the trace, in words; None where nothing is."""
        if self.failed:
            return "%s is not whole: %s" % (self.path, self.failed)
        return "%d operations of %s are missing" % (self.lost, self.path) if self.lost else None


def stream_name(handle):
    return {0: None, 1: "legacy", 2: "per_thread"}.get(handle, "0x%x" % handle)


active = None  # the Recorder of this process
driver = None  # `emmctl record --level both`: its recorder of the driver's calls, which numbers rows and calls alike
_causes, _cause = itertools.count(1), threading.local()


def next_cause():
    """The number of a request, for the calls of the driver that it causes; 0 where nobody records them."""
    return next(_causes) if driver is not None else 0


@contextlib.contextmanager
def causing(number):
    """What this thread asks of the driver in the body is for the request of that number."""
    if driver is None or not number:
        yield
        return
    before, _cause.number = getattr(_cause, "number", 0), number
    driver.emm_record_request(number)
    try:
        yield
    finally:
        _cause.number = before
        driver.emm_record_request(before)


def of_cause(cause):
    """The member of a row that names the request."""
    return {"x-request": cause} if cause else {}


def record_shared():
    """Records from here on what CuPy and PyTorch ask of the shared managers, while a recording runs."""
    recorder = active
    trace = recorder.open() if recorder is not None else None
    if trace is not None:
        library().emm_shared_record(trace, recorder.start_ns)


def result_of(error):
    """The `result` of a request that ended with this exception."""
    code = getattr(error, "status", getattr(error, "code", None))
    code = int(code) if isinstance(code, int) or hasattr(code, "__int__") else 0
    if isinstance(error, NotImplementedError) or code == _library.NOT_SUPPORTED:
        return {"outcome": "unsupported"}
    if code == _library.OUT_OF_MEMORY or isinstance(error, MemoryError):
        return {"outcome": "oom", "code": code or 2}
    return {"outcome": "error", "code": code} if code else {"outcome": "error"}


class request:
    """`with request(size=...) as asked: ...; number = asked.answered(address)`: a row for what was asked in the body,
    be it answered or refused. The number is the memory's in the trace, 0 where nothing is recorded."""

    def __init__(self, op="memalloc", **members):
        self._op, self._members, self.number = op, members, 0

    def __enter__(self):
        self._recorder = active
        self._began_ns = self._recorder.now_ns() if self._recorder is not None else 0
        self._cause = next_cause() if self._recorder is not None else 0
        self._causing = causing(self._cause)
        self._causing.__enter__()
        return self

    def _write(self, number, **members):
        self._recorder.write(self._op, id=number, duration_ns=self._recorder.now_ns() - self._began_ns,
                             **dict(self._members, **dict(members, **of_cause(self._cause))))

    def answered(self, address):
        if self._recorder is not None:
            self.number = self._recorder.number()
            self._write(self.number, addr="0x%x" % address)
        return self.number

    def __exit__(self, kind, error, trace):
        self._causing.__exit__(None, None, None)
        if error is not None and self._recorder is not None and not self.number:
            self._write(self._recorder.number(), result=result_of(error))
        return False


def freed(number, **members):
    """The number for causing() what the free does."""
    recorder = active
    if not number or recorder is None or not recorder.has_row_for(number):
        return 0
    cause = next_cause()
    recorder.write("free", id=number, **dict(members, **of_cause(cause)))
    return cause
