"""What PyTorch asks its allocator about memory, answered from emmctl's manager.

PyTorch's C++ refuses these questions with any pluggable allocator. Its Python functions ask them through torch._C, so that the
answers are put there: torch.cuda.memory_stats(), memory_allocated(), max_memory_allocated(), memory_reserved(),
max_memory_reserved(), the two reset functions and memory_summary() then say what the manager counts, under PyTorch's names. A
figure that the manager does not count is not in memory_stats(), and a function that is made of it raises RuntimeError.
"""
import functools
import warnings

from emmctl import _library, _manager

_since = {}  # by device: what had been counted at the last reset_accumulated_memory_stats()
_fractions = {}  # by device
_COUNTED_UP = ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")


def _is_total(name):
    return name.endswith((".allocated", ".freed")) or name in _COUNTED_UP


def figures(device):
    """What memory_stats() holds: {"allocated_bytes.all.current": bytes, ...}."""
    manager = _manager.manager(device)  # PyTorch's requests go to it without Python
    counted = manager.statistics()
    state = manager.state()
    for name, known in (("requested_bytes.all.current", "live_bytes"), ("reserved_bytes.all.current", "reserved_bytes")):
        if state[known] is not None:
            counted.setdefault(name, state[known])
    if "requested_bytes.all.current" in counted:  # a manager that pads nothing, or does not count what it pads
        counted.setdefault("allocated_bytes.all.current", counted["requested_bytes.all.current"])
    before = _since.get(device, {})
    return {name: value - before.get(name, 0) if _is_total(name) else value for name, value in counted.items()}


def nested(flat):
    """{"a.b": 1} as {"a": {"b": 1}}, which PyTorch flattens again."""
    made = {}
    for name, value in flat.items():
        *outer, last = name.split(".")
        functools.reduce(lambda inside, part: inside.setdefault(part, {}), outer, made)[last] = value
    return made


def most_of(flat, name):
    """The peak, and whether it is only known to be no more than that: what the manager held at most, for each stream's own
    peak is at a time of its own. (None, False) if neither is known."""
    if name in flat:
        return flat[name], False
    bound = flat.get("reserved_bytes.all.peak")
    return bound, bound is not None


def reset_peaks(device):
    if _library.library().emm_shared_reset_peaks(device) != _library.SUCCESS:
        raise RuntimeError("this manager cannot forget its peaks; the managers pool and statistics can")


def reset_accumulated(device):
    _since[device] = {name: value for name, value in _manager.manager(device).statistics().items() if _is_total(name)}


def summary(device):
    """A table of what is known, and the manager's own lines."""
    flat = figures(device)
    rows = [("", "current", "peak", "allocated", "freed")]
    for name in sorted({name.rpartition(".")[0] for name in flat if ".all." in name}):
        rows.append((name.removesuffix(".all"), *("%d" % flat[name + "." + part] if name + "." + part in flat else "-"
                                                  for part in ("current", "peak", "allocated", "freed"))))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = ["emmctl: device %d" % device]
    lines += ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths)))
              for row in rows]
    return "\n".join(lines) + "\n" + _manager.manager(device).report()


def _refused(what, instead):
    def refuse(*_, **__):
        raise RuntimeError("PyTorch's own %s is not to be had with emmctl's allocator: %s" % (what, instead))
    return refuse


def answer(torch):
    """Puts the answers where PyTorch asks. Versions differ in what they have."""
    core, cuda = torch._C, torch.cuda

    def index(device):
        find = getattr(cuda, "_get_device_index", None)
        return find(device, optional=True) if find is not None else int(device or 0)

    is_initialized = getattr(cuda, "is_initialized", lambda: True)

    def put(holder, name, function):
        if hasattr(holder, name):
            setattr(holder, name, function)

    def put_in_both(name, function):
        function.__name__ = name
        for holder in (cuda, cuda.memory):
            put(holder, name, function)

    def figure(name, is_peak):
        def ask(device=None):
            if not is_initialized():
                return 0  # as PyTorch's own
            flat = figures(index(device))
            found, is_bound = most_of(flat, name) if is_peak else (flat.get(name), False)
            if found is None:
                raise RuntimeError("the manager does not count %s; the manager pool does" % name)
            if is_bound:
                warnings.warn("%s is not known where several streams have memory: this is what was reserved at most, which it "
                              "does not exceed" % name, stacklevel=2)
            return found
        return ask

    put(core, "_cuda_memoryStats", lambda device: nested(figures(device)))
    put(core, "_cuda_resetPeakMemoryStats", reset_peaks)
    put(core, "_cuda_resetAccumulatedMemoryStats", reset_accumulated)
    for name, of in (("memory_allocated", "allocated_bytes.all.current"), ("max_memory_allocated", "allocated_bytes.all.peak"),
                     ("memory_reserved", "reserved_bytes.all.current"), ("max_memory_reserved", "reserved_bytes.all.peak")):
        put_in_both(name, figure(of, of.endswith("peak")))
    put_in_both("memory_summary", lambda device=None, abbreviated=False: summary(index(device)))
    recording = "`emmctl record -- python ...` writes a recording with each request's call stack (docs/recording.md)"
    put(core, "_cuda_memorySnapshot", _refused("memory snapshot", recording))
    put(core, "_cuda_record_memory_history", _refused("memory history", recording))

    set_fraction = getattr(core, "_cuda_setMemoryFraction", None)
    if set_fraction is not None:
        def set_and_note(fraction, device):
            set_fraction(fraction, device)
            _fractions[device] = fraction
        put(core, "_cuda_setMemoryFraction", set_and_note)
        put(core, "_cuda_getMemoryFraction", lambda device: _fractions.get(device, 1.0))
    _leave_out_cudnns_benchmark(torch)
    _leave_out_pools(torch)
    _leave_out_graph_trees(torch)


def _leave_out_cudnns_benchmark(torch):
    """cuDNN's benchmark mode asks PyTorch's own allocator how much it has, and fails; without it cuDNN's heuristics choose."""
    cudnn = getattr(getattr(torch, "backends", None), "cudnn", None)
    own = vars(type(cudnn)).get("benchmark")  # an object with the functions that read and write it
    if not hasattr(own, "setter"):
        return

    def refuse(on):
        if on:
            warnings.warn("cuDNN's benchmark mode needs PyTorch's own allocator: it stays off, and cuDNN's heuristics choose",
                          stacklevel=4)
        own_setter(False)
    own_setter, own.setter = own.setter, refuse
    if cudnn.benchmark:
        cudnn.benchmark = True


def _leave_out_pools(torch):
    own = getattr(torch.cuda, "MemPool", None)
    if own is None:
        return

    class MemPool(own):
        def __init__(self, *_, **__):
            raise RuntimeError("torch.cuda.MemPool is not to be had with emmctl's allocator, as with any pluggable one: PyTorch makes "
                               "pools for graphs alone there (torch.cuda.graph)")
    torch.cuda.MemPool = MemPool


def _leave_out_graph_trees(torch):
    """Graph trees take checkpoints of PyTorch's own allocator. Without them torch.compile captures each graph by itself."""
    own = getattr(torch, "compile", None)
    if own is None:
        return

    @functools.wraps(own)
    def compiled(*args, **kwargs):
        from torch._inductor import config
        if getattr(config.triton, "cudagraph_trees", False):
            config.triton.cudagraph_trees = False
        return own(*args, **kwargs)
    torch.compile = compiled
