"""Only some ranks of a program of PyTorch run, under `emmctl run --device sim --ranks '0,7 of 64'`. The stand-in for NCCL answers
for the others in what is on the device. Here is what they would have done on the host: come to the store, make unique ids of
communicators, meet at barriers, and bring objects to groups of the host."""
import atexit
import collections
import ctypes
import functools
import hashlib
import importlib
import inspect
import os
import pickle
import time

COUNTED = 4  # communicators of a group: it has one, and another after an error
DEVICES = ("cuda", "cpu")  # under one of them a group's backend has its keys, by PyTorch's version
ASK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int))


class Named:
    """The ranks that run, of "0,7/64"."""

    def __init__(self, words):
        ranks, _, count = words.partition("/")
        self.run = sorted(int(rank) for rank in ranks.split(","))
        self.count = int(count)

    def is_absent(self, rank):
        return rank not in self.run


class Groups:
    """The groups of this process: who is in them, and where their backends leave the unique ids of communicators. Any thread may
    call members_of()."""

    def __init__(self, named, own, prefix_store):
        self._named, self._own, self._prefix_store = named, own, prefix_store
        self._all = []  # (members, places)

    def add(self, members, name, store):
        """Leaves the ids that absent ranks would have made: the first rank of a group makes it, and the lower one of two that send to
        one another. Each that runs leaves the same."""
        own = members.index(self._own)
        group_store = self._prefix_store(name + "/", store)
        places = [self._prefix_store(device + "/", group_store) for device in DEVICES]
        keys = [str(count) for count in range(COUNTED)] if self._named.is_absent(members[0]) else []
        keys += ["%d:%d" % (lower, own) for lower in range(own) if self._named.is_absent(members[lower])]
        for key in keys:
            words = "%s/%s/%s" % (name, key, ",".join(map(str, members)))
            made = hashlib.shake_256(words.encode()).digest(128)
            for place in places:
                place.set(key, made)
        self._all.append((members, places))

    def members_of(self, made, size, rank):
        """The ranks of the communicator with that unique id, in which this process is `rank`; None where no group's store has it."""
        for members, places in reversed(self._all):
            for key, ranks in self._communicators(members, size, rank):
                if any(place.check([key]) and bytes(place.get(key)) == made for place in places):
                    return ranks
        return None

    def _communicators(self, members, size, rank):
        """(key of its id, its ranks) of each that a group may have."""
        own = members.index(self._own)
        if len(members) == size and own == rank:
            for count in range(COUNTED):
                yield str(count), members
        if size == 2:
            for other in range(own) if rank == 1 else range(own + 1, len(members)):
                lower, higher = sorted((own, other))
                yield "%d:%d" % (lower, higher), [members[lower], members[higher]]


def without_gloo(backend):
    """Gloo's ranks connect to one another when a group is made. Its collectives are of the host, and take no memory of a device:
    PyTorch's own backend that does nothing goes in its place."""
    words = str(backend or "undefined").lower()
    if words == "undefined":
        return "cpu:fake,cuda:nccl"
    return words.replace("gloo", "fake")


def named_as(name, function):
    """The function, whose frames have the name of what it stands for."""
    new = {"co_name": name, "co_qualname": name} if hasattr(function.__code__, "co_qualname") else {"co_name": name}
    function.__code__ = function.__code__.replace(**new)
    return function


class Objects:
    """Calls of torch.distributed that pass objects. One that takes them from a rank that does not run is refused, with the line. Those of
    a group whose backend is of the host go through the store, among the ranks that run."""

    def __init__(self, named, own, distributed, c10d, refuse):
        self._named, self._own, self._distributed, self._c10d, self._refuse = named, own, distributed, c10d, refuse
        self._counts = collections.Counter()

    def _is_of_host(self, group):
        ask = getattr(self._c10d, "_get_object_coll_device", None)
        return ask is not None and ask(group) == "cpu"

    def _members(self, group):
        return list(self._distributed.get_process_group_ranks(group))

    def _next(self, group, kind):
        """A key's beginning that the group's ranks agree on. A rank that is no member has none."""
        members = self._members(group)
        name = "emmctl/%s/%s" % (kind, ",".join(map(str, members)))
        self._counts[name] += 1
        return "%s/%d/" % (name, self._counts[name]), members

    def _store(self):
        return self._c10d._get_default_store()

    def _give(self, key, value):
        self._store().set(key, pickle.dumps(value))

    def _take(self, key):
        return pickle.loads(bytes(self._store().get(key)))

    def _source(self, given, key, name):
        """The program's rank of what is given as `src`, or in the group as `group_src`."""
        source, in_group = given.get(key), given.get("group_" + key)
        if source is None and in_group is not None:
            source = self._members(given.get("group"))[in_group]
        source = 0 if source is None and name != "recv_object_list" else source
        if source is None or (key == "src" and self._named.is_absent(source)):
            self._refuse(name, "takes objects from %s" % ("any rank" if source is None else "rank %d, which does not run" % source))
        return source

    def broadcast_object_list(self, original, given):
        source = self._source(given, "src", "broadcast_object_list")
        if not self._is_of_host(given.get("group")):
            return original()
        key, _ = self._next(given.get("group"), "broadcast")
        if source == self._own:
            return self._give(key, list(given["object_list"]))
        given["object_list"][:] = self._take(key)

    def scatter_object_list(self, original, given):
        source = self._source(given, "src", "scatter_object_list")
        if not self._is_of_host(given.get("group")):
            return original()
        key, members = self._next(given.get("group"), "scatter")
        if source == self._own:
            for member, value in zip(members, given["scatter_object_input_list"]):
                self._give(key + str(member), value)
        given["scatter_object_output_list"][0] = self._take(key + str(self._own))

    def _gathered(self, key, members, own):
        """What each has given; an absent one gives what `own` is."""
        return [pickle.loads(pickle.dumps(own)) if self._named.is_absent(member) else self._take(key + str(member)) for member in members]

    def all_gather_object(self, original, given):
        if not self._is_of_host(given.get("group")):
            return original()
        key, members = self._next(given.get("group"), "all_gather")
        self._give(key + str(self._own), given["obj"])
        given["object_list"][:] = self._gathered(key, members, given["obj"])

    def gather_object(self, original, given):
        if not self._is_of_host(given.get("group")):
            return original()
        key, members = self._next(given.get("group"), "gather")
        self._give(key + str(self._own), given["obj"])
        if self._source(given, "dst", "gather_object") == self._own:
            given["object_gather_list"][:] = self._gathered(key, members, given["obj"])

    def _pair(self, group, lower, higher):
        return self._next(group, "from %d to %d" % (lower, higher))[0]

    def send_object_list(self, original, given):
        target = self._source(given, "dst", "send_object_list")
        if not self._is_of_host(given.get("group")):
            return original()
        self._give(self._pair(given.get("group"), self._own, target), list(given["object_list"]))

    def recv_object_list(self, original, given):
        source = self._source(given, "src", "recv_object_list")
        if not self._is_of_host(given.get("group")):
            return original()
        given["object_list"][:] = self._take(self._pair(given.get("group"), source, self._own))
        return source

    def followed(self, name, original):
        signature, answer = inspect.signature(original), getattr(self, name)

        @functools.wraps(original)
        def call(*args, **kwargs):
            if self._c10d._rank_not_in_group(signature.bind(*args, **kwargs).arguments.get("group")):
                return original(*args, **kwargs)
            return answer(lambda: original(*args, **kwargs), signature.bind(*args, **kwargs).arguments)
        return named_as(name, call)


OF_OBJECTS = ("broadcast_object_list", "scatter_object_list", "all_gather_object", "gather_object", "send_object_list", "recv_object_list")


def store_of_those_that_run(kind, named, own):
    """PyTorch's store, whose server waits for all ranks to come, as rank 0 serves it. Here nobody waits, and the first that runs serves it
    in place of rank 0."""
    class TCPStore(kind):
        def __init__(self, host_name, port, world_size=None, is_master=False, *more, **options):
            more = list(more)
            if len(more) > 1:
                more[1] = False
            else:
                options["wait_for_workers"] = False
            serves = bool(is_master) or (named.is_absent(0) and own == named.run[0])
            super().__init__("127.0.0.1", port, None, serves, *more, **options)
    return TCPStore


def others_run():
    """Does another rank still run? emmctl starts them all."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % name) as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
            if int(name) == os.getpid() or int(parent) != os.getppid() or state in "ZX":
                continue
            with open("/proc/%s/environ" % name, "rb") as file:
                if b"\0EMM_STANDIN_RANKS=" in b"\0" + file.read():
                    return True
        except OSError:
            pass  # it ended, or is somebody else's
    return False


def serve_to_the_end(named, own):
    """The store ends with the rank that serves it. On a card no rank ends so long before the others: those between do not let it."""
    process = os.getpid()

    def stay():
        while os.getpid() == process and others_run():
            time.sleep(0.05)
    if own == named.run[0]:
        atexit.register(stay)


def show_waits(distributed):
    """Gives a program's own waits for the store a line of Python's, by which they are named where they do not end."""
    def shown(original, name):
        @functools.wraps(original)
        def call(*args, **kwargs):
            return original(*args, **kwargs)
        return named_as(name, call)
    for kind in ("Store", "PrefixStore", "TCPStore", "FileStore", "HashStore"):
        for name in ("get", "wait", "multi_get"):
            holder = getattr(distributed, kind, None)
            if isinstance(holder, type) and name in vars(holder):
                setattr(holder, name, shown(vars(holder)[name], kind + "." + name))


def split_by_new_groups(distributed, c10d, own):
    """split_group(), which on a card splits a communicator, of which absent ranks' colours are not known."""
    def split_group(parent_pg=None, split_ranks=None, timeout=None, pg_options=None, group_desc=None, **_):
        members = list(distributed.get_process_group_ranks(parent_pg or c10d._get_default_group()))
        made = None
        for ranks in split_ranks or ():
            ranks = [members[rank] for rank in ranks]
            group = distributed.new_group(ranks, timeout=timeout, pg_options=pg_options, group_desc=group_desc)
            made = group if own in ranks else made
        return made
    return split_group


def install(named, own, distributed, c10d, rendezvous, tell_who_asks, refuse):
    """Puts the answers into torch.distributed and its modules distributed_c10d and rendezvous. `tell_who_asks` gets what the stand-in
    calls for the members of a communicator; `refuse(call, why)` ends a call that cannot be answered."""
    groups = Groups(named, own, distributed.PrefixStore)
    make = c10d._new_process_group_helper
    signature = inspect.signature(make)
    show_waits(distributed)
    store = store_of_those_that_run(distributed.TCPStore, named, own)
    for module in (distributed, c10d, rendezvous):
        if hasattr(module, "TCPStore"):
            module.TCPStore = store

    def create_store(hostname, port, rank, world_size, timeout, *_, **__):
        """That of the ranks that run, which all run here: the first of them serves it, and waits for nobody."""
        return store("127.0.0.1", port, None, rank == named.run[0], timeout=timeout, multi_tenant=True)

    def make_group(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        given = bound.arguments
        if "device_id" in signature.parameters:
            given["device_id"] = None  # else groups are made by splits, of which absent ranks' colours are not known
        given["backend"] = c10d.Backend(without_gloo(given["backend"]))
        members = list(given["global_ranks_in_group"]) or list(range(given["group_size"]))
        if own in members:
            groups.add(members, given["group_name"], given["store"])
        return make(*bound.args, **bound.kwargs)

    def meet(*_, **__):
        """Ranks that do not run do not come to a barrier of the store or of the host, and nobody's memory waits for it."""

    def as_it_is(wrapped_pg, *_, **__):
        """TORCH_DISTRIBUTED_DEBUG=DETAIL compares each call with those of the others, over Gloo."""
        return wrapped_pg

    def ask(made, length, size, rank, into):
        try:
            members = groups.members_of(ctypes.string_at(made, length), size, rank)
        except Exception:  # the communicator is refused, with words
            members = None
        for index, member in enumerate(members or ()):
            into[index] = member
        return members is not None

    def put(name, function):
        """PyTorch's other modules have it from either."""
        for module in (distributed, c10d):
            if hasattr(module, name):
                setattr(module, name, function)

    rendezvous._create_c10d_store = create_store
    c10d._new_process_group_helper = make_group
    put("_store_based_barrier", meet)
    put("monitored_barrier", meet)
    put("_create_process_group_wrapper", as_it_is)
    if hasattr(c10d, "split_group"):
        put("split_group", split_by_new_groups(distributed, c10d, own))
    objects = Objects(named, own, distributed, c10d, refuse)
    for name in OF_OBJECTS:
        if hasattr(c10d, name):
            put(name, objects.followed(name, getattr(c10d, name)))
    function = ASK(ask)
    install.kept = function  # the stand-in calls it as long as the process lives
    tell_who_asks(function)


def modules_of_ranks():
    """torch.distributed, and its modules distributed_c10d and rendezvous. What the package calls rendezvous is a function of that one."""
    return [importlib.import_module("torch.distributed" + name) for name in ("", ".distributed_c10d", ".rendezvous")]


def torch_imported(place_of_caller):
    """This process runs under --ranks, and has imported PyTorch. `place_of_caller()` is the program's line."""
    import torch.distributed
    if not torch.distributed.is_available():
        return
    distributed, c10d, rendezvous = modules_of_ranks()
    try:
        import torch.testing._internal.distributed.fake_pg  # noqa: F401
    except ImportError:
        pass  # Gloo's groups then say that there is no such backend
    answers = ctypes.CDLL(os.path.join(os.path.dirname(os.environ["EMM_STANDIN_DRIVER"]), "libemm-answers.so"))
    answers.emm_standin_ask_members.argtypes, answers.emm_standin_ask_members.restype = [ASK], None
    answers.emm_standin_tell_unanswered.argtypes, answers.emm_standin_tell_unanswered.restype = [ctypes.c_char_p], None

    def refuse(call, why):
        words = "--ranks: %s at %s %s, and cannot be answered for: --ranks must name it, too" % (call, place_of_caller(), why)
        answers.emm_standin_tell_unanswered(words.encode("utf-8", "replace"))
        raise RuntimeError("emmctl: " + words)

    named, own = Named(os.environ["EMM_STANDIN_RANKS"]), int(os.environ["RANK"])
    serve_to_the_end(named, own)
    install(named, own, distributed, c10d, rendezvous, answers.emm_standin_ask_members, refuse)
