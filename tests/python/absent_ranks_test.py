"""Ranks of PyTorch's that do not run: what they would have left in the store, on a torch.distributed that is made up for it. Its group
helper and store have the signatures and keys of PyTorch 2.11's."""
import ctypes
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


class Rank:
    """A process, whose torch.distributed is answered for."""

    def __init__(self, words, own, shared):
        self.own, self.made, self.barriers = own, [], 0
        self.store = Store(shared)

        def tcp_store(*args, **kwargs):
            self.store_arguments = args, kwargs
            return self.store

        def helper(group_size, group_rank, global_ranks_in_group, backend, store, group_name, backend_options=None, timeout=None, pg_tag=None,
                   device_id=None, group_desc=None):
            self.made.append((group_size, group_rank, backend, device_id))
            return PrefixStore("cuda/", PrefixStore(group_name + "/", store))  # where ProcessGroupNCCL has its keys

        def barrier(*_):
            self.barriers += 1
        self.c10d = types.SimpleNamespace(_new_process_group_helper=helper, _store_based_barrier=barrier, Backend=str)
        self.rendezvous = types.SimpleNamespace(_create_c10d_store=None)
        _absent_ranks.install(_absent_ranks.Named(words), own, types.SimpleNamespace(TCPStore=tcp_store, PrefixStore=PrefixStore),
                              self.c10d, self.rendezvous, self.take)

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
            rank.rendezvous._create_c10d_store("node17", 29500, own, 64, "a while", use_libuv=True)
            args, kwargs = rank.store_arguments
            self.assertEqual(args, ("127.0.0.1", 29500, None, is_master))
            self.assertEqual(kwargs, {"timeout": "a while", "wait_for_workers": False, "multi_tenant": True})
            rank.c10d._store_based_barrier(own, rank.store, "0", 64, "a while")
            self.assertEqual(rank.barriers, 0)

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


if __name__ == "__main__":
    unittest.main()
