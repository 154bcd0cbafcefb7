"""This process runs under `emmctl run --device sim`, and has imported PyTorch: values of small tensors are followed on the host,
and what of cuDNN is not stood in for is off."""
import _thread
import atexit
import ctypes
import functools
import os
import sys
import threading
import time

from emmctl import _absent_ranks, _values

_notes = None
_followed_values = None
_HAS_CUDNN = bool(os.environ.get("EMM_STANDIN_CUDNN"))


def _answerer():
    """Tells the stand-in for libcuda what this thread's next small copies to the host hold."""
    library = ctypes.PyDLL(os.environ["EMM_STANDIN_DRIVER"])
    tell = library.emm_standin_answer_reads
    tell.argtypes, tell.restype = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t], None

    def answer(values):
        tell((ctypes.c_uint64 * len(values))(*values), len(values))
    return answer


STEPS_WITH_REST = 2
REST_S = 0.25


def _rest_after_first_steps():
    """PyTorch's own thread looks each 100 ms which collectives are done, and keeps their memory until then. On a card a first step takes
    longer, as its kernels are loaded. Without them a second step would begin, and DDP make its buckets anew, before that look."""
    register = getattr(sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_post_hook", None)
    if register is None:
        return
    steps = 0

    def rest(*_):
        nonlocal steps
        if steps < STEPS_WITH_REST:
            steps += 1
            time.sleep(REST_S)
    register(rest)


class _Ranks:
    """What the stand-in for NCCL exchanges with other ranks. Its calls may wait for these, without the interpreter's lock."""

    def __init__(self, torch, inner):
        driver = os.environ["EMM_STANDIN_DRIVER"]
        answers = ctypes.CDLL(os.path.join(os.path.dirname(driver), "libemm-answers.so"))
        cuda = ctypes.CDLL(driver)
        address, number = ctypes.c_uint64, ctypes.c_size_t
        for function, result, arguments in ((answers.emm_standin_collectives_begin, address, [ctypes.c_int]),
                                            (answers.emm_standin_collectives_end, ctypes.c_int, []),
                                            (answers.emm_standin_collectives_level, ctypes.c_int, [address]),
                                            (answers.emm_standin_wait_for_question, None, []),
                                            (answers.emm_standin_answer_where, None, [ctypes.c_char_p, ctypes.c_char_p]),
                                            (answers.emm_standin_follow_rank, ctypes.c_int, []),
                                            (cuda.emm_standin_put_write, ctypes.c_int, [address, address, ctypes.c_void_p, number]),
                                            (cuda.emm_standin_read, ctypes.c_int, [address, ctypes.c_void_p, number])):
            function.restype, function.argtypes = result, arguments
        self.level = answers.emm_standin_collectives_level
        self._answers, self._inner, self._listens = answers, inner, False
        self._torch, self._write, self._read = torch, cuda.emm_standin_put_write, cuda.emm_standin_read
        self._rests = self._is_followed = False
        processes = sys.modules.get("multiprocessing")
        if processes is None or processes.parent_process() is None:  # one that loads data is no rank
            self.follow()

    def follow(self):
        """Has this process looked after, if it is one of several: ranks that wait for one another are named and ended."""
        if self._answers.emm_standin_follow_rank():
            self._listen()

    def _listen(self):
        if not self._listens:
            self._listens = True
            _thread.start_new_thread(self._say_where, ())  # no mode of ours follows it

    def begin(self, level):
        if not self._rests:
            self._rests = True
            self._listen()
            _rest_after_first_steps()
        return self._answers.emm_standin_collectives_begin(level)

    def end(self):
        was_called = self._answers.emm_standin_collectives_end()
        if not self._is_followed:  # a program may make its ranks without a launcher
            self._is_followed = True
            self.follow()
        return was_called

    def _say_where(self):
        """Where the ranks wait for one another, somebody asks for the line."""
        while True:
            self._answers.emm_standin_wait_for_question()
            frame = sys._current_frames().get(threading.main_thread().ident)
            if frame is None:
                return
            words = _values.place_of_caller(self._inner, frame), _values.call_of_ranks(self._inner, frame)
            self._answers.emm_standin_answer_where(*(one.encode("utf-8", "replace") for one in words))

    def write(self, tensor, host):
        """False where device memory cannot be written now."""
        cuda = self._torch.cuda
        if cuda.is_current_stream_capturing():
            return False
        host = host.contiguous()
        return self._write(cuda.current_stream(tensor.device).cuda_stream, tensor.data_ptr(), host.data_ptr(),
                           host.numel() * host.element_size()) == 0

    def read(self, address, size):
        data = (ctypes.c_char * size)()
        return data if self._read(address, data, size) == 0 else None


def _drawer(torch):
    """Random numbers of our own, which leave the program's as they are."""
    state = torch.Generator().manual_seed(0).get_state()

    def draw(function):
        nonlocal state
        own = torch.get_rng_state()
        torch.set_rng_state(state)
        try:
            return function()
        finally:
            state = torch.get_rng_state()
            torch.set_rng_state(own)
    return draw


def _fake_mode_asker(torch):
    """A function that gives the mode in which PyTorch only works out shapes, as for parts of a DTensor; None outside of it."""
    core = getattr(torch, "_C", None)
    ask, keys = getattr(core, "_get_dispatch_mode", None), getattr(core, "_TorchDispatchModeKey", None)
    if ask is None or not hasattr(keys, "FAKE"):
        return lambda: None
    return functools.partial(ask, keys.FAKE)


def _mode_of(torch, values):
    from torch.utils._python_dispatch import TorchDispatchMode
    plain = torch.Tensor.__torch_dispatch__
    fake_mode = _fake_mode_asker(torch)

    def dispatch(self, func, types, args=(), kwargs=None):
        if fake_mode() is not None:
            return func(*args, **(kwargs or {}))  # no device is asked
        for kind in types:
            if kind.__torch_dispatch__ is not plain:
                return NotImplemented  # its own operations come here after it
        try:
            return values.call(func, args, kwargs or {})
        except _values.Endless:
            _leave()

    class Following(TorchDispatchMode):
        supports_higher_order_operators = True
        __torch_dispatch__ = dispatch
        # Under another mode torch.compile would run a function as it is written.
        is_infra_mode = ignore_compile_internals = classmethod(lambda cls: True)
    # PyTorch puts a guard around it against its compiler, which takes seconds to import and as long as we do at each operation.
    Following.guarded = Following.__torch_dispatch__
    Following.__torch_dispatch__ = dispatch
    return Following


def _write():
    """At the end, with what PyTorch's own allocator counted."""
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized():
        _notes.peaks = [(device, torch.cuda.max_memory_reserved(device), torch.cuda.max_memory_allocated(device))
                        for device in range(torch.cuda.device_count()) if torch.cuda.max_memory_reserved(device)]
    _notes.write()


def _leave():
    """Ends the process, whose loop would not."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    _write()
    os._exit(3)


def _follow_threads(make):
    """Each thread has modes of its own. Those of backward passes take the caller's."""
    begin = getattr(threading.Thread, "_bootstrap_inner", None)
    if begin is None:
        return

    @functools.wraps(begin)
    def followed(self):
        with make():
            begin(self)
    threading.Thread._bootstrap_inner = followed


def _followed(function, make):
    """The function, which a backward pass calls, with a mode of its own where there is none."""
    from torch.utils import _python_dispatch

    @functools.wraps(function)
    def call(*args, **kwargs):
        if _python_dispatch._get_current_dispatch_mode() is not None:
            return function(*args, **kwargs)
        with make():
            return function(*args, **kwargs)
    return call


def _leave_out_of_backward(torch, values, make):
    """While a mode is there, PyTorch's own formulas of a backward pass write into new tensors where they else write in place, since a
    mode may be any subclass of a tensor; so they would take other memory. What of a pass is Python is followed all the same."""
    import torch.utils.checkpoint
    from torch.utils import _python_dispatch
    engine = torch.autograd.Variable._execution_engine

    class Engine:
        def run_backward(self, *args, **kwargs):
            mode = _python_dispatch._get_current_dispatch_mode()
            if values.is_read_in_backward or not isinstance(mode, make):
                return engine.run_backward(*args, **kwargs)
            _python_dispatch._pop_mode()
            try:
                return engine.run_backward(*args, **kwargs)
            finally:
                _python_dispatch._push_mode(mode)
                values.passed_backward()

        def __getattr__(self, name):
            return getattr(engine, name)

    def replace(holder, name, *, argument=None):
        """What it is, or what it gets as that argument, is followed."""
        if holder is None or not hasattr(holder, name):
            return
        own = getattr(holder, name)

        @functools.wraps(own)
        def given(*args, **kwargs):
            args = list(args)
            if len(args) > argument:
                args[argument] = _followed(args[argument], make)
            return own(*args, **kwargs)
        setattr(holder, name, _followed(own, make) if argument is None else given)

    torch.autograd.Variable._execution_engine = Engine()
    replace(torch.autograd.function.BackwardCFunction, "apply")
    replace(getattr(torch.utils.checkpoint, "_CheckpointFrame", None), "__init__", argument=1)
    replace(torch.Tensor, "register_hook", argument=1)
    replace(torch.Tensor, "register_post_accumulate_grad_hook", argument=1)


def _leave_out_of_children(mode, values):
    """A forked child cannot use the device."""
    from torch.utils import _python_dispatch

    def in_child():
        values.is_off = True
        _notes.is_closed = True
        if _python_dispatch._get_current_dispatch_mode() is mode:
            mode.__exit__(None, None, None)
    os.register_at_fork(after_in_child=in_child)


def _answer_cudnn(torch):
    """Its convolutions are stood in for, and its norms; not its RNNs and the like, nor its attention. cuDNN 8 had another interface."""
    try:
        version = torch.backends.cudnn.version() or 0
    except (AttributeError, RuntimeError):  # another one than PyTorch was built for, or none
        version = 0
    if not _HAS_CUDNN or version < 90000:
        torch.backends.cudnn.enabled = False
    else:
        _notes.has_cudnn = True
        _take_native_ways(torch)
    attention = getattr(torch.backends.cuda, "enable_cudnn_sdp", None)
    if attention is not None:
        attention(False)


# What cuDNN also has, by where PyTorch calls it and what it is to a reader.
_NATIVE = (("_VF", "lstm", "LSTM"), ("_VF", "gru", "GRU"), ("_VF", "rnn_tanh", "RNN"), ("_VF", "rnn_relu", "RNN"), ("", "ctc_loss", "CTC loss"),
           ("", "grid_sampler", "grid sampler"), ("", "affine_grid_generator", "affine grid"), ("nn.RNNBase", "flatten_parameters", ""))


def _take_native_ways(torch):
    """These find cuDNN off."""
    def without(function, what):
        @functools.wraps(function)
        def native(*args, **kwargs):
            was_on = torch._C._get_cudnn_enabled()
            if was_on and what and any(getattr(each, "is_cuda", False) for each in args):
                _notes.fact("native", what)
            torch._C._set_cudnn_enabled(False)
            try:
                return function(*args, **kwargs)
            finally:
                torch._C._set_cudnn_enabled(was_on)
        return native
    for place, name, what in _NATIVE:
        owner = functools.reduce(lambda of, part: getattr(of, part, None), place.split(".") if place else (), torch)
        function = getattr(owner, name, None)
        if function is not None:
            setattr(owner, name, without(function, what))


def _note_compiled(torch, make):
    compile_ = getattr(torch, "compile", None)
    if compile_ is None:
        return

    @functools.wraps(compile_)
    def compiled(*args, **kwargs):
        # Before PyTorch 2.9 it leaves a function as it is while a mode is there.
        _notes.fact("compile", "" if hasattr(make.__mro__[1], "ignore_compile_internals") else "as written")
        make.__torch_dispatch__ = make.guarded
        return compile_(*args, **kwargs)
    torch.compile = compiled


def _follow_graphs(torch, values):
    """What a graph has captured is written again by each replay, of which no operation tells."""
    graph = getattr(torch.cuda, "CUDAGraph", None)
    if graph is None:
        return
    begin, end, replay = graph.capture_begin, graph.capture_end, graph.replay

    @functools.wraps(begin)
    def capture_begin(self, *args, **kwargs):
        values.capture_begins()
        return begin(self, *args, **kwargs)

    @functools.wraps(end)
    def capture_end(self, *args, **kwargs):
        self._emmctl_written = values.capture_ends()
        return end(self, *args, **kwargs)

    @functools.wraps(replay)
    def again(self, *args, **kwargs):
        values.replayed(getattr(self, "_emmctl_written", ()))
        return replay(self, *args, **kwargs)
    graph.capture_begin, graph.capture_end, graph.replay = capture_begin, capture_end, again


def kernels_imported(module, kind):
    """Triton's functions, or Inductor's, which launch kernels without an operation of PyTorch's."""
    launcher = getattr(sys.modules[module], kind, None)
    run = getattr(launcher, "run", None)
    if run is None or _followed_values is None:
        return
    values, is_inductor = _followed_values, kind == "CachingAutotuner"

    @functools.wraps(run)
    def launched(self, *args, **kwargs):
        try:
            names = getattr(getattr(self, "fn", None), "arg_names", None) if is_inductor else None
            values.written_by_kernel((*args, *kwargs.values()) if names is None else args, names, getattr(self, "mutated_arg_names", None) or ())
        except Exception:
            values.mistake(args, kwargs)
        return run(self, *args, **kwargs)
    launcher.run = launched


def _folder_of(torch):
    return os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")


def torch_imported():
    global _notes, _followed_values
    import torch
    if torch.version.cuda is None:
        return  # built without CUDA
    if os.environ.get("EMM_STANDIN_RANKS"):
        try:
            inner = (_folder_of(torch), os.path.join(os.path.dirname(os.path.abspath(__file__)), ""))
            _absent_ranks.torch_imported(lambda: _values.place_of_caller(inner))
        except Exception as error:  # it then waits for ranks that do not come
            sys.stderr.write("emmctl: --ranks: PyTorch's ranks that do not run are not answered for: %s: %s\n" % (type(error).__name__, error))
    path = os.path.join(os.environ["EMM_STANDIN_PROGRAM"], "values.%d" % os.getpid())
    _notes = _values.Notes(path)
    atexit.register(_write)
    _answer_cudnn(torch)
    from torch.multiprocessing.reductions import StorageWeakRef
    assumptions = _values.Assumptions(os.environ.get("EMM_STANDIN_VALUES") or "uniform")
    folder = _folder_of(torch)
    values = _values.Values(torch, StorageWeakRef, _answerer(), _drawer(torch), _notes, assumptions, inner=(folder,),
                            ranks=_Ranks(torch, (folder, os.path.join(os.path.dirname(os.path.abspath(__file__)), ""))))
    _followed_values = values
    make = _mode_of(torch, values)
    mode = make()
    mode.__enter__()
    _follow_threads(make)
    _leave_out_of_backward(torch, values, make)
    _leave_out_of_children(mode, values)
    _note_compiled(torch, make)
    _follow_graphs(torch, values)
