"""Only some ranks of a program of PyTorch's run, under `emmctl run --device sim --ranks '0,7 of 64'`. The stand-in for NCCL answers
for the others in what is on the device. Here is what they would have done on the host before: come to the store, make unique ids of
communicators, and meet at barriers."""
import ctypes
import hashlib
import inspect
import os

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


def install(named, own, distributed, c10d, rendezvous, tell_who_asks):
    """Puts the answers into torch.distributed and its modules distributed_c10d and rendezvous. `tell_who_asks` gets what the stand-in
    calls for the members of a communicator."""
    groups = Groups(named, own, distributed.PrefixStore)
    make = c10d._new_process_group_helper
    signature = inspect.signature(make)

    def create_store(hostname, port, rank, world_size, timeout, *_, **__):
        """That of the ranks that run, which all run here: the first of them serves it, and waits for nobody."""
        return distributed.TCPStore("127.0.0.1", port, None, rank == named.run[0], timeout=timeout, wait_for_workers=False, multi_tenant=True)

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
        """Ranks that do not run do not come to a barrier of the store, and nobody's memory waits for it."""

    def ask(made, length, size, rank, into):
        try:
            members = groups.members_of(ctypes.string_at(made, length), size, rank)
        except Exception:  # the communicator is refused, with words
            members = None
        for index, member in enumerate(members or ()):
            into[index] = member
        return members is not None

    rendezvous._create_c10d_store = create_store
    c10d._new_process_group_helper = make_group
    c10d._store_based_barrier = meet
    function = ASK(ask)
    install.kept = function  # the stand-in calls it as long as the process lives
    tell_who_asks(function)


def torch_imported(torch):
    """This process runs under --ranks, and has imported PyTorch."""
    import torch.distributed
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d, rendezvous
    try:
        import torch.testing._internal.distributed.fake_pg  # noqa: F401
    except ImportError:
        pass  # Gloo's groups then say that there is no such backend
    answers = ctypes.CDLL(os.path.join(os.path.dirname(os.environ["EMM_STANDIN_DRIVER"]), "libemm-answers.so"))
    answers.emm_standin_ask_members.argtypes, answers.emm_standin_ask_members.restype = [ASK], None
    install(Named(os.environ["EMM_STANDIN_RANKS"]), int(os.environ["RANK"]), torch.distributed, distributed_c10d, rendezvous,
            answers.emm_standin_ask_members)
