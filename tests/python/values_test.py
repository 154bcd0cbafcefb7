"""Values that are followed on the host, on a PyTorch that is made up for it."""
import gc
import linecache
import os
import sys
import tempfile
import unittest

try:
    import numpy
except ImportError:
    raise SystemExit(77)

import fake_torch as torch
from emmctl import _values

HERE = os.path.abspath(__file__)


def cuda(values, kind="float32"):
    """A tensor of the device that nobody knows."""
    return torch.Tensor(numpy.zeros(numpy.shape(values), kind), is_cuda=True)


class Following(unittest.TestCase):
    unknown_sizes = "uniform"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = folder.name + "/values.1"
        self.notes = _values.Notes(self.path)
        self.assume(self.unknown_sizes)

    def assume(self, words):
        self.values = _values.Values(torch, torch.StorageWeakRef, torch.answer_reads, lambda call: call(), self.notes,
                                     _values.Assumptions(words))

    def call(self, name, *args, **kwargs):
        function = getattr(torch.ops, name)
        before = function.on_device
        out = self.values.call(function, args, kwargs)
        if any(argument.alias_info is not None and argument.alias_info.is_write for argument in function._schema.arguments):
            args[0].storage.version += 1  # PyTorch counts it when we have returned
        self.assertEqual(torch.answers, [], "an answer is left for another operation")
        if "cuda" in str(kwargs.get("device")) or any(getattr(one, "is_cuda", False) for one in args):
            self.assertEqual(function.on_device, before + 1, "the device's own operation runs once")
        self.assertFalse(self.values.is_off, self.notes.facts)
        return out

    def given(self, values, kind="int64"):
        """A tensor of the device that came from the host."""
        return self.call("to", torch.Tensor(numpy.array(values, kind)), device="cuda")

    def value(self, tensor):
        host, _ = self.values.known(tensor)
        return None if host is None else host.tolist()

    def level(self, tensor):
        return self.values.known(tensor)[1]

    def written(self):
        with open(self.path) as file:
            return file.read()

    def kinds(self):
        return sorted(kind for kind, _, _ in self.notes.places)

    # What is known

    def test_what_came_from_the_host_is_known_and_so_is_what_follows_from_it(self):
        ids = self.given([3, 1, 2])
        more = self.call("add", ids, self.call("arange", 3, device="cuda"))
        self.assertEqual(self.value(more), [3, 2, 4])
        self.assertEqual(self.value(self.call("cumsum", more, 0)), [3, 5, 9])
        self.assertEqual(self.value(self.call("cat", [ids, more])), [3, 1, 2, 3, 2, 4])
        self.assertEqual(self.call("item", self.call("any", self.call("gt", more, 3))), True)
        self.assertEqual(self.call("to_cpu", more, device="cpu").tolist(), [3, 2, 4])
        self.assertEqual(self.notes.places, {})

    def test_views_share_what_is_written(self):
        base = self.given([0, 0, 0, 0])
        part = self.call("slice", base, 1, 3)
        self.call("add_", part, 5)
        self.assertEqual(self.value(base), [0, 5, 5, 0])
        self.call("copy_", part, self.given([7, 8]))
        self.assertEqual(self.value(base), [0, 7, 8, 0])
        self.call("zero_", base)
        self.assertEqual(self.value(part), [0, 0])

    def test_what_is_written_of_unknown_values_is_unknown(self):
        counter = self.given([1, 2])
        self.call("copy_", self.call("slice", counter, 0, 1), cuda([0], "int64"))
        self.assertIsNone(self.value(counter))
        self.call("zero_", counter)  # all of it has a value of its own again
        self.assertEqual(self.value(counter), [0, 0])

    def test_memory_that_is_written_in_parts_is_known(self):
        whole = self.call("empty", 4, device="cuda")
        self.call("copy_", self.call("slice", whole, 0, 2), self.given([1, 2]))
        self.assertEqual(self.value(whole), [1, 2, 0, 0])

    def test_a_storage_that_is_gone_leaves_no_value_to_the_next(self):
        for _ in range(2000):
            self.given([9])
        gc.collect()
        for _ in range(600):
            self.given([9])
        self.assertLess(len(self.values._entries), 1200)

    def test_what_a_kernel_writes_is_not_known(self):
        counts, out = self.given([3, 4]), self.call("empty", 2, device="cuda")
        self.assertEqual(self.value(out), [0, 0])
        self.values.written_by_kernel((counts, out, 2), ("in_ptr0", "out_ptr0", "xnumel"))
        self.assertEqual((self.value(counts), self.value(out)), ([3, 4], None))
        self.values.written_by_kernel((counts,), ("in_ptr0",), ("in_ptr0",))
        self.assertIsNone(self.value(counts))

    def test_a_kernel_that_nobody_describes_writes_to_what_is_empty(self):
        counts, out = self.given([3, 4]), self.call("empty", 2, device="cuda")
        self.values.written_by_kernel((counts, out, 2))
        self.assertEqual((self.value(counts), self.value(out)), ([3, 4], None))

    def test_a_replay_writes_what_was_captured(self):
        before = self.given([1, 2])
        self.values.capture_begins()
        within = self.given([5])
        written = self.values.capture_ends()
        after = self.given([7])
        self.assertEqual(self.value(within), [5])
        self.values.replayed(written)
        self.assertEqual((self.value(before), self.value(within), self.value(after)), ([1, 2], None, [7]))

    def test_what_is_large_is_not_followed(self):
        self.assertIsNone(self.value(self.call("arange", (1 << 20) + 1, device="cuda")))
        self.assertEqual(self.values.known(self.call("arange", 1 << 20, device="cuda"))[0].array[-1], (1 << 20) - 1)
        self.assertIsNone(self.value(self.given(numpy.zeros(4_097), "float32")))
        self.assertIsNotNone(self.value(self.given(numpy.zeros(4_096), "float32")))

    def test_what_the_host_cannot_do_is_unknown(self):
        self.assertIsNone(self.value(self.call("fails_on_host", self.given([1]))))

    def test_a_mistake_here_is_not_the_programs(self):
        known, counter = self.given([1, 2]), self.given([5])
        right, self.values._refer = self.values._refer, None
        out = self.values.call(torch.ops.add, (known, known), {})
        self.assertEqual(out.size(), (2,))
        self.assertEqual(self.notes.facts[0][0], "stopped")
        self.assertIsNone(self.value(known), "what the operation had is not known any more")
        self.assertEqual(self.value(counter), [5])
        for _ in range(_values.MOST_MISTAKES):
            self.values.call(torch.ops.arange, (3,), {"device": "cuda"})
        self.assertTrue(self.values.is_off, "many end the following")
        self.values._refer = right
        self.assertEqual(self.values.call(torch.ops.add, (counter, counter), {}).size(), (1,))

    def test_an_error_of_the_program_is_its_own(self):
        with self.assertRaises(ValueError):
            self.call("add", self.given([1, 2]), self.given([1, 2, 3]))

    # A backward pass, which is not followed

    def test_a_gradient_that_was_zero_is_unknown_after_a_backward_pass_that_wrote_to_it(self):
        gradient, scale = self.given([1, 2], "float32"), self.given([3], "float32")
        self.call("zero_", gradient)
        gradient.storage.version += 1  # the pass adds to it
        self.values.passed_backward()
        self.assertIsNone(self.value(gradient))
        self.assertEqual(self.value(scale), [3])
        self.call("zero_", gradient)
        self.assertEqual(self.value(gradient), [0, 0])
        self.values.passed_backward()
        self.call("add_", scale, self.given([1], "float32"))
        self.assertEqual((self.value(gradient), self.value(scale)), ([0, 0], [4]), "no pass wrote to them")

    def test_a_mask_that_a_backward_pass_will_ask_again_is_remembered(self):
        x, mask = cuda(numpy.zeros((4, 6))), self.call("gt", self.given([3, 0, 5, 0]), 0)
        self.call("index", x, [mask])
        self.assertFalse(self.values.is_read_in_backward)
        x.requires_grad = True
        self.call("index", x, [mask])
        self.assertTrue(self.values.is_read_in_backward)

    # What PyTorch does in place where no mode is

    def test_a_bias_that_linear_adds_takes_no_memory(self):
        x, weight, bias = cuda(numpy.zeros((4, 3))), cuda(numpy.zeros((3, 5))), cuda(numpy.zeros(5))

        def multiply():
            return self.values.call(torch.ops.mm, (x, weight), {})

        def either(operation, *given):
            return self.values.call(operation, given, {})
        for product, add in ((multiply(), lambda it: self.values.call(torch.ops.add, (it, bias), {})),
                             (either(torch.ops.mm, x, weight), lambda it: either(torch.ops.add, it, bias))):
            self.assertIsNot(add(product).storage, product.storage, "a program that adds by itself gets a new tensor")
        made = []
        for operation in (torch.ops.mm, torch.ops.add):  # by one instruction, as a function of C++ does
            made.append(self.values.call(operation, (x, weight) if not made else (made[0], bias), {}))
        self.assertIs(made[1].storage, made[0].storage)

    # Sizes

    def test_sizes_of_known_values_are_the_real_ones(self):
        mask = self.call("gt", self.given([3, 0, 5, 0]), 0)
        self.assertEqual(self.call("nonzero", mask).size(), (2, 1))
        self.assertEqual(self.value(self.call("nonzero", mask)), [[0], [2]])
        self.assertEqual(self.call("index", cuda(numpy.zeros((4, 6))), [mask]).size(), (2, 6))
        self.assertEqual(self.call("masked_select", cuda([0.0] * 4), mask).size(), (2,))
        self.assertEqual(self.call("unique2", self.given([4, 4, 4, 9]))[0].size(), (2,))
        self.assertEqual(self.value(self.call("unique2", self.given([4, 4, 4, 9]))[0]), [4, 9])
        self.assertEqual(self.notes.places, {})

    def test_sizes_of_unknown_values_are_assumed_and_named(self):
        x = cuda(numpy.zeros(100))
        mask = self.call("gt", x, 0)
        self.assertEqual(self.call("index", x, [mask]).size(), (50,))
        self.assertEqual(self.call("nonzero", mask).size(), (50, 1))
        self.assertEqual(self.call("nonzero", x).size(), (50, 1))
        (_, first), *_ = [((kind, where), place) for (kind, where, _), place in self.notes.places.items()]
        self.assertEqual((first.taken, first.least, first.most), (50, 0, 100))
        where = next(iter(self.notes.places))[1]
        self.assertRegex(where, r"values_test\.py:\d+$")
        self.assertEqual(self.kinds(), ["size.assumed", "size.assumed", "size.unknown"])
        self.assertIn("size.assumed\t1\t", self.written())

    def test_all_none_and_a_share(self):
        for words, count in (("all", 100), ("none", 0), ("0.25", 25)):
            self.assume(words)
            self.assertEqual(self.call("nonzero", self.call("gt", cuda(numpy.zeros(100)), 0)).size(), (count, 1), words)

    def test_a_mask_and_its_opposite_belong_together(self):
        mask = self.call("gt", cuda(numpy.zeros(64)), 0)
        self.assertEqual(self.call("nonzero", mask).size(0) + self.call("nonzero", self.call("eq", mask, False)).size(0), 64)

    def test_what_is_not_a_number_is_taken_to_be_rare(self):
        self.assertEqual(self.call("item", self.call("any", self.call("isnan", cuda(numpy.zeros(100))))), False)

    def test_nothing_is_infinite_however_large_it_is(self):
        for elements in (100, (1 << 20) + 2):
            x = cuda(numpy.zeros(elements))
            infinite = self.call("eq", self.call("abs", x), float("inf"))  # torch.isinf
            finite = self.call("mul", self.call("eq", x, x), self.call("ne", self.call("abs", x), float("inf")))
            self.assertEqual(self.call("item", self.call("any", infinite)), False)
            self.assertEqual(self.call("item", self.call("all", finite)), True)
            self.assertEqual(self.call("item", self.call("any", self.call("logical_or", infinite, self.call("isnan", x)))), False)
            self.assertEqual(self.call("nonzero", infinite).size(), (0, 1))
            self.assertEqual(self.call("nonzero", finite).size(), (elements, 1))
            self.call("copy_", infinite, cuda(numpy.zeros(elements), "bool"))
            self.assertEqual(self.call("nonzero", infinite).size(0), elements // 2, "what was written to is no constant any more")

    def test_parameters_of_a_distribution_are_right(self):
        valid = self.call("gt", cuda(numpy.zeros(100)), 0)
        self.assertEqual(self.call("item", self.call("is_all_true", valid)), True)
        wrong = self.call("gt", self.given([1, 0]), 0)
        self.assertEqual(self.call("item", self.call("is_all_true", wrong)), False)

    def test_a_decomposition_is_taken_to_succeed(self):
        """Its kernels are skipped, so that what it reads of the device is what lies there from before."""
        _, info = self.call("cholesky_ex", cuda(numpy.ones((3, 3), "float32"), "float32"))
        self.assertEqual(info.array.tolist(), [0, 0, 0])
        self.assertEqual(self.value(info), [0, 0, 0])
        self.assertEqual(self.call("item", self.call("any", info)), False)

    def test_an_operation_that_gives_a_tensor_of_the_host_keeps_it(self):
        """As attention gives the state of the host's generator."""
        seed = torch.Tensor(numpy.array([42]))
        out = self.values.call(lambda x: seed, (cuda([0.0]),), {})
        self.assertIs(out, seed)
        function = torch.Function("_flash_attention", lambda x: x)
        function._wrapped = lambda *_: seed
        self.assertEqual(self.values.call(function, (cuda([0.0]),), {}).tolist(), [42])
        self.assertEqual(self.notes.places, {})

    def test_a_router_spreads_evenly(self):
        experts = self.call("topk", cuda(numpy.zeros((64, 8))), 2)[1]
        rows = self.value(experts)
        self.assertTrue(all(a != b for a, b in rows))
        sizes = [self.call("nonzero", self.call("eq", experts, expert)).size(0) for expert in range(8)]
        self.assertEqual(sum(sizes), 128)
        self.assertLessEqual(max(sizes) - min(sizes), 4)
        self.assertEqual(set(self.kinds()), {"size.assumed"})

    def test_a_router_of_many_rows_spreads_evenly(self):
        for _ in range(3):
            experts = self.call("topk", cuda(numpy.zeros((8192, 16))), 8)[1]
        self.assertEqual(len(self.values._chosen), 1, "they are chosen once")
        counts = numpy.bincount(numpy.ravel(self.values.known(experts)[0].array))
        self.assertLessEqual(max(counts) - min(counts), 16)

    def test_indices_along_another_dimension(self):
        experts = self.call("topk", cuda(numpy.zeros((6, 10))), 2, 0)[1]
        self.assertEqual(experts.size(), (2, 10))
        self.assertTrue(all(a != b for a, b in zip(*self.value(experts))))

    def test_a_router_under_all_sends_everything_to_the_same(self):
        self.assume("all")
        experts = self.call("topk", cuda(numpy.zeros((64, 8))), 2)[1]
        self.assertEqual(self.call("nonzero", self.call("eq", experts, 0)).size(0), 64)

    def test_random_numbers_are_drawn_and_said_to_be(self):
        indices = self.call("randint", 1000, 500, device="cuda")
        distinct = self.call("unique2", indices)[0].size(0)
        self.assertTrue(350 < distinct < 440, distinct)
        self.assertEqual(self.kinds(), ["size.drawn"])

    def test_what_cudnn_would_have_done_is_said(self):
        self.call("add", self.given([1]), self.given([1]))
        self.call("convolution", torch.Tensor(numpy.zeros(1, "float32")))
        self.assertEqual(self.notes.facts, [], "the host's are not cuDNN's")
        self.call("convolution", cuda([0.0]))
        self.assertEqual(self.notes.facts, [("cudnn", "")])

    def test_plans_that_a_card_would_time_are_said(self):
        self.notes.has_cudnn = True
        self.call("convolution", cuda([0.0]))
        self.assertEqual(self.notes.facts, [])
        torch.backends.cudnn.benchmark = True
        self.addCleanup(setattr, torch.backends.cudnn, "benchmark", False)
        self.call("convolution", cuda([0.0]))
        self.assertEqual(self.notes.facts, [("benchmark", "")])

    # Loops

    def test_generation_ends_where_its_length_says(self):
        """As transformers' generate() does: it asks whether all rows are finished."""
        rows, end, longest = 4, 2, 30
        ids = self.given(numpy.ones((rows, 5)))
        unfinished = self.call("full", (rows,), True, device="cuda")
        asked = 0
        while True:
            following = self.call("argmax", cuda(numpy.zeros((rows, 32_000))), -1)
            self.assertEqual(self.level(following), _values.ASSUMED)
            ids = torch.Tensor(numpy.zeros((rows, ids.size(1) + 1), "int64"), is_cuda=True)
            unfinished = self.call("gt", self.call("add", unfinished, self.call("eq", following, end)), 0)
            asked += 1
            if ids.size(1) == longest or not self.call("item", self.call("any", unfinished)):
                break
        self.assertEqual(asked, longest - 5)

    def test_a_loop_on_what_is_never_known_is_named(self):
        before, _values.MOST_READS = _values.MOST_READS, 1000
        self.addCleanup(setattr, _values, "MOST_READS", before)
        with self.assertRaises(_values.Endless) as ended:
            while self.values.call(torch.ops.item, (cuda(0.0),), {}) > 0.5:
                pass
        line = int(str(ended.exception).rpartition(":")[2])
        self.assertIn("while self.values.call", linecache.getline(HERE, line))
        self.assertIn("fact\tendless\t", self.written())

    def test_a_training_that_reads_its_loss_is_no_endless_loop(self):
        before, _values.MOST_READS = _values.MOST_READS, 100
        self.addCleanup(setattr, _values, "MOST_READS", before)
        for _ in range(300):
            self.given([1, 2])  # a batch
            self.assertEqual(self.call("item", cuda(0.0)), 1.0)
        self.assertEqual(self.kinds(), ["float.unknown"])

    def test_a_mask_of_all_ends_a_loop_under_all(self):
        self.assume("all")
        while not self.call("item", self.call("all", self.call("gt", cuda(numpy.zeros(8)), 0))):
            pass

    # Where torch.tensor() copies to the device unseen

    def test_a_constant_of_the_device_is_known(self):
        constant = torch.Tensor(numpy.array([5, 6]), is_cuda=True)
        self.assertEqual(self.value(self.call("lift_fresh", constant)), [5, 6])

    # Other ranks

    def test_a_collective_brings_what_is_known_and_gives_what_the_others_made_of_it(self):
        ranks = self.with_ranks()
        ids = self.given([1, 2])
        self.call_ranks("c10d::allreduce_", [ids], then=[(ids, [5, 7])])
        self.assertEqual(ranks.brought, [_values.KNOWN])
        self.assertEqual(ranks.first, [1, 2])
        self.assertEqual(ranks.asked, 0, "nobody waits before somebody asks")
        self.assertEqual(self.value(self.call("add", ids, 1)), [6, 8])
        self.assertEqual(self.level(ids), _values.KNOWN)

    def test_what_another_rank_does_not_know_is_unknown(self):
        ranks = self.with_ranks(level=_values.UNKNOWN)
        ids = self.given([1, 2])
        self.call_ranks("c10d::broadcast_", [ids])
        self.assertIsNone(self.value(ids))
        self.call_ranks("c10d::allreduce_", [ids])
        self.assertEqual(ranks.brought, [_values.KNOWN, _values.UNKNOWN])

    def test_gathered_pieces_may_lie_in_one_tensor(self):
        self.with_ranks()
        whole = self.call("to", torch.Tensor(numpy.zeros(4, "int64")), device="cuda")
        parts = [self.call("slice", whole, 0, 2), self.call("slice", whole, 2, 4)]
        own = self.given([8, 9])
        self.call_ranks("c10d::allgather_", [parts], [own], then=[(parts[0], [8, 9]), (parts[1], [3, 4])])
        self.assertEqual(self.value(whole), [8, 9, 3, 4])

    def test_a_functional_collective_gives_what_it_returns(self):
        self.with_ranks()
        own, made = self.given([8, 9]), cuda([0, 0, 0, 0], "int64")
        self.call_ranks("_c10d_functional::all_gather_into_tensor", own, 2, "0", then=[(made, [8, 9, 3, 4])], returns=made)
        self.assertEqual(self.value(made), [8, 9, 3, 4])
        self.call_ranks("_c10d_functional::wait_tensor", made, returns=made)
        self.assertEqual(self.value(made), [8, 9, 3, 4])

    def test_what_other_libraries_exchange_is_unknown(self):
        ranks = self.with_ranks()
        ranks.are_called = False
        ids = self.given([1, 2])
        self.call_ranks("c10d::broadcast_", [ids])
        self.assertIsNone(self.value(ids))

    def test_a_send_gives_nothing_and_a_receive_takes_nothing(self):
        ranks = self.with_ranks()
        ids, to = self.given([1, 2]), cuda([0, 0], "int64")
        self.call_ranks("c10d::send", [ids], None, 1, 0)
        self.call_ranks("c10d::recv_", [to], None, 1, 0, then=[(to, [6, 5])])
        self.assertEqual(ranks.brought, [_values.KNOWN, _values.KNOWN])
        self.assertEqual((self.value(ids), self.value(to)), ([1, 2], [6, 5]))

    def test_a_larger_storage_keeps_what_the_smaller_one_held(self):
        ids = self.given([1, 2])

        def resize(tensor, _):
            tensor.storage.size = 32
            tensor.array = numpy.zeros(4, "int64")
            return tensor
        function = torch.Function("resize_", None, writes=(0,))
        function.__class__ = type("Resizing", (torch.Function,), {"__call__": staticmethod(lambda *args: resize(*args))})
        self.values.call(function, (ids, [4]), {})
        self.assertEqual(self.value(ids), [1, 2, 0, 0])

    def with_ranks(self, level=_values.KNOWN):
        ranks = Ranks(level)
        self.values._ranks = ranks
        return ranks

    def call_ranks(self, name, *args, then=(), returns=None):
        """The other ranks leave what `then` says."""
        ranks = self.values._ranks

        def run(*_, **__):
            ranks.first = next((numpy.frombuffer(data, "int64").tolist() for data in ranks.memory.values()), None)
            for tensor, values in then:
                ranks.memory[tensor.data_ptr()] = bytearray(numpy.array(values, "int64").tobytes())
            return returns
        function = torch.Function(name, None)
        function._schema.name = name
        function.__class__ = type("Collective", (torch.Function,), {"__call__": staticmethod(run)})
        return self.values.call(function, args, {})


class Ranks:
    def __init__(self, level):
        self.made, self.memory, self.brought, self.asked, self.are_called, self.first = level, {}, [], 0, True, None

    def begin(self, level):
        self.brought.append(level)
        return len(self.brought)

    def end(self):
        return self.are_called

    def level(self, _):
        self.asked += 1
        return self.made

    def write(self, tensor, host):
        self.memory[tensor.data_ptr()] = bytearray(host.array.tobytes())
        return True

    def read(self, address, size):
        data = self.memory.get(address)
        return data if data is not None and len(data) == size else None


class CallsOfRanks(unittest.TestCase):
    """In which call of PyTorch's a rank waits for others."""

    def call_of(self, *frames):
        """Each of (file, name) calls the next; what is said of the innermost."""
        code = {"say": lambda: found.append(_values.call_of_ranks(("/site/torch/", "/site/emmctl/"), sys._getframe(1)))}
        found, inner = [], "say()"
        for file, name in reversed(frames):
            exec(compile("def %s(): %s" % (name, inner), file, "exec"), code)
            inner = name + "()"
        exec(inner, code)
        return found[0]

    def test_calls(self):
        c10d, ddp = "/site/torch/distributed/distributed_c10d.py", "/site/torch/nn/parallel/distributed.py"
        self.assertEqual(self.call_of(("/home/train.py", "main"), (c10d, "barrier")), "barrier")
        self.assertEqual(self.call_of(("/home/train.py", "main"), ("/site/torch/distributed/c10d_logger.py", "wrapper"), (c10d, "init_process_group"),
                                      ("/site/emmctl/_absent_ranks.py", "create_store")), "init_process_group, in create_store")
        self.assertEqual(self.call_of((ddp, "forward"), ("/site/torch/nn/modules/module.py", "call")), "forward, in call")
        # It computes, or waits in a function of its own.
        self.assertEqual(self.call_of(("/home/train.py", "main"), ("/site/torch/nn/modules/module.py", "call")), "")
        self.assertEqual(self.call_of((c10d, "barrier"), ("/home/train.py", "hook")), "")


if __name__ == "__main__":
    unittest.main()
