"""A PyTorch of a few dozen lines for values_test: tensors over NumPy, a device that computes nothing, and functions that say by a
schema what they write. What a function would have computed on the device is zero, and a size that it reads from the device is what
emmctl told the device to answer."""
import contextlib
import types

import numpy

backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(benchmark=False))
answers = []  # what the device's next reads hold


def answer_reads(numbers):
    answers[:] = list(numbers)


class dtype:
    def __init__(self, name, is_float=False):
        self.name, self.numpy = name, numpy.dtype(name)
        self.is_floating_point, self.is_complex = is_float, False

    def __repr__(self):
        return "torch." + self.name


bool = dtype("bool")  # noqa: A001
uint8, int64, float32 = dtype("uint8"), dtype("int64"), dtype("float32", True)
_BY_NUMPY = {one.numpy: one for one in (bool, uint8, int64, float32)}


class Storage:
    count = 0
    alive = {}

    def __init__(self, size):
        Storage.count += 1
        self._cdata, self.size, self.version = Storage.count, size, 0

    def nbytes(self):
        return self.size


class StorageWeakRef:
    def __init__(self, storage):
        import weakref
        self._of = weakref.ref(storage)

    def expired(self):
        return self._of() is None


class Size(tuple):
    pass


class Tensor:
    def __init__(self, array, is_cuda=False, storage=None):
        self.array, self.is_cuda = array, is_cuda
        self.storage = storage or Storage(array.nbytes)
        self.base = array if array.base is None else None

    _version = property(lambda self: self.storage.version)
    dtype = property(lambda self: _BY_NUMPY[self.array.dtype])

    def numel(self):
        return self.array.size

    def dim(self):
        return self.array.ndim

    def size(self, dim=None):
        return Size(self.array.shape) if dim is None else self.array.shape[dim]

    def stride(self):
        return tuple(step // self.array.itemsize for step in self.array.strides)

    def storage_offset(self):
        root = self.array
        while root.base is not None and isinstance(root.base, numpy.ndarray):
            root = root.base
        return (self.array.__array_interface__["data"][0] - root.__array_interface__["data"][0]) // self.array.itemsize

    def element_size(self):
        return self.array.itemsize

    def untyped_storage(self):
        return self.storage

    def is_contiguous(self):
        return self.array.flags["C_CONTIGUOUS"]

    def data_ptr(self):
        return self.array.__array_interface__["data"][0]

    # What the module under test does with tensors of the host

    def __getitem__(self, key):
        return Tensor(self.array[key], storage=self.storage)

    def as_strided(self, size, stride, offset):
        flat = self.array.reshape(-1)
        made = numpy.lib.stride_tricks.as_strided(flat[offset:], tuple(size), [step * flat.itemsize for step in stride])
        return Tensor(made, storage=self.storage)

    def view(self, kind):
        return Tensor(self.array.view(kind.numpy), storage=self.storage)

    def copy_(self, other):
        self.array[...] = other.array
        return self

    def fill_(self, value):
        self.array[...] = value
        return self

    def reshape(self, shape):
        return Tensor(self.array.reshape(tuple(shape)))

    def expand(self, shape):
        return Tensor(numpy.broadcast_to(self.array, tuple(shape)))

    def movedim(self, source, target):
        return Tensor(numpy.moveaxis(self.array, source, target))

    def tolist(self):
        return self.array.tolist()

    def item(self):
        return self.array.item()

    def sum(self):
        return Tensor(numpy.asarray(self.array.sum()))

    def min(self):
        return Tensor(numpy.asarray(self.array.min()))

    def max(self):
        return Tensor(numpy.asarray(self.array.max()))

    def __ne__(self, other):
        return Tensor(self.array != other)

    __hash__ = object.__hash__

    def detach(self):
        return Tensor(self.array, self.is_cuda, self.storage)

    def cpu(self):
        return Tensor(self.array.copy())


@contextlib.contextmanager
def no_grad():
    yield


@contextlib.contextmanager
def inference_mode(_):
    yield


def zeros(size, dtype, device):  # noqa: A002
    assert device == "cpu"  # a program may have set another default
    return Tensor(numpy.zeros(size, dtype.numpy))


def tensor(values, dtype, device):  # noqa: A002
    assert device == "cpu"
    return Tensor(numpy.array(values, dtype.numpy))


def frombuffer(data, dtype):  # noqa: A002
    return Tensor(numpy.frombuffer(data, dtype.numpy))


def arange(size, device):
    assert device == "cpu"
    return Tensor(numpy.arange(size))


def device(name):
    return name


class Function:
    """aten::NAME. `writes`: positions of arguments that it writes; `is_view`: what it gives lies in its first argument."""

    def __init__(self, name, compute, writes=(), is_view=False, is_random=False, sized=None):
        def argument(position):
            alias = types.SimpleNamespace(is_write=position in writes) if position in writes or (is_view and position == 0) else None
            return types.SimpleNamespace(name="self" if position == 0 else "a%d" % position, alias_info=alias)
        returned = types.SimpleNamespace(alias_info=object() if writes or is_view else None)
        self._schema = types.SimpleNamespace(name="aten::" + name, arguments=[argument(i) for i in range(4)], returns=[returned])
        self.tags = ["Tag.nondeterministic_seeded"] if is_random else []
        self.name, self._compute, self._writes, self._is_view, self._sized = name, compute, writes, is_view, sized
        self.on_device = 0

    def __call__(self, *args, **kwargs):
        where = kwargs.pop("device", None)
        given = [one for value in args for one in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(one, Tensor)]
        is_cuda = where == "cuda" or any(one.is_cuda for one in given)
        plain = [[one.array if isinstance(one, Tensor) else one for one in value] if isinstance(value, (list, tuple)) else
                 value.array if isinstance(value, Tensor) else value for value in args]
        if not is_cuda:
            return self._wrapped(self._compute(*plain, **kwargs), args)
        self.on_device += 1
        if self._sized is not None:
            return self._wrapped(self._sized(answers.pop(0) if answers else 0, *plain), args, True, where)
        if self._writes:
            return args[0]  # nothing is computed
        found = self._compute(*plain, **kwargs)
        if self._is_view:
            return Tensor(found, True, args[0].storage)
        if not isinstance(found, (tuple, numpy.ndarray, numpy.generic)):
            return found
        return self._wrapped(tuple(numpy.zeros_like(one) for one in found) if isinstance(found, tuple) else numpy.zeros_like(found),
                             args, True, where)

    def _wrapped(self, found, args, is_cuda=False, where=None):
        is_cuda = is_cuda and where != "cpu"
        if self._writes:
            return args[0]
        if isinstance(found, tuple):
            return tuple(Tensor(numpy.asarray(one), is_cuda) for one in found)
        if not isinstance(found, (numpy.ndarray, numpy.generic)):
            return found
        return Tensor(numpy.asarray(found), is_cuda, args[0].storage if self._is_view else None)


def unique(host, dim):
    return Tensor(numpy.unique(host.array, axis=dim))


def _write(to, value):
    to[...] = value


def _index(array, indices):
    return array[tuple(numpy.asarray(i) if i is not None else slice(None) for i in indices)]


def _put_mask(array, indices, values):
    array[tuple(indices)] = values


def _topk(array, k, dim=-1):
    order = numpy.argsort(-array, axis=dim, kind="stable")
    chosen = numpy.take(order, range(k), axis=dim)
    return numpy.take_along_axis(array, chosen, dim), chosen


ops = types.SimpleNamespace(
    empty=Function("empty", lambda n: numpy.zeros(n, "int64")),
    arange=Function("arange", lambda n: numpy.arange(n)),
    full=Function("full", lambda size, value: numpy.full(size, value)),
    randint=Function("randint", lambda limit, n: numpy.random.randint(0, limit, n), is_random=True),
    add=Function("add", lambda a, b: a + b),
    mm=Function("mm", lambda a, b: a @ b),
    add_=Function("add_", lambda a, b: a.__iadd__(b), writes=(0,)),
    zero_=Function("zero_", lambda a: _write(a, 0), writes=(0,)),
    copy_=Function("copy_", lambda a, b: _write(a, b), writes=(0,)),
    to=Function("_to_copy", lambda a: a.copy()),
    to_cpu=Function("_to_copy", lambda a: a.copy()),
    slice=Function("slice", lambda a, begin, end: a[begin:end], is_view=True),
    gt=Function("gt", lambda a, b: a > b),
    eq=Function("eq", lambda a, b: a == b),
    ne=Function("ne", lambda a, b: a != b),
    abs=Function("abs", numpy.abs),
    mul=Function("mul", lambda a, b: a * b),
    logical_or=Function("logical_or", lambda a, b: a | b),
    isnan=Function("isnan", numpy.isnan),
    any=Function("any", numpy.any),
    all=Function("all", numpy.all),
    # Another number than 0 that it reads of the device is an error there.
    cholesky_ex=Function("linalg_cholesky_ex", lambda a: (a, numpy.zeros(a.shape[0], "int64")),
                         sized=lambda n, a: (a, numpy.full(a.shape[0], n, "int64"))),
    is_all_true=Function("_is_all_true", numpy.all),
    cat=Function("cat", lambda parts: numpy.concatenate(parts)),
    cumsum=Function("cumsum", lambda a, dim: numpy.cumsum(a, dim)),
    argmax=Function("argmax", lambda a, dim=None: numpy.argmax(a, dim)),
    topk=Function("topk", _topk),
    item=Function("_local_scalar_dense", lambda a: a.item()),
    nonzero=Function("nonzero", lambda a: numpy.argwhere(a), sized=lambda n, a: numpy.zeros((n, a.ndim), "int64")),
    unique2=Function("_unique2", lambda a: (numpy.unique(a), a, a),
                     sized=lambda n, a: (numpy.zeros(n, a.dtype), numpy.zeros(0, "int64"), numpy.zeros(0, "int64"))),
    index=Function("index", _index, sized=lambda n, a, i: numpy.zeros((n,) + a.shape[1:], a.dtype)),
    masked_select=Function("masked_select", lambda a, m: a[m], sized=lambda n, a, m: numpy.zeros(n, a.dtype)),
    index_put_=Function("index_put_", _put_mask, writes=(0,)),
    convolution=Function("convolution", lambda a: a * 2),
    lift_fresh=Function("lift_fresh", lambda a: a, is_view=True),
    fails_on_host=Function("fails_on_host", lambda a: 1 / 0 if a.any() else numpy.zeros(2, "int64")),
)
ops.aten = types.SimpleNamespace(add_=types.SimpleNamespace(Tensor=ops.add_))
