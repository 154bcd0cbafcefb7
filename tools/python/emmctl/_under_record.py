"""This process runs under `emmctl record --level request`: each framework is recorded from its import on."""
import contextlib
import ctypes
import fcntl
import itertools
import os
import struct

from emmctl import _recorder, record


def _bind(path):
    """The recorder of the driver's calls, which is in this process too."""
    library = ctypes.PyDLL(path)
    library.emm_record_request.argtypes, library.emm_record_request.restype = [ctypes.c_uint64], None
    library.emm_record_place.argtypes, library.emm_record_place.restype = [], ctypes.c_uint64
    library.emm_record_file.argtypes, library.emm_record_file.restype = [], ctypes.c_char_p
    return library


def _place():
    """A file that is nobody's yet. A process that execs itself keeps its number."""
    for again in itertools.count(1):
        number = "%d" % os.getpid() if again == 1 else "%d.%d" % (os.getpid(), again)
        path = os.environ["EMM_RECORD_REQUESTS"].replace("%p", number)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            return path


class _Room:
    """What may be written after `emmctl record` was killed: it holds a lock, which the system drops. The recorder of the
    driver's calls has the same limit."""

    _FLOCK, _GET_LOCK = "hhqqi4x", 36  # struct flock, and F_OFD_GETLK, which not every Python names

    def __init__(self, lock):
        self._lock, self._rows, self._left = lock, itertools.count(), None
        self._most = int(os.environ.get("EMM_RECORD_UNCOLLECTED", 512)) * (128 << 10)  # tests set this

    def _is_collected(self):
        try:
            control = os.open(self._lock, os.O_RDONLY)
        except OSError:
            return True  # it may be out of sight
        try:
            asked = struct.pack(self._FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            return struct.unpack(self._FLOCK, fcntl.fcntl(control, self._GET_LOCK, asked))[0] != fcntl.F_UNLCK
        except OSError:
            return True
        finally:
            os.close(control)

    def __call__(self, size):
        if self._left is None:
            if next(self._rows) % 1024 != 0 or self._is_collected():
                return True
            self._left = self._most
        self._left -= size
        return self._left >= 0


def _start():
    if _recorder.active is None:
        library = os.environ.get("EMM_RECORD_LIBRARY")
        if library and _recorder.driver is None:
            _recorder.driver = _bind(library)
        record.start(_place(), frameworks=())
        if os.environ.get("EMM_RECORD_LOCK"):
            _recorder.active.has_room = _Room(os.environ["EMM_RECORD_LOCK"])
        _restart_in_children()


_restarts = False


def _restart_in_children():
    global _restarts
    if not _restarts and hasattr(os, "register_at_fork"):
        _restarts = True
        os.register_at_fork(after_in_child=_again)  # behind record's own, which forgets the parent's


def _again():
    """The child of a fork records what it asks itself, into a file of its own."""
    try:
        _start()
        for name in list(_recorded):
            if name != "torch":  # whose history began in the parent
                record.begin(name)
    except Exception:  # the child is the program's
        _recorder.active = None


_recorded = []


def _begin_torch():
    """PyTorch's history is written at Python's end. Until then an empty file stands for it, which tells `emmctl record` of
    an end that never came."""
    others = len(record._undo)
    record.begin("torch")
    if len(record._undo) == others:
        return  # it has no history of its own
    sign = os.path.join(os.path.dirname(os.environ["EMM_RECORD_REQUESTS"]), "%d.history" % os.getpid())
    with open(sign, "wb"):
        pass
    record._undo.insert(0, lambda: os.unlink(sign))  # the last one that is called


def imported(name):
    _start()
    if name == "torch":
        import torch
        later = getattr(torch.cuda, "_lazy_call", None)  # nothing of CUDA before the program asks for it
        if later is not None:
            return later(_begin_torch)
        return _begin_torch()
    _recorded.append(name)
    record.begin(name)
