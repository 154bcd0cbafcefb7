import ctypes
import os

import torch
from torch.distributed._store import PrefixStore
from torch.distributed.rendezvous import rendezvous

Backend = str
_default = None
_nccl = None
INT32, SUM = 2, 0


class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


def nccl(function, *arguments):
    global _nccl
    if _nccl is None:
        _nccl = ctypes.CDLL(os.environ["NCCL"])
    code = getattr(_nccl, function)(*arguments)
    if code:
        _nccl.ncclGetLastError.restype = ctypes.c_char_p
        raise RuntimeError("%s: %d, %s" % (function, code, _nccl.ncclGetLastError(None).decode()))


class Group:
    """Its communicators are made when they are used first: one of all, and one for each two that send to one another."""

    def __init__(self, members, rank, store):
        self.members, self.rank, self.store, self.made = members, rank, store, {}

    def communicator(self, peer=None):
        low, high = (0, 0) if peer is None else sorted((self.rank, peer))
        key = "0" if peer is None else "%d:%d" % (low, high)
        if key not in self.made:
            torch.cuda.synchronize()
            one, place = Id(), ctypes.c_void_p()
            if self.rank == low:
                nccl("ncclGetUniqueId", ctypes.byref(one))
                self.store.set(key, bytes(one))
            else:
                one = Id.from_buffer_copy(self.store.get(key))
            size, rank = (len(self.members), self.rank) if peer is None else (2, int(self.rank == high))
            nccl("ncclCommInitRank", ctypes.byref(place), size, one, rank)
            self.made[key] = place
        return self.made[key]


def _new_process_group_helper(group_size, group_rank, global_ranks_in_group, backend, store, group_name, backend_options=None, timeout=None,
                              pg_tag=None, device_id=None, group_desc=None):
    members = list(global_ranks_in_group) or list(range(group_size))
    if global_ranks_in_group and get_rank() not in members:
        return None, None
    return Group(members, group_rank, PrefixStore("cuda/", PrefixStore(group_name + "/", store))), store


def _store_based_barrier(rank, store, group_name, world_size, timeout):
    for other in range(world_size):
        store.get("barrier/%s/%d" % (group_name, other))


def init_process_group(backend, device_id=None):
    global _default
    store, rank, size = next(rendezvous("env://"))
    store = PrefixStore("default_pg", store)
    _default, _ = _new_process_group_helper(size, rank, [], backend, store, "0", device_id=device_id)
    _default.whole_store = store


def new_group(ranks, timeout=None, pg_options=None, group_desc=None):
    made, _ = _new_process_group_helper(len(ranks), ranks.index(get_rank()) if get_rank() in ranks else None, ranks, "nccl", _default.whole_store,
                                        "of " + "-".join(map(str, ranks)))
    return made


def _get_default_group():
    return _default


def _get_default_store():
    return _default.whole_store


def _rank_not_in_group(group):
    return group is not None and get_rank() not in group.members


def get_process_group_ranks(group):
    return (group or _default).members


def get_rank():
    return _default.rank


def get_world_size(group=None):
    return len((group or _default).members)


def all_gather(tensor, group=None):
    made = torch.Tensor(count=tensor.count * get_world_size(group))
    nccl("ncclAllGather", tensor.at, made.at, ctypes.c_size_t(tensor.count), INT32, (group or _default).communicator(), None)
    return made


def all_reduce(tensor, group=None):
    nccl("ncclAllReduce", tensor.at, tensor.at, ctypes.c_size_t(tensor.count), INT32, SUM, (group or _default).communicator(), None)


def broadcast(tensor, src, group=None):
    nccl("ncclBroadcast", tensor.at, tensor.at, ctypes.c_size_t(tensor.count), INT32, src, (group or _default).communicator(), None)


def send(tensor, dst):
    nccl("ncclSend", tensor.at, ctypes.c_size_t(tensor.count), INT32, int(get_rank() < dst), _default.communicator(dst), None)


def recv(tensor, src):
    nccl("ncclRecv", tensor.at, ctypes.c_size_t(tensor.count), INT32, int(get_rank() < src), _default.communicator(src), None)


def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None):
    raise AssertionError("not reached here")


def destroy_process_group():
    for one in _default.made.values():
        nccl("ncclCommDestroy", one)
