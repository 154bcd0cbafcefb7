"""This process runs under `emmctl record --level request`: each framework is recorded from its import on."""
import ctypes
import os

from emmctl import _recorder, record


def _bind(path):
    """The recorder of the driver's calls, which is in this process too."""
    library = ctypes.PyDLL(path)
    library.emm_record_request.argtypes, library.emm_record_request.restype = [ctypes.c_uint64], None
    library.emm_record_place.argtypes, library.emm_record_place.restype = [], ctypes.c_uint64
    return library


def _start():
    if _recorder.active is None:
        library = os.environ.get("EMM_RECORD_LIBRARY")
        if library and _recorder.driver is None:
            _recorder.driver = _bind(library)
        record.start(os.environ["EMM_RECORD_REQUESTS"], frameworks=())
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


def imported(name):
    _start()
    if name == "torch":
        import torch
        later = getattr(torch.cuda, "_lazy_call", None)  # nothing of CUDA before the program asks for it
        if later is not None:
            return later(lambda: record.begin(name))
    _recorded.append(name)
    record.begin(name)
