"""Ranks of PyTorch's that do not run: what they would have left in the store, on a torch.distributed that is made up for it. Its group
helper and store have the signatures and keys of PyTorch 2.11's."""
import collections
import ctypes
import os
import subprocess
import sys
import types
import unittest

from emmctl import _absent_ranks


class Store:
    """One that all ranks share."""

    def __init__(self, values):
        self.values = values

    def set(self, key, value):
        self.values[key] = value

    def get(self, key):
        return self.values[key]  # PyTorch's waits, for ever if nobody sets it

    def check(self, keys):
        return all(key in self.values for key in keys)


class PrefixStore(Store):
    def __init__(self, prefix, store):
        self.prefix, self.store = prefix, store

    def set(self, key, value):
        self.store.set(self.prefix + "/" + key, value)

    def get(self, key):
        return self.store.get(self.prefix + "/" + key)

    def check(self, keys):
        return self.store.check([self.prefix + "/" + key for key in keys])


class Refused(Exception):
    pass


class Rank:
    """A process, whose torch.distributed is answered for."""

    def __init__(self, words, own, shared, device="cpu"):
        self.own, self.made, self.barriers, self.on_device = own, [], 0, []
        self.store = Store(shared)

        class TcpStore(Store):
            arguments = collections.deque(maxlen=1)

            def __init__(self, *args, **kwargs):
                super().__init__(shared)
                self.arguments.append((args, kwargs))

        def helper(group_size, group_rank, global_ranks_in_group, backend, store, group_name, backend_options=None, timeout=None, pg_tag=None,
                   device_id=None, group_desc=None):
            self.made.append((group_size, group_rank, backend, device_id))
            return PrefixStore("cuda/", PrefixStore(group_name + "/", store))  # where ProcessGroupNCCL has its keys

        def barrier(*_):
            self.barriers += 1

        def new_group(ranks, timeout=None, pg_options=None, group_desc=None):
            return tuple(ranks)

        def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None):
            self.on_device.append("broadcast")

        def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None):
            self.on_device.append("scatter")

        def all_gather_object(object_list, obj, group=None):
            self.on_device.append("all_gather")

        def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
            self.on_device.append("gather")

        def send_object_list(object_list, dst=None, group=None, device=None, group_dst=None, use_batch=False):
            self.on_device.append("send")

        def recv_object_list(object_list, src=None, group=None, device=None, group_src=None, use_batch=False):
            self.on_device.append("recv")
        of_objects = {one.__name__: one for one in (broadcast_object_list, scatter_object_list, all_gather_object, gather_object,
                                                    send_object_list, recv_object_list)}
        everybody = tuple(range(_absent_ranks.Named(words).count))
        self.c10d = types.SimpleNamespace(
            _new_process_group_helper=helper, _store_based_barrier=barrier, monitored_barrier=barrier, Backend=str, split_group=None,
            _create_process_group_wrapper=None, _get_object_coll_device=lambda group: device, _get_default_store=lambda: self.store,
            _get_default_group=lambda: everybody, _rank_not_in_group=lambda group: group is not None and own not in group, **of_objects)
        self.rendezvous = types.SimpleNamespace(_create_c10d_store=None, TCPStore=TcpStore)
        self.distributed = types.SimpleNamespace(TCPStore=TcpStore, PrefixStore=PrefixStore, monitored_barrier=barrier, new_group=new_group,
                                                 get_process_group_ranks=lambda group: list(group or everybody), **of_objects)

        def refuse(call, why):
            raise Refused("%s %s" % (call, why))
        _absent_ranks.install(_absent_ranks.Named(words), own, self.distributed, self.c10d, self.rendezvous, self.take, refuse)

    @property
    def store_arguments(self):
        return self.distributed.TCPStore.arguments[-1]

    def take(self, ask):
        self.ask = ask

    def group(self, ranks, name="0", backend="nccl", size=None, **more):
        members = ranks or list(range(size))
        return self.c10d._new_process_group_helper(len(members), members.index(self.own), ranks, backend, self.store, name, **more)

    def members(self, made, size, rank):
        into = (ctypes.c_int * size)()
        buffer = ctypes.create_string_buffer(made, len(made))
        known = self.ask(ctypes.addressof(buffer), len(made), size, rank, into)
        return list(into) if known == 1 else None


class AbsentRanks(unittest.TestCase):
    def setUp(self):
        self.shared = {}

    def rank(self, own, words="0,7/64"):
        return Rank(words, own, self.shared)

    def test_the_first_that_runs_serves_the_store_and_nobody_waits_for_the_others(self):
        for own, is_master in ((5, True), (9, False)):
            rank = self.rank(own, "5,9/64")
            made = rank.rendezvous._create_c10d_store("node17", 29500, own, 64, "a while", use_libuv=True)
            self.assertIsInstance(made, rank.distributed.TCPStore)
            args, kwargs = rank.store_arguments
            self.assertEqual(args, ("127.0.0.1", 29500, None, is_master))
            self.assertEqual(kwargs, {"timeout": "a while", "wait_for_workers": False, "multi_tenant": True})
            rank.c10d._store_based_barrier(own, rank.store, "0", 64, "a while")
            self.assertEqual(rank.barriers, 0)

    def test_a_store_of_the_programs_own_waits_for_nobody(self):
        for words, own, is_master, serves in (("0,7/64", 0, True, True), ("0,7/64", 7, False, False), ("5,9/64", 5, False, True),
                                              ("5,9/64", 9, False, False)):
            rank = self.rank(own, words)
            self.assertIs(rank.rendezvous.TCPStore, rank.distributed.TCPStore)
            rank.distributed.TCPStore("node17", 29501, 64, is_master, "a while", use_libuv=True)
            self.assertEqual(rank.store_arguments, (("127.0.0.1", 29501, None, serves, "a while"), {"use_libuv": True, "wait_for_workers": False}))
            rank.distributed.TCPStore(host_name="node17", port=29501, world_size=64, is_master=is_master)
            self.assertEqual(rank.store_arguments, (("127.0.0.1", 29501, None, serves), {"wait_for_workers": False}))
            rank.distributed.TCPStore("node17", 29501, 64, is_master, "a while", True)
            self.assertEqual(rank.store_arguments[0], ("127.0.0.1", 29501, None, serves, "a while", False))

    def test_the_module_and_not_the_function_of_its_name(self):
        """torch.distributed has `from .rendezvous import rendezvous`."""
        package, c10d, rendezvous = (types.ModuleType("torch.distributed" + name) for name in ("", ".distributed_c10d", ".rendezvous"))
        package.rendezvous = rendezvous.rendezvous = lambda url: None
        package.distributed_c10d = c10d
        modules = {one.__name__: one for one in (types.ModuleType("torch"), package, c10d, rendezvous)}
        before = {name: sys.modules.get(name) for name in modules}
        sys.modules.update(modules)
        try:
            self.assertEqual(_absent_ranks.modules_of_ranks(), [package, c10d, rendezvous])
        finally:
            for name, module in before.items():
                if module is None:
                    del sys.modules[name]
                else:
                    sys.modules[name] = module

    def test_nobody_waits_at_a_barrier_of_the_host(self):
        rank = self.rank(7)
        rank.distributed.monitored_barrier(None)
        rank.c10d.monitored_barrier(None)
        self.assertEqual(rank.barriers, 0)
        wrapped = object()  # TORCH_DISTRIBUTED_DEBUG=DETAIL
        self.assertIs(rank.c10d._create_process_group_wrapper(wrapped_pg=wrapped, store_prefix="0", rank=7), wrapped)

    def test_a_group_is_split_by_making_groups(self):
        rank = self.rank(7)
        self.assertEqual(rank.c10d.split_group(split_ranks=[[0, 1, 2, 3], [4, 5, 6, 7]]), (4, 5, 6, 7))
        self.assertEqual(rank.c10d.split_group((1, 3, 5, 7), [[0, 1], [2, 3]]), (5, 7))
        self.assertIsNone(rank.c10d.split_group((1, 3, 5, 7), [[0, 1]]))

    def test_objects_of_absent_ranks_are_refused(self):
        for device in ("cpu", "cuda"):
            rank = Rank("0,7/64", 7, self.shared, device)
            with self.assertRaisesRegex(Refused, "broadcast_object_list takes objects from rank 3, which does not run"):
                rank.distributed.broadcast_object_list([None], 3)
            with self.assertRaisesRegex(Refused, "broadcast_object_list takes objects from rank 6"):
                rank.distributed.broadcast_object_list([None], group=(4, 6, 7), group_src=1)
            with self.assertRaisesRegex(Refused, "recv_object_list takes objects from rank 6"):
                rank.c10d.recv_object_list([None], src=6)
            with self.assertRaisesRegex(Refused, "recv_object_list takes objects from any rank"):
                rank.c10d.recv_object_list([None])
            with self.assertRaisesRegex(Refused, "scatter_object_list takes objects from rank 1"):
                rank.c10d.scatter_object_list([None], None, 1)
        without = self.rank(7, "5,7/64")
        with self.assertRaisesRegex(Refused, "takes objects from rank 0"):
            without.distributed.broadcast_object_list([None])

    def test_objects_of_those_that_run_go_through_the_store(self):
        """Where the group's backend is of the host; NCCL's go through the device."""
        one, other = self.rank(0), self.rank(7)
        settings, given = [{"width": 5}, "b"], [None, None]
        one.distributed.broadcast_object_list(settings, 0)
        other.distributed.broadcast_object_list(given, 0)
        self.assertEqual(given, [{"width": 5}, "b"])
        one.distributed.broadcast_object_list(["again", 1], 0)
        other.distributed.broadcast_object_list(given, 0)
        self.assertEqual(given, ["again", 1])
        piece, rows = [None], [["of %d" % rank] for rank in range(64)]
        one.c10d.scatter_object_list([None], rows, 0)
        other.c10d.scatter_object_list(piece, None, 0)
        self.assertEqual(piece, [["of 7"]])
        pair = (0, 3, 7)
        self.shared["emmctl/all_gather/0,3,7/1/0"] = _absent_ranks.pickle.dumps("zero")
        gathered = [None] * 3
        other.c10d.all_gather_object(gathered, "seven", pair)
        self.assertEqual(gathered, ["zero", "seven", "seven"], "an absent rank's is a copy")
        other.c10d.send_object_list([4, 5], 0)
        received = [None, None]
        self.assertEqual(one.c10d.recv_object_list(received, 7), 7)
        self.assertEqual(received, [4, 5])
        other.c10d.gather_object("of seven", None, 0, (0, 7))
        gathered = [None] * 2
        one.c10d.gather_object("of zero", gathered, 0, (0, 7))
        self.assertEqual(gathered, ["of zero", "of seven"])
        self.assertEqual((one.on_device, other.on_device), ([], []))
        card = Rank("0,7/64", 7, self.shared, "cuda")
        card.distributed.broadcast_object_list([None], 0)
        card.distributed.all_gather_object([None] * 64, 1)
        card.distributed.gather_object(1, None, 3)
        self.assertEqual(card.on_device, ["broadcast", "all_gather", "gather"])

    def test_a_group_is_made_as_it_was_asked_for_and_without_a_split(self):
        rank = self.rank(7)
        rank.group([], size=64, device_id="cuda:7")
        self.assertEqual(rank.made, [(64, 7, "nccl", None)])

    def test_gloo_which_would_connect_to_all_does_nothing(self):
        for given, wanted in ((None, "cpu:fake,cuda:nccl"), ("undefined", "cpu:fake,cuda:nccl"), ("cpu:gloo,cuda:nccl", "cpu:fake,cuda:nccl"),
                              ("gloo", "fake"), ("nccl", "nccl")):
            self.assertEqual(_absent_ranks.without_gloo(given), wanted)

    def test_ids_that_absent_ranks_would_make_are_there_and_alike(self):
        made = []
        for own in (7, 5):
            rank = self.rank(own, "5,7/64")
            place = rank.group([4, 5, 6, 7], "tensor")
            made.append(place.get("0"))
            self.assertEqual(len(made[-1]), 128)
            self.assertEqual(rank.members(made[-1], 4, [4, 5, 6, 7].index(own)), [4, 5, 6, 7])
        self.assertEqual(made[0], made[1])
        # Another group of the same size, of which this rank has the same place.
        place = rank.group([1, 5, 9, 13], "data")
        self.assertNotEqual(place.get("0"), made[0])
        self.assertEqual(rank.members(place.get("0"), 4, 1), [1, 5, 9, 13])

    def test_an_id_that_a_rank_makes_itself_is_known_by_the_store(self):
        rank = self.rank(0)
        tensor, data = rank.group(list(range(8)), "tensor"), rank.group(list(range(0, 64, 8)), "data")
        self.assertFalse(tensor.check(["0"]))
        tensor.set("0", b"t" * 128)
        data.set("0", b"d" * 128)
        self.assertEqual(rank.members(b"t" * 128, 8, 0), list(range(8)))
        self.assertEqual(rank.members(b"d" * 128, 8, 0), list(range(0, 64, 8)))
        self.assertIsNone(rank.members(b"x" * 128, 8, 0))
        self.assertIsNone(rank.members(b"t" * 128, 4, 0))

    def test_two_that_send_to_one_another(self):
        rank = self.rank(7)
        place = rank.group([], size=64)
        self.assertFalse(place.check(["0"]), "rank 0 runs, and makes it")
        self.assertFalse(place.check(["0:7"]))
        for lower in range(1, 7):  # these do not run
            self.assertEqual(rank.members(place.get("%d:7" % lower), 2, 1), [lower, 7])
        place.set("0:7", b"0" * 128)
        place.set("7:8", b"8" * 128)
        self.assertEqual(rank.members(b"0" * 128, 2, 1), [0, 7])
        self.assertEqual(rank.members(b"8" * 128, 2, 0), [7, 8])

    def test_a_group_all_of_whom_run_makes_its_own_id(self):
        rank = self.rank(7)
        place = rank.group([0, 7], "pair")
        self.assertEqual(self.shared, {})
        place.set("0", b"p" * 128)  # by rank 0
        self.assertEqual(rank.members(b"p" * 128, 2, 1), [0, 7])

    def test_a_group_of_others_is_not_ours(self):
        rank = self.rank(7)
        rank.c10d._new_process_group_helper(2, None, [1, 2], "nccl", rank.store, "others")
        self.assertEqual(self.shared, {})
        self.assertIsNone(rank.members(b"x" * 128, 2, 0))


class ServesToTheEnd(unittest.TestCase):
    def test_the_rank_that_serves_the_store_ends_last(self):
        """Each rank writes when it ends; the first, which serves, has nothing to do."""
        rank = ("import atexit, os, sys, time\n"
                "from emmctl import _absent_ranks\n"
                "own = int(sys.argv[1])\n"
                "atexit.register(lambda: os.write(1, b'%d ended\\n' % own))\n"
                "_absent_ranks.serve_to_the_end(_absent_ranks.Named('0,7/64'), own)\n"
                "time.sleep(own / 7)\n")
        environment = {**os.environ, "EMM_STANDIN_RANKS": "0,7/64"}
        read, write = os.pipe()
        ranks = [subprocess.Popen([sys.executable, "-c", rank, str(own)], env=environment, stdout=write) for own in (7, 0)]
        other = subprocess.Popen(["sleep", "60"])  # no rank
        os.close(write)
        for one in ranks:
            self.assertEqual(one.wait(30), 0)
        other.kill()
        other.wait()
        with os.fdopen(read) as said:
            self.assertEqual(said.read(), "7 ended\n0 ended\n")


if __name__ == "__main__":
    unittest.main()
