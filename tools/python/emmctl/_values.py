"""What small tensors of a device hold whose kernels are skipped: their values are followed on the host.

Under `emmctl run --device sim` no kernel runs, so that device memory does not say what a program computed. A program asks it
all the same: whether all rows are finished, which rows an expert gets, how many indices differ. So each operation whose inputs
are all known and small is computed on the host too, after the device's own ran as ever and took what memory it takes.

A storage has one entry here, a CPU tensor of its elements; views of it are views of that. Values have a level: known; drawn,
by a generator as random as the device's; assumed, where a computation that is not known was asked for a mask or an index. What
was assumed or is not known, and then decided something, is a place: its line, and what it may be wrong by.

The module knows no PyTorch but what it is given, so that it is tested without one; _under_sim has what belongs to PyTorch.
"""
import collections
import functools
import math
import os
import re
import sys
import threading
import traceback

KNOWN, DRAWN, ASSUMED = 0, 1, 2

MOST_INTEGERS = 1 << 20  # elements of what is followed; booleans likewise
MOST_FLOATS = 4_096
MOST_MISTAKES = 1000  # of our own, before nothing more is followed
MOST_READS = 100_000  # of what is not known, at one line, while nothing new comes from the host

# Values of their own, whatever the content was.
_OVERWRITES = {"zero_", "fill_", "copy_", "random_", "uniform_", "normal_", "bernoulli_", "exponential_", "geometric_"}
_EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}
# They write nothing that a program reads: a stream, or a mark that no overflow was found.
_HARMLESS = {"record_stream", "_amp_foreach_non_finite_check_and_unscale_", "set_", "detach_", "requires_grad_"}
# What cuDNN would have done, where it is not switched off.
_BY_CUDNN = {"convolution", "convolution_backward", "_slow_conv2d_forward", "slow_conv3d_forward", "conv_depthwise3d", "_conv_depthwise2d",
             "native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell",
             "_ctc_loss"}
_NOBODY_ASKS = {"native_dropout", "_fused_dropout"}  # masks that only a kernel reads
_NEVER = {"isnan", "isinf", "isposinf", "isneginf"}
_BY_SORTING = {"sort", "argsort", "msort"}
_BY_DIM = {"argmax": 1, "argmin": 1, "topk": 2, "max": 1, "min": 1, "median": 1, "nanmedian": 1, "kthvalue": 2, "mode": 1, "cummax": 1,
           "cummin": 1, "aminmax": 1}
_OF_CONSTANTS = {"any": any, "all": all, "logical_and": all, "bitwise_and": all, "mul": all, "logical_or": any, "bitwise_or": any,
                 "logical_not": lambda given: not given[0], "bitwise_not": lambda given: not given[0]}
_PRODUCTS = {"mm", "bmm", "baddbmm"}
_MOST_CHECKS = 8  # a decomposition of cuSOLVER's asks the device at most this often
_UNIQUE = {"_unique", "_unique2", "unique_consecutive", "unique_dim", "unique_dim_consecutive"}
# Of torch.distributed: (the positions of what an operation gives, of what it takes). In the other namespaces an operation gives what it
# returns, and takes its arguments.
_OF_RANKS = {
    "broadcast_": ((0,), (0,)), "allreduce_": ((0,), (0,)), "allreduce_coalesced_": ((0,), (0,)), "reduce_": ((0,), (0,)),
    "allgather_": ((0,), (1,)), "_allgather_base_": ((0,), (1,)), "allgather_coalesced_": ((0,), (1,)),
    "allgather_into_tensor_coalesced_": ((0,), (1,)), "reduce_scatter_": ((0,), (1,)), "_reduce_scatter_base_": ((0,), (1,)),
    "reduce_scatter_tensor_coalesced_": ((0,), (1,)), "gather_": ((0,), (1,)), "scatter_": ((0,), (1,)), "alltoall_": ((0,), (1,)),
    "alltoall_base_": ((0,), (1,)), "send": ((), (0,)), "recv_": ((0,), ()), "recv_any_source_": ((0,), ()),
    "barrier": ((), ()), "monitored_barrier_": ((), ()),
}
_FUNCTIONAL = {"_c10d_functional", "_c10d_functional_autograd"}
_NAMESPACES_OF_RANKS = _FUNCTIONAL | {"c10d", "_dtensor", "symm_mem"}
MOST_EXCHANGED = 1 << 20  # bytes, of all that a collective gathers or scatters
UNKNOWN = 3  # a level for the stand-in
MOST_AWAITED = 1000  # results of collectives that nobody has asked for
_MASKED = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}


class Endless(BaseException):
    """A loop waits for a value that is not known. The text names the line. No program catches it by mistake."""


class _Result:
    """What a collective gives, which device memory holds when the other ranks have come."""
    __slots__ = ("_ask", "_number", "_level")

    def __init__(self, ask, number):
        self._ask, self._number, self._level = ask, number, None

    def level(self):
        """Waits for the others. UNKNOWN where a rank did not know its values."""
        if self._level is None:
            self._level = self._ask(self._number)
        return self._level


class _Entry:
    __slots__ = ("base", "level", "reference", "version", "passes", "awaited")

    def __init__(self, base, level, reference):
        self.base, self.level, self.reference = base, level, reference
        self.awaited = []  # (result, address, bytes, type, size, stride, offset) of what collectives write to it
        self.version = self.passes = 0  # the tensor's, and how many backward passes there had been, when it was last followed


def _version_of(tensor):
    try:
        return tensor._version
    except RuntimeError:
        return 0  # a tensor of inference mode has none, and no backward pass writes to it


class _Operation:
    """What a function's schema says of it."""

    def __init__(self, func):
        schema = func._schema
        self.namespace, _, self.name = schema.name.rpartition("::")
        self.written = []  # (position, name) of arguments that it writes
        takes_generator = False
        for position, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self.written.append((position, argument.name))
            takes_generator |= argument.name == "generator"
        tags = {str(tag).rpartition(".")[2] for tag in getattr(func, "tags", ())}
        self.is_random = takes_generator or "nondeterministic_seeded" in tags
        self.is_view = any(value.alias_info is not None for value in schema.returns)
        self.overwrites = self.name in _OVERWRITES
        self.mask_position = 1 if self.name in _MASKED else None
        self.takes_kwargs_out = any(name == "out" for _, name in self.written)
        # It shares what is known, or does nothing to it.
        self.is_passed_on = self.name in _HARMLESS or (self.is_view and not self.written and self.name != "lift_fresh")
        self.is_by_cudnn = self.name in _BY_CUDNN
        self.special = None  # our own method for it
        self.gives_only = False  # of what is not known it gives what is not known, and does nothing else

    def targets(self, args, kwargs):
        for position, name in self.written:
            value = args[position] if position < len(args) else kwargs.get(name)
            yield from value if isinstance(value, (list, tuple)) else (value,)

    def given_target(self, args, kwargs):
        """The one tensor whose content it replaces; None for others."""
        if self.overwrites:
            return args[0]
        out = kwargs.get("out") if self.takes_kwargs_out else None
        return out if out is not None and not isinstance(out, (list, tuple)) else None


class Assumptions:
    """What --unknown-sizes says: the share of an unknown mask that is true, and how unknown indices are spread."""

    def __init__(self, words="uniform"):
        self.words = words
        self.share = {"uniform": 0.5, "all": 1.0, "none": 0.0}.get(words)
        self._gathered = {"uniform": 0.0, "none": 0.0}.get(words)
        if self.share is None:
            self.share = float(words)
        if self._gathered is None:
            self._gathered = self.share
        self._masked = self._rows = 0

    def count(self, elements):
        """How many of a mask's are true, which nobody has looked at one by one."""
        return int(elements * self.share + 0.5)

    def mask(self, elements):
        first, self._masked = self._masked, self._masked + elements
        return [int((first + i + 1) * self.share) > int((first + i) * self.share) for i in range(elements)]

    def indices(self, rows, columns, limit):
        """In each row, different ones below `limit` if there are as many; each as often, or some rows all alike."""
        golden, limit = 0.6180339887498949, max(limit, 1)
        made = []
        for _ in range(rows):
            self._rows += 1
            alike = int(self._rows * self._gathered) > int((self._rows - 1) * self._gathered)
            first = 0 if alike else int(self._rows * golden % 1.0 * limit)
            made += [(first + column) % limit for column in range(columns)]
        return made


class _Place:
    __slots__ = ("times", "taken", "least", "most")

    def __init__(self):
        self.times, self.taken, self.least, self.most = 0, "", None, None


class Notes:
    """The file that tells emmctl what was assumed, and where. It is whole at each new place, so that the notes of a process
    that is killed are there, too."""

    def __init__(self, path):
        self._path, self.is_closed = path, False
        self.has_cudnn = False  # it is stood in for
        self.places = collections.OrderedDict()  # (kind, where, what) -> _Place
        self.facts = []
        self.peaks = []  # (device, bytes reserved, bytes allocated)

    def fact(self, word, text=""):
        if (word, text) not in self.facts:
            self.facts.append((word, text))
            self.write()

    def place(self, kind, where, what, taken, least, most):
        found = self.places.get((kind, where, what))
        is_new = found is None
        if is_new:
            found = self.places[kind, where, what] = _Place()
        found.times += 1
        found.taken = taken
        found.least = least if found.least is None else min(found.least, least)
        found.most = most if found.most is None else max(found.most, most)
        if is_new:
            self.write()

    def write(self):
        if self.is_closed:
            return
        rows = ["fact\t%s\t%s" % fact for fact in self.facts]
        rows += ["peak\t%d\t%d\t%d" % peak for peak in self.peaks]
        rows += ["\t".join(["place", kind, str(place.times), where, what, str(place.taken), str(place.least), str(place.most)])
                 for (kind, where, what), place in self.places.items()]
        try:
            with open(self._path + ".part", "w") as file:
                file.write("".join(row.replace("\n", " ") + "\n" for row in rows))
            os.replace(self._path + ".part", self._path)
        except OSError:
            pass  # the program is not to suffer


_BACKWARD = "a backward pass"
_HERE = os.path.join(os.getcwd(), "")
_OF_PACKAGES = re.compile(r"^.*/(site|dist)-packages/")


def place_of_caller(inner, frame=None):
    """The line that asked, or that the frame waits for: the first one outward that lies in none of the folders `inner`."""
    frame = frame or sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(inner) and not path.startswith("<frozen"):
            path = path[len(_HERE):] if path.startswith(_HERE) else _OF_PACKAGES.sub("", path)
            return "%s:%d" % (path, frame.f_lineno)
        frame = frame.f_back
    return _BACKWARD


_OF_RANKS_ALONE = re.compile(r"/torch/distributed/|/torch/nn/parallel/distributed\.py$|/emmctl/_absent_ranks\.py$")


_OF_DECORATORS = ("wrapper", "wrapped", "inner", "decorate_context")


def call_of_ranks(inner, frame):
    """The call of the program's that the frame is in, with the innermost of it, where that is one in which ranks wait for one another;
    else nothing."""
    names, is_one = [], False
    while frame is not None and (frame.f_code.co_filename.startswith(inner) or frame.f_code.co_filename.startswith("<frozen")):
        is_one = is_one or _OF_RANKS_ALONE.search(frame.f_code.co_filename) is not None
        names.append(getattr(frame.f_code, "co_qualname", frame.f_code.co_name).rpartition("<locals>.")[2])
        frame = frame.f_back
    if not is_one:
        return ""
    names = [name for name in names if name not in _OF_DECORATORS] or names
    return names[-1] if names[0] == names[-1] else "%s, in %s" % (names[-1], names[0])


class _Thread(threading.local):
    product = None  # the last matrix product: its storage, and the instruction of Python that it was a part of


# What lies between the Python code that calls PyTorch and us.
_BETWEEN = re.compile(r"/emmctl/_(values|under_sim)\.py$|/torch/(_ops|_compile|utils/_python_dispatch)\.py$|/torch/_dynamo/")


@functools.lru_cache(maxsize=None)
def _is_between(path):
    return _BETWEEN.search(path) is not None


def _frame_of_caller():
    """The Python code whose one call an operation is a part of."""
    frame = sys._getframe(1)
    while frame is not None and _is_between(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


class Values:
    """The entries of one process. `answer_reads` tells the simulated device what its next copies to the host hold; `draw` calls
    a function with random numbers that are not the program's."""

    def __init__(self, torch, weak_reference, answer_reads, draw, notes, assumptions=None, inner=(), ranks=None):
        self._torch, self._refer, self._answer, self._draw, self._notes = torch, weak_reference, answer_reads, draw, notes
        self._ranks = ranks  # what the stand-in for NCCL exchanges with other ranks
        self._awaiting = collections.deque()  # entries that wait for a collective
        self._assume = assumptions or Assumptions()
        self._inner = tuple(inner) + (os.path.dirname(os.path.abspath(__file__)) + os.sep,)
        self._entries, self._operations, self._made = {}, {}, 0
        self._sorts = {}  # dtype -> (elements that are followed at most, is it of floating point)
        self._reads = collections.Counter()
        self._constants = {}  # storage -> (truth, reference): unknown masks that are taken to be all true or all false
        self._chosen = {}  # what was assumed of many elements, for the next that are as many
        self._mistakes = 0
        self._passes = 0
        self._captured = None  # while a graph is captured: the storages that its operations have written to
        self.is_off = False
        self._thread = _Thread()
        self.is_read_in_backward = False  # the pass asks the device how many of a mask are true, and must be told

    def passed_backward(self):
        """A pass was not followed. It added to gradients that had been zero."""
        self._passes += 1

    # What is known of a tensor

    def _most(self, dtype):
        found = self._sorts.get(dtype)
        if found is None:
            floats = bool(dtype.is_floating_point)
            found = self._sorts[dtype] = (0 if dtype.is_complex else MOST_FLOATS if floats else MOST_INTEGERS, floats)
        return found[0]

    def _is_float(self, dtype):
        self._most(dtype)
        return self._sorts[dtype][1]

    def _key(self, tensor):
        """Its storage's name here; None for a tensor without one, as a sparse one is."""
        try:
            return tensor.untyped_storage()._cdata
        except (NotImplementedError, RuntimeError):
            return None

    def _entry(self, tensor):
        key = self._key(tensor)
        entry = self._entries.get(key)
        if entry is not None and entry.awaited and not self._take_awaited(entry):
            del self._entries[key]
            return None
        if entry is not None and entry.passes != self._passes and self._is_float(tensor.dtype):
            if _version_of(tensor) > entry.version:
                del self._entries[key]
                return None
            entry.passes = self._passes
        return entry

    def _base(self, entry, dtype):
        """All of the storage, as elements of that type."""
        base = entry.base
        if not isinstance(base, self._torch.Tensor):  # (elements, type): they are zero until somebody asks
            with self._torch.inference_mode(False):  # it may be written to after the inference
                base = entry.base = self._torch.zeros(base[0], dtype=base[1], device="cpu")
        return base if base.dtype == dtype else base.view(dtype)

    def _host(self, tensor, entry):
        return self._base(entry, tensor.dtype).as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    def _take_awaited(self, entry):
        """Takes what collectives gave. False where it is not known."""
        awaited, entry.awaited = entry.awaited, []
        for result, address, size, dtype, sizes, strides, offset in awaited:
            level = result.level()
            data = self._ranks.read(address, size) if level < UNKNOWN and not entry.reference.expired() else None
            if data is None:
                return False
            host = self._torch.frombuffer(data, dtype=dtype).reshape(sizes) if size else self._torch.zeros(sizes, dtype=dtype, device="cpu")
            with self._torch.no_grad():
                base = self._base(entry, dtype)
                base.as_strided(sizes, strides, offset).copy_(host)
            entry.level = max(entry.level, level) if len(awaited) > 1 or host.numel() != base.numel() else level
        return True

    def known(self, tensor):
        """The tensor's values on the host, and their level; (None, None) if they are not known."""
        entry = self._entry(tensor)
        return (None, None) if entry is None else (self._host(tensor, entry), entry.level)

    def _forget(self, tensor):
        key = self._key(tensor)
        self._entries.pop(key, None)
        self._constants.pop(key, None)

    # What is written without an operation

    def written_by_kernel(self, args, names=None, mutated=()):
        """A kernel of Triton's gets these arguments. Inductor says by its `names` which it only reads. Of another one nothing is known:
        it is taken to write to memory that has no content yet."""
        if not self._entries and not self._constants:
            return
        for position, each in enumerate(args):
            if not isinstance(each, self._torch.Tensor):
                continue
            if names is not None:
                name = names[position] if position < len(names) else ""
                if name.startswith("in_ptr") and name not in mutated:
                    continue
            else:
                entry = self._entries.get(self._key(each))
                if entry is not None and isinstance(entry.base, self._torch.Tensor):
                    continue
            self._forget(each)

    def capture_begins(self):
        self._captured = set()

    def capture_ends(self):
        """Returns what the graph's replays write to."""
        written, self._captured = self._captured or set(), None
        return written

    def replayed(self, written):
        for key in written:
            self._entries.pop(key, None)
            self._constants.pop(key, None)

    def constant(self, tensor):
        """True or False where all of an unknown mask is taken to be so; else None."""
        found = self._constants.get(self._key(tensor))
        return None if found is None else found[0]

    def take_constant(self, tensor, truth):
        self._constants[self._key(tensor)] = (truth, self._refer(tensor.untyped_storage()))

    def _elements(self, tensor):
        """Those of its storage; None if there are too many to follow."""
        most = self._most(tensor.dtype)
        if most == 0 or self._key(tensor) is None:
            return None
        elements = tensor.untyped_storage().nbytes() // tensor.element_size()
        return elements if elements <= most else None

    def _follow(self, tensor, host, level):
        """Begins an entry, or replaces one. `host` has the tensor's values; None: they are zero."""
        elements = self._elements(tensor)
        if elements is None:
            return None
        storage = tensor.untyped_storage()
        entry = _Entry((elements, tensor.dtype), level, self._refer(storage))
        if host is not None:
            with self._torch.no_grad():
                self._host(tensor, entry).copy_(host)
        entry.version, entry.passes = _version_of(tensor), self._passes
        self._entries[storage._cdata] = entry
        if self._captured is not None:
            self._captured.add(storage._cdata)
        self._made += 1
        if self._made % 512 == 0:
            for key, old in list(self._entries.items()):
                if old.reference.expired():
                    self._entries.pop(key, None)
            for key, (_, reference) in list(self._constants.items()):
                if reference.expired():
                    self._constants.pop(key, None)
        return entry

    def tensor(self, given, dtype):
        """A tensor of the host."""
        return self._torch.tensor(given, dtype=dtype, device="cpu")

    def chosen(self, key, elements, dtype, choose):
        """A tensor of what `choose` gives. Of many elements it is chosen once, since that takes a while."""
        if elements <= 4096:
            return self.tensor(choose(), dtype)
        found = self._chosen.get(key + (dtype,))
        if found is None:
            if len(self._chosen) >= 64:
                self._chosen.clear()
            found = self._chosen[key + (dtype,)] = self.tensor(choose(), dtype)
        return found

    # Operations

    def call(self, func, args, kwargs):
        """Runs the operation on the device, and on the host where that is possible."""
        if self.is_off:
            return func(*args, **kwargs)
        run = func
        try:
            operation = self._operations.get(func)
            if operation is None:
                operation = self._operation(func)
            if operation and operation.namespace in _NAMESPACES_OF_RANKS:
                step = None
                run = self._with_ranks(operation, func)
            else:
                step = self._before(func, operation, args, kwargs) if operation and not operation.is_passed_on else None
            if step is not None:
                run = self._as_without_a_mode(step[0], func, args, kwargs)
                if run is not func:
                    self._forget(args[0])
        except Exception:
            step = self.mistake(args, kwargs)
        if step is None:
            return run(*args, **kwargs)
        name, answers, after = step
        if answers:
            self._answer(answers)
        try:
            out = run(*args, **kwargs)
        finally:
            if answers:
                self._answer(())
        if name in _PRODUCTS:
            self._note_product(out)
        try:
            return after(out)
        except Endless:
            raise
        except Exception:
            self.mistake(args, kwargs)
            return out

    def _as_without_a_mode(self, name, func, args, kwargs):
        """PyTorch's own code writes in place where no mode is, and into a new tensor where one is; so it would take other memory."""
        if name == "add" and self._thread.product is not None and not kwargs and self._is_own_product(*args):
            # linear() adds its bias so, and scaled_dot_product_attention() its mask.
            return lambda product, other: self._torch.ops.aten.add_.Tensor(product, other).detach()
        if name == "masked_scatter" and self.is_read_in_backward and place_of_caller(self._inner) == _BACKWARD:
            return self._torch.ops.aten.masked_scatter_.default
        return func

    # Other ranks

    def _with_ranks(self, operation, func):
        """The collective, which brings what is known here, and whose results are what device memory then holds."""
        if operation.name == "wait_tensor":
            return func
        is_exchanged = self._ranks is not None and operation.namespace in ("c10d", *_FUNCTIONAL)

        def run(*args, **kwargs):
            taken, given = self._sides(operation, args, kwargs)
            result = _Result(self._ranks.level, self._ranks.begin(self._bring(taken))) if is_exchanged else None
            out = None
            try:
                out = func(*args, **kwargs)
            finally:
                was_called = self._ranks.end() if is_exchanged else False
                tensors = list(self._all_tensors(given if given is not None else out))
                try:
                    self._await(result if was_called else None, tensors)
                except Exception:
                    self.mistake(args, kwargs)
            return out
        return run

    def _all_tensors(self, values):
        """Those in lists of lists, too."""
        if isinstance(values, self._torch.Tensor):
            yield values
        elif isinstance(values, (list, tuple)):
            for value in values:
                yield from self._all_tensors(value)

    def _sides(self, operation, args, kwargs):
        """What it takes, and what it gives; None: what it returns."""
        every = list(args) + list(kwargs.values())
        if operation.namespace != "c10d":
            out = kwargs.get("out")
            writes = operation.written and out is None
            return list(self._all_tensors(args)), (list(self._all_tensors(args)) if writes else None if out is None else [out])
        sides = _OF_RANKS.get(operation.name)
        if sides is None:  # one that we never heard of
            return list(self._all_tensors(every)), list(self._all_tensors(every))
        given, taken = ([one for position in positions if position < len(args) for one in self._all_tensors(args[position])]
                        for positions in sides)
        return taken, given

    def _bring(self, tensors):
        """Puts what is known of the tensors into device memory. How well all of it is known."""
        level = KNOWN
        hosts = []
        for tensor in tensors:
            if not tensor.is_cuda:
                continue
            entry = self._entry(tensor)
            if entry is None or not tensor.is_contiguous() or tensor.numel() * tensor.element_size() > MOST_EXCHANGED:
                return UNKNOWN
            level = max(level, entry.level)
            hosts.append((tensor, self._host(tensor, entry)))
        for tensor, host in hosts:
            if tensor.numel() and not self._ranks.write(tensor, host):
                return UNKNOWN
        return level

    def _await(self, result, tensors):
        """Later, since the others need not have come yet. No result: what they hold is not known."""
        for tensor in tensors:
            if not tensor.is_cuda:
                continue
            if result is None:
                self._forget(tensor)
                continue
            elements = self._elements(tensor)
            size = tensor.numel() * tensor.element_size()
            if elements is None or size > MOST_EXCHANGED or not tensor.is_contiguous():
                self._forget(tensor)
                continue
            entry = self._entries.get(self._key(tensor))
            if self._covers(tensor) or entry is None:
                if not self._covers(tensor):
                    continue  # the rest of its storage is not known
                entry = self._follow(tensor, None, KNOWN)
            entry.version, entry.passes = _version_of(tensor), self._passes
            entry.awaited.append((result, tensor.data_ptr(), size, tensor.dtype, tensor.size(), tensor.stride(), tensor.storage_offset()))
            self._awaiting.append(entry)
        while len(self._awaiting) > MOST_AWAITED:  # the stand-in keeps so many
            oldest = self._awaiting.popleft()
            if oldest.awaited and not self._take_awaited(oldest):
                oldest.level, oldest.awaited = ASSUMED, []

    def _note_product(self, product):
        """The frame is marked, since another one may have its address. Who traces lines sees no mark, and gets the new tensor."""
        frame = _frame_of_caller()
        if frame is not None and sys.gettrace() is None:
            frame.f_trace_lines = False
            self._thread.product = self._key(product), frame.f_lasti

    def _is_own_product(self, product, other):
        """Was the product made in the same call from Python that now adds to it? Then nobody else has it."""
        (key, instruction), self._thread.product = self._thread.product, None
        frame = _frame_of_caller()
        if not isinstance(other, self._torch.Tensor) or self._key(product) != key or frame is None:
            return False
        if frame.f_trace_lines or frame.f_lasti != instruction:
            return False
        sizes, others = list(product.size()), list(other.size())
        return len(others) <= len(sizes) and all(one in (1, size) for one, size in zip(reversed(others), reversed(sizes)))

    def mistake(self, args, kwargs):
        """One of ours is not the program's: what the operation had is not known any more; after many, nothing is followed."""
        self._mistakes += 1
        if self._mistakes >= MOST_MISTAKES:
            self.is_off = True
            self._entries.clear()
        else:
            for tensor in list(self._tensors(args)) + list(self._tensors(kwargs.values())):
                self._forget(tensor)
        if self._mistakes == 1:
            kind, error, trace = sys.exc_info()
            last = traceback.extract_tb(trace)[-1]
            self._notes.fact("stopped", "%s: %s (%s:%d)" % (kind.__name__, error, os.path.basename(last.filename), last.lineno))

    def _operation(self, func):
        """False for a function without a schema."""
        found = self._operations[func] = _Operation(func) if hasattr(func, "_schema") else False
        if found:
            name = found.name
            found.special = getattr(self, "_of" + (name if name.startswith("_") else "_" + name), None)
            if found.special is None and name.lstrip("_").startswith("linalg_"):
                found.special = self._of_linalg
            if found.special is None and name in _UNIQUE:
                found.special = self._of_unique
            if found.special is None and found.mask_position is not None:
                found.special = self._of_indexing
            found.gives_only = found.special is None and not found.written and name not in _EMPTY and name != "_to_copy"
        return found

    def _tensors(self, values):
        tensor = self._torch.Tensor
        for value in values:
            if isinstance(value, tensor):
                yield value
            elif isinstance(value, (list, tuple)):
                for one in value:
                    if isinstance(one, tensor):
                        yield one

    def _before(self, func, operation, args, kwargs):
        """None if the operation is not the device's; else its name, what the device's reads answer in it, and what is done after it."""
        given = list(self._tensors(args))
        if kwargs:
            given += self._tensors(kwargs.values())
        on_device = [tensor for tensor in given if tensor.is_cuda]
        if not on_device:
            device = kwargs.get("device")
            if device is None or not str(device).startswith("cuda"):
                return None
        if operation.is_by_cudnn and not self._notes.has_cudnn:
            self._notes.fact("cudnn")
        elif operation.name == "convolution" and self._torch.backends.cudnn.benchmark:
            self._notes.fact("benchmark")
        name = operation.name
        target = operation.given_target(args, kwargs)
        hosts, level = {}, KNOWN
        for tensor in on_device:
            entry = self._entry(tensor)
            if entry is None:
                if tensor is target and self._covers(tensor):
                    continue  # what it held does not matter
                level = None
                break
            if id(tensor) not in hosts:
                hosts[id(tensor)] = self._host(tensor, entry)
            if entry.level > level and not (tensor is target and self._covers(tensor)):
                level = entry.level
        if len(on_device) != len(given) and any(tensor.numel() > 1 for tensor in given if not tensor.is_cuda):
            self._reads.clear()  # something new comes from the host
        step = _Step(self, func, operation, args, kwargs, on_device, hosts, level, target)
        if level is None and operation.gives_only:
            return name, (), step.finish_unknown
        return (name, *operation.special(step)) if operation.special is not None else (name, (), step.finish)

    def _covers(self, tensor):
        return self._elements(tensor) == tensor.numel()

    # Operations that read the device, or whose size depends on what they find

    def _of_local_scalar_dense(self, step):
        tensor = step.args[0]
        if step.level is not None:
            value = step.host_of(tensor).item()
            if step.level == KNOWN:
                return (), lambda out: value
        elif tensor.dtype == self._torch.bool:
            value = self._assume.mask(1)[0]
        else:
            value = 1.0 if self._is_float(tensor.dtype) else 1

        def after(out):
            self.read("float" if self._is_float(tensor.dtype) else "value", "item", step.level, value, None, None)
            return complex(value) if isinstance(out, complex) else value
        return (), after

    def _of_nonzero(self, step):
        tensor = step.args[0]
        count, level = self._count(tensor) or (None, None)
        return self._with_counts(step, [(count, tensor.numel(), level)])

    def _of_masked_select(self, step):
        self_, mask = step.args[0], step.args[1]
        elements = max(self_.numel(), mask.numel())
        found = self._count(mask)
        count = None if found is None else found[0] * (elements // max(mask.numel(), 1))
        return self._with_counts(step, [(count, elements, None if found is None else found[1])])

    def _of_indexing(self, step):
        counts = []
        for index in step.args[step.operation.mask_position]:
            if index is None or not index.is_cuda or index.dtype not in (self._torch.bool, self._torch.uint8):
                continue
            found = self._count(index)
            self.is_read_in_backward |= any(getattr(tensor, "requires_grad", False) for tensor in self._tensors(step.args))
            counts.append((None, index.numel(), None) if found is None else (found[0], index.numel(), found[1]))
        return self._with_counts(step, counts) if counts else ((), step.finish)

    def _count(self, mask):
        host, level = self.known(mask)
        if host is not None:
            return int((host != 0).sum().item()), level
        truth = self.constant(mask)
        return None if truth is None else (mask.numel() if truth else 0, ASSUMED)

    def _with_counts(self, step, counts):
        answers = []
        for count, elements, level in counts:
            if count is None:
                count = self._assume.count(elements)
            answers.append(count)
            if level != KNOWN:
                self.read("size", step.operation.name, level, count, 0, elements)
        return answers, step.finish

    def _of_unique(self, step):
        tensor = step.args[0]
        elements = tensor.numel() if "dim" not in step.operation.name else tensor.size(step.args[1])
        if step.level is not None and step.compute():
            first = step.computed[0]
            distinct = first.size(step.args[1]) if "dim" in step.operation.name else first.numel()
            answer = distinct
            if tensor.dtype == self._torch.bool and step.operation.name.startswith("_unique"):
                answer = int(step.host_of(tensor).sum().item())  # it asks how many are true
            level = step.level
        else:
            distinct = answer = min(max(self._assume.count(elements), 1), elements)
            step.level = level = None
        if level != KNOWN:
            self.read("size", step.operation.name, level, distinct, min(elements, 1), elements)
        return [answer], step.finish

    def _of_is_all_true(self, step):
        """What torch.distributions asks of its parameters. Those that a program computes are right."""
        def after(out):
            out = step.finish(out)
            if step.level != KNOWN:
                self._follow(out, self.tensor([True], out.dtype).reshape(out.size()), ASSUMED)
            return out
        return (), after

    def _of_linalg(self, step):
        """It asks whether the device could do it, in `info` and in what it makes of that: here it could. What it reads would be what
        lies there from before, since kernels are skipped."""
        def after(out):
            out = step.finish(out)
            if step.operation.name.endswith("_ex") and self._entry(out[-1]) is None:
                self._follow(out[-1], None, ASSUMED)
            return out
        asks_if_finite = step.operation.name.lstrip("_") in ("linalg_eig", "linalg_eigvals")
        return [int(asks_if_finite)] + [0] * _MOST_CHECKS, after

    def _of_normal(self, step):
        return [1], step.finish  # it asks that no deviation is below zero

    def _of_resize_(self, step):
        """Its storage may be another one, with what the old one held at its start."""
        tensor = step.args[0]
        entry = self._entry(tensor)
        before = None if entry is None else self._host(tensor, entry).new_zeros(0) if isinstance(entry.base, tuple) else entry.base
        level = None if entry is None else entry.level

        def after(out):
            self._forget(tensor)
            elements = self._elements(tensor)
            if before is not None and elements is not None:
                entry = self._follow(tensor, None, level)
                old = before if before.dtype == tensor.dtype else before.view(tensor.dtype)
                kept = min(old.numel(), elements)
                if kept:
                    whole = self._torch.zeros(elements, dtype=tensor.dtype, device="cpu")
                    whole[:kept].copy_(old[:kept])
                    entry.base = whole
            return out
        return (), after

    def _of_coalesce(self, step):
        """The rows of a sparse gradient, of which those of one index become one."""
        indices = step.args[0]._indices()
        elements = indices.size(1)
        host, level = self.known(indices)
        distinct = self._torch.unique(host, dim=1).size(1) if host is not None else min(max(self._assume.count(elements), 1), elements)
        if level != KNOWN:
            self.read("size", "coalesce", level, distinct, min(elements, 1), elements)
        step.level = None
        return [distinct], step.finish

    def _of_repeat_interleave(self, step):
        repeats = step.args[0]
        if not isinstance(repeats, self._torch.Tensor) or step.kwargs.get("output_size") is not None:
            return (), step.finish
        total = repeats.numel() if step.level is None else int(step.host_of(repeats).sum().item())
        if step.level != KNOWN:
            self.read("size", step.operation.name, step.level, total, 0, "?")
        return [total, 1], step.finish  # and that none is negative

    def _of_bincount(self, step):
        tensor = step.args[0]
        host = step.host_of(tensor) if step.level is not None else None
        if host is None or host.numel() == 0:
            if host is None:
                self.read("size", step.operation.name, None, 1, 1, "?")
            return (), step.finish
        least, most = int(host.min().item()), int(host.max().item())
        if step.level != KNOWN:
            self.read("size", step.operation.name, step.level, most + 1, 1, "?")
        return [most] if tensor.dtype == self._torch.uint8 else [least, most], step.finish

    def _of_equal(self, step):
        if step.level is not None and step.compute():
            value = bool(step.computed)
            if step.level != KNOWN:
                self.read("value", "equal", step.level, value, None, None)
        else:
            value = self._assume.mask(1)[0]
            self.read("value", "equal", None, value, None, None)
        return [int(value)], lambda out: value

    def _of_lift_fresh(self, step):
        if step.level is None:  # torch.tensor(..., device="cuda"): its copy to the device was not shown to us

            def after(out):
                if self._elements(out) is not None:
                    self._follow(out, out.cpu(), KNOWN)
                return out
            return (), after
        return (), step.finish

    # Where something was decided by what is not known

    def read(self, kind, what, level, taken, least, most):
        """A program got `taken`. Raises Endless where the same line asks again and again."""
        where = place_of_caller(self._inner)
        how = {DRAWN: "drawn", ASSUMED: "assumed", None: "unknown"}[level]
        self._notes.place(kind + "." + how, where, what, taken, "" if least is None else least, "" if most is None else most)
        if kind == "size":
            return  # it steers no loop by itself
        self._reads[where] += 1
        if self._reads[where] > MOST_READS:
            self._notes.fact("endless", where)
            raise Endless(where)


class _Step:
    """One call of an operation on the device."""

    def __init__(self, values, func, operation, args, kwargs, on_device, hosts, level, target):
        self.values, self.func, self.operation, self.args, self.kwargs = values, func, operation, args, kwargs
        self.on_device, self.hosts, self.level, self.target = on_device, hosts, level, target
        self.computed = None

    def host_of(self, tensor):
        return self.hosts[id(tensor)]

    def _to_host(self, value):
        tensor = self.values._torch.Tensor
        if isinstance(value, tensor):
            return self.hosts[id(value)] if value.is_cuda else value
        if isinstance(value, (list, tuple)):
            return type(value)(self._to_host(one) for one in value)
        return value

    def compute(self):
        """Does the same on the host. False where the host cannot: what the operation gives is then not known."""
        values, kwargs = self.values, {}
        for name, value in self.kwargs.items():
            if name == "device":
                value = values._torch.device("cpu")
            elif name == "pin_memory":
                continue
            kwargs[name] = self._to_host(value)
        arguments = [self._to_host(value) for value in self.args]
        try:
            with values._torch.no_grad():
                if self.operation.is_random:
                    kwargs.pop("generator", None)
                    self.level = max(self.level, DRAWN)
                    self.computed = values._draw(lambda: self.func(*arguments, **kwargs))
                else:
                    self.computed = self.func(*arguments, **kwargs)
        except Exception:
            return False
        return True

    def finish(self, out):
        values, operation = self.values, self.operation
        outs = list(values._tensors((out,) if not isinstance(out, (list, tuple)) else out))
        targets = [tensor for tensor in operation.targets(self.args, self.kwargs) if tensor is not None]
        if any(not tensor.is_cuda for tensor in targets):
            self._copied_to_host(targets)
            return out
        fresh = [tensor for tensor in outs if tensor.is_cuda and values._entry(tensor) is None and tensor is not self.target]
        if operation.name in _EMPTY:
            for tensor in fresh:
                values._follow(tensor, None, KNOWN)
            return out
        if self.level is None or any(values._elements(tensor) is None for tensor in fresh) or (
                self.target is not None and values._elements(self.target) is None):
            return self._not_known(out, outs, targets)
        if self.target is not None and id(self.target) not in self.hosts:
            entry = values._follow(self.target, None, self.level)
            if entry is None:
                return self._not_known(out, outs, targets)
            self.hosts[id(self.target)] = values._host(self.target, entry)
        if self.computed is None and not self.compute():
            return self._not_known(out, outs, targets)
        for tensor in targets:
            entry = values._entry(tensor)
            if entry is not None:
                if values._captured is not None:
                    values._captured.add(values._key(tensor))
                entry.version, entry.passes = _version_of(tensor) + 1, values._passes  # PyTorch counts it when we have returned
                entry.level = self.level if tensor is self.target and values._covers(tensor) else max(entry.level, self.level)
        computed = list(values._tensors((self.computed,) if not isinstance(self.computed, (list, tuple)) else self.computed))
        for tensor, host in zip(outs, computed):
            if not tensor.is_cuda:
                if operation.name == "_to_copy" and self.on_device:
                    tensor.copy_(host)
                    if self.level != KNOWN:
                        self._note_copy(tensor)
            elif values._entry(tensor) is None and tensor.size() == host.size():
                values._follow(tensor, host, self.level)
        return out

    def finish_unknown(self, out):
        """The same where an input is not known, and nothing is written to."""
        values = self.values
        if isinstance(out, values._torch.Tensor) and values._is_float(out.dtype):
            return out  # by far the most
        return self.finish(out)

    def _copied_to_host(self, targets):
        """copy_ to a CPU tensor: its content is what is known."""
        if self.operation.name != "copy_" or not self.on_device:
            return
        source, target = self.args[1], self.args[0]
        if self.level is not None:
            target.copy_(self.host_of(source))
        else:
            self._put_assumed(target)
        if self.level != KNOWN:
            self._note_copy(source)

    def _put_assumed(self, tensor):
        """What a program reads of what is not known: as item() does, so that it divides by nothing that is zero."""
        values = self.values
        if tensor.numel() > values._most(tensor.dtype):
            return
        if tensor.dtype == values._torch.bool:
            tensor.copy_(values.tensor(values._assume.mask(tensor.numel()), tensor.dtype).reshape(tensor.size()))
        else:
            tensor.fill_(1)

    def _note_copy(self, tensor):
        most = self.values._most(tensor.dtype)
        if tensor.numel() > most:
            return
        is_float = self.values._is_float(tensor.dtype)
        self.values.read("float" if is_float else "copy", "to the host", self.level, "%d elements" % tensor.numel(), None, None)

    def _not_known(self, out, outs, targets):
        values = self.values
        self.level = None
        for tensor in targets:
            values._forget(tensor)
        if self.operation.name == "_to_copy" and self.on_device:
            for tensor in outs:
                if not tensor.is_cuda:
                    self._put_assumed(tensor)
                    self._note_copy(tensor)
        if not self.operation.is_view and self.operation.name not in _NOBODY_ASKS:
            self._assume(outs)
        return out

    def _assume(self, outs):
        """An unknown mask is so often true, and unknown indices are spread so, as --unknown-sizes says."""
        values, name = self.values, self.operation.name
        for position, tensor in enumerate(outs):
            if not tensor.is_cuda or values._is_float(tensor.dtype) or values._entry(tensor) is not None:
                continue
            if tensor.dtype == values._torch.bool:
                truth = self._constant(name)
                if truth is not None and values._key(tensor) is not None:
                    values.take_constant(tensor, truth)
            if values._elements(tensor) is None:
                continue
            host = self._assumed(name, position, len(outs), tensor)
            if host is not None:
                values._follow(tensor, host.reshape(tensor.size()), ASSUMED)

    def _assumed(self, name, position, count, tensor):
        """What is taken for the tensor's values; None if nothing is."""
        values, elements = self.values, tensor.numel()
        if tensor.dtype == values._torch.bool:
            assume, truth = values._assume, values.constant(tensor)
            if truth is not None:
                return values.tensor([truth], tensor.dtype).expand((elements,))
            if name in ("any", "all"):
                return values.tensor([assume.share > 0 if name == "any" else assume.share >= 1], tensor.dtype).expand((elements,))
            return values.chosen(("mask", elements), elements, tensor.dtype, lambda: assume.mask(elements))
        return self._indices(name, position, count, tensor, elements)

    def _constant(self, name):
        """True or False where all of the mask that it gives is so, as far as anybody can tell: nothing is infinite or no number."""
        values, args = self.values, self.args
        if name in _NEVER or name == "isfinite":
            return name == "isfinite"
        if name in ("eq", "ne") and len(args) > 1:  # what isinf() and isfinite() are made of
            if args[0] is args[1]:
                return name == "eq"
            if isinstance(args[1], float) and not math.isfinite(args[1]):
                return name == "ne"
        if name in _OF_CONSTANTS:
            given = []
            for one in args[:2] if name not in ("any", "all") else args[:1]:
                if not isinstance(one, values._torch.Tensor) or not one.is_cuda:
                    return None
                truth = values.constant(one)
                if truth is None:
                    return None
                given.append(truth)
            return _OF_CONSTANTS[name](given) if given else None
        return None

    def _argument(self, position, name, otherwise):
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, otherwise)

    def _indices(self, name, position, count, tensor, elements):
        """None if the operation gives no indices there."""
        values = self.values
        source = self.args[0] if self.args else None
        if not isinstance(source, values._torch.Tensor) or elements == 0:
            return None

        def spread(rows, columns, limit):
            return values.chosen(("indices", rows, columns, limit), elements, tensor.dtype,
                                 lambda: values._assume.indices(rows, columns, limit))
        if name == "multinomial":
            return spread(elements // tensor.size(-1), tensor.size(-1), source.size(-1))
        if name in ("bucketize", "searchsorted"):
            boundaries = self.args[1] if name == "bucketize" else source
            return spread(elements, 1, boundaries.numel() + 1)
        is_arg = name.startswith("arg")
        if (name not in _BY_DIM and name not in _BY_SORTING) or (not is_arg and position == 0) or (is_arg and count != 1):
            return None
        if name in _BY_SORTING:
            dim = next((value for value in self.args[1:] if isinstance(value, int) and not isinstance(value, bool)),
                       self.kwargs.get("dim", -1))
            size = source.size(dim) if source.dim() else 1
            host = values._torch.arange(size, device="cpu").reshape([size if i == dim % source.dim() else 1 for i in range(source.dim())])
            return host.expand(source.size())
        dim = self._argument(_BY_DIM[name], "dim", -1 if name in ("topk", "kthvalue", "median", "mode") else None)
        if dim is None or source.dim() == 0:
            return spread(elements, 1, source.numel())
        limit = source.size(dim)
        if name != "topk":
            return spread(elements, 1, limit)
        columns = tensor.size(dim)
        made = spread(elements // max(columns, 1), columns, limit)
        if dim % tensor.dim() == tensor.dim() - 1:
            return made
        sizes = [tensor.size(i) for i in range(tensor.dim()) if i != dim % tensor.dim()] + [columns]
        return made.reshape(sizes).movedim(-1, dim)  # rows lie along another dimension
