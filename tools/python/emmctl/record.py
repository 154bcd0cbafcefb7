"""Traces of what a program asks of its CUDA memory managers, whatever these are.

    import emmctl.record
    emmctl.record.start("run.jsonl")        # after the frameworks are imported, before memory is asked for

and at the end of the program run.jsonl replays: `emmctl replay run.jsonl --manager pool`. Numba's manager is wrapped, be it
its own, emmctl's, or anybody's; CuPy's allocator likewise. PyTorch's own allocator writes its history, which becomes a
trace at the end; under emmctl.torch its requests go into the same trace as the others'.

Without a line in the program, for Numba: NUMBA_CUDA_MEMORY_MANAGER=emmctl.record EMM_RECORD=run-%p.jsonl, around the
manager of the module that EMM_RECORD_OF names, else Numba's own. %p is the process's number.
"""
import atexit
import os
import sys
import tempfile

from emmctl import _library, _recorder

_undo = []  # what ends the recording of each framework, and may give the path of a trace of its own
_will_end = False
_forks_are_told = False


def start(path="emmctl-%p.jsonl", name=None, torch_stacks=False, frameworks=("numba", "cupy", "torch")):
    """Records from here on what those `frameworks` ask for that are imported. Returns the trace's path. Raises OSError where
    it cannot be written."""
    if _recorder.active is not None:
        raise RuntimeError("this process records into %s already" % _recorder.active.path)
    path = os.fspath(path).replace("%p", str(os.getpid()))
    recorder = _recorder.active = _recorder.Recorder(path, name)
    try:
        for framework in frameworks:
            if framework in sys.modules:
                _BEGIN[framework](recorder, torch_stacks)
        if "numba" in frameworks and "numba" in sys.modules:  # rows begin when all that the header says is known
            from emmctl import _record_numba
            _record_numba.write_preexisting(recorder)
        if any(m in sys.modules and sys.modules[m].in_use() for m in ("emmctl.torch", "emmctl.cupy")):
            _recorder.record_shared()
    except BaseException:
        _end_frameworks()
        _recorder.active = None
        recorder.close()
        raise
    _end_with_the_process()
    return path


def stop():
    """Ends the recording, as the program's end does. Returns the paths of the traces, and says on stderr what they miss,
    for example because the disk was full."""
    recorder = _recorder.active
    if recorder is None:
        return []
    paths, failures = _end_frameworks()
    _recorder.active = None
    if recorder.is_open or not (paths or "EMM_RECORD_REQUESTS" in os.environ):  # emmctl record wants no trace of nothing
        recorder.open()
        paths.insert(0, recorder.path)
    recorder.close()
    failures.append(recorder.misses())
    for words in filter(None, failures):
        sys.stderr.write("emmctl.record: %s\n" % words)
    return paths


def _end_frameworks():
    """The paths of the traces that they made, and what went wrong."""
    paths, failures = [], []
    while _undo:
        try:
            made = _undo.pop()()
            paths += [made] if made else []
        except Exception as error:  # the others' rows are worth as much
            failures.append("%s: %s" % (type(error).__name__, error))
    return paths, failures


def _end_with_the_process():
    global _will_end, _forks_are_told
    if _will_end:
        return
    _will_end = True
    atexit.register(stop)
    if hasattr(os, "register_at_fork") and not _forks_are_told:  # the trace is the parent's
        _forks_are_told = True
        os.register_at_fork(after_in_child=_forget)
    if "multiprocessing" in sys.modules:  # whose children end without atexit
        from multiprocessing import util
        util.Finalize(None, stop, exitpriority=-100)


def _forget():
    global _will_end
    _recorder.active, _will_end = None, False
    del _undo[:]


def _begin_numba(recorder, _):
    from emmctl import _record_numba
    _undo.append(_record_numba.begin(recorder))


def _begin_cupy(recorder, _):
    from emmctl import _record_cupy
    _undo.append(_record_cupy.begin(recorder))


def _torch_is_ours():
    return "emmctl.torch" in sys.modules and sys.modules["emmctl.torch"].in_use()


def _begin_torch(recorder, stacks):
    import torch
    if getattr(getattr(torch, "version", None), "cuda", "") is None:
        return  # built without CUDA
    recorder.add_source("torch " + getattr(torch, "__version__", "?"))
    if _torch_is_ours():
        return  # its allocator's requests are recorded where they arrive
    torch.cuda.memory._record_memory_history(enabled="all", context="alloc" if stacks else None,
                                             stacks="python")

    def end():
        if _torch_is_ours():  # since
            return None
        handle, snapshot = tempfile.mkstemp(suffix=".pickle", dir=os.path.dirname(recorder.place(recorder.path)))
        os.close(handle)
        try:
            torch.cuda.memory._dump_snapshot(snapshot)
            torch.cuda.memory._record_memory_history(enabled=None)
            path = recorder.path
            if recorder.is_open:  # of the other frameworks: a trace of its own
                folder, file = os.path.split(path)
                stem, dot, suffix = file.partition(".")
                path = os.path.join(folder, stem + "-torch" + dot + suffix)
            library = _library.library()
            _library.check(library.emm_trace_convert(os.fsencode(snapshot), os.fsencode(recorder.place(path))),
                           library.emm_trace_error)
            return path
        finally:
            os.unlink(snapshot)

    _undo.append(end)


_BEGIN = {"numba": _begin_numba, "cupy": _begin_cupy, "torch": _begin_torch}


def begin(framework):
    """Records from here on what this framework asks for too."""
    if _recorder.active is not None:
        _BEGIN[framework](_recorder.active, False)


def __getattr__(name):
    """What NUMBA_CUDA_MEMORY_MANAGER=emmctl.record looks for: a recording manager."""
    if name != "_numba_memory_manager":
        raise AttributeError(name)
    import importlib

    from numba.cuda.cudadrv import driver

    from emmctl import _record_numba
    wrapped = driver.NumbaCUDAMemoryManager
    of = os.environ.get("EMM_RECORD_OF")
    if of:
        wrapped = importlib.import_module(of)._numba_memory_manager
    if _recorder.active is None:
        start(os.environ.get("EMM_RECORD", "emmctl-%p.jsonl"))
    return _record_numba.recording(wrapped)
