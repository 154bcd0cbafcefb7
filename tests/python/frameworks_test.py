"""emmctl.cupy, emmctl.torch and emmctl.core on stand-ins for the entry points of CuPy, PyTorch and cuda.core, in one
process, with Numba's own memory beside them where Debian's Numba is there."""
import importlib
import unittest

import cupy
import torch
from cuda.core import Device

import emmctl
import emmctl.core
import emmctl.cupy
import emmctl.torch

KIB, MIB = 1 << 10, 1 << 20
SPEC = "pool:backing=vmm"


def state():
    return emmctl.manager(0).state()


class OnePool(unittest.TestCase):
    def setUp(self):
        emmctl.cupy.use(SPEC)
        emmctl.torch.use()

    def tearDown(self):
        torch.cuda.memory.empty_cache()
        self.assertEqual(state()["live_bytes"], 0)

    def test_serves_cupy_and_torch_and_numba_from_the_same_slab(self):
        ours = [cupy.cuda.alloc(KIB), torch.cuda.memory.Block(KIB)]
        addresses = [memory.ptr for memory in ours]
        try:
            from numba import cuda
        except ImportError:
            pass
        else:
            importlib.import_module("emmctl.numba").use()
            ours.append(cuda.device_array(KIB, dtype="uint8"))
            addresses.append(ours[-1].device_ctypes_pointer.value)
        self.assertEqual(len(set(addresses)), len(ours))
        self.assertLess(max(addresses) - min(addresses), 2 * MIB)
        self.assertEqual(state()["live_bytes"], len(ours) * KIB)
        self.assertEqual(emmctl.torch.stats()["allocated"], len(ours) * KIB)

    def test_says_cupys_own_error_where_there_is_no_memory(self):
        with self.assertRaises(cupy.cuda.memory.OutOfMemoryError) as refused:
            cupy.cuda.alloc(65 * MIB)
        self.assertRegex(str(refused.exception), r"^Out of memory allocating .* live 0 B, reserved .* on the device")
        self.assertEqual(cupy.cuda.alloc(0).ptr, 0)

    def test_counts_what_is_freed_by_who_does_not_have_it(self):
        block = torch.cuda.memory.Block(KIB)
        torch.cuda.memory.current.free(block.ptr, *block.kept)
        del block
        self.assertEqual(emmctl.torch.stats()["wrong_frees"], 1)
        manager = emmctl.manager(0)
        address, token = manager.memalloc(KIB)
        manager.free(token)
        manager.free(token)
        self.assertEqual(manager.statistics()["wrong_frees.not_alive"], 2)
        emmctl.core.use()
        with self.assertRaises(ValueError):
            emmctl.core.memory_resource(0).deallocate(address, KIB)

    def test_frees_a_cycle_before_it_says_so(self):
        class Node:
            pass
        node = Node()
        node.itself, node.memory = node, cupy.cuda.alloc(40 * MIB)
        del node
        self.assertNotEqual(cupy.cuda.alloc(40 * MIB).ptr, 0)

    def test_orders_cupys_memory_on_its_current_stream(self):
        with cupy.cuda.Stream(2):
            on_two = cupy.cuda.alloc(MIB)
        address = on_two.ptr
        del on_two
        with cupy.cuda.Stream(2):
            self.assertEqual(cupy.cuda.alloc(MIB).ptr, address, "at once on the stream where it was freed")

    def test_orders_cupys_memory_so_where_its_c_function_is_another(self):
        from cupy_backends.cuda import stream
        compiled = stream.__pyx_capi__.pop("get_current_stream_ptr")
        self.addCleanup(stream.__pyx_capi__.__setitem__, "get_current_stream_ptr", compiled)
        emmctl.cupy.use()
        with cupy.cuda.Stream(2):
            on_two = cupy.cuda.alloc(MIB)
        on_none = cupy.cuda.alloc(MIB)
        self.assertGreater(abs(on_two.ptr - on_none.ptr), 2 * MIB, "each stream has slabs of its own")

    def test_says_what_else_failed_than_memory(self):
        cupy.cuda.DEVICE = 5
        try:
            with self.assertRaisesRegex(emmctl.EmmError, "no device 5"):
                cupy.cuda.alloc(KIB)
        finally:
            cupy.cuda.DEVICE = 0

    def test_gives_idle_memory_back_when_torch_empties_its_cache(self):
        block = torch.cuda.memory.Block(16 * MIB)
        del block
        self.assertGreaterEqual(state()["reserved_bytes"], 16 * MIB)
        torch.cuda.memory.empty_cache()
        self.assertEqual(state()["reserved_bytes"], 0)

    def test_tells_torch_the_base_of_an_allocation(self):
        first, second = torch.cuda.memory.Block(KIB), torch.cuda.memory.Block(KIB)
        base, size = torch.cuda.memory.base_allocation(second)
        self.assertLessEqual(base, min(first.ptr, second.ptr))
        self.assertGreaterEqual(base + size, max(first.ptr, second.ptr) + KIB)

    def test_holds_a_block_that_another_stream_uses(self):
        block = torch.cuda.memory.Block(MIB)
        block.record_stream(1)
        del block
        torch.cuda.memory.empty_cache()
        self.assertEqual(state()["live_bytes"], 0)

    def test_keeps_what_torch_captured_a_graph_with(self):
        with torch.cuda.memory.graph(stream=2) as graph:
            within = torch.cuda.memory.Block(MIB, 0, 2)
            address = within.ptr
            del within
        after = torch.cuda.memory.Block(MIB, 0, 2)
        self.assertNotEqual(after.ptr, address)
        with torch.cuda.memory.graph(stream=2, pool=graph.pool) as second:
            self.assertEqual(torch.cuda.memory.Block(MIB, 0, 2).ptr, address)
        for each in (graph, second):
            self.assertEqual(state()["live_bytes"], 2 * MIB)
            each.release()
        self.assertEqual(state()["live_bytes"], MIB)

    def test_takes_torchs_fraction(self):
        torch.cuda.memory.set_per_process_memory_fraction(0.5)
        torch.cuda.memory.Block(32 * MIB)
        torch.cuda.memory.set_per_process_memory_fraction(1.0)

        self.assertEqual(torch.cuda.memory.get_per_process_memory_fraction(), 1.0)

    def test_answers_what_torch_asks_of_its_own_allocator(self):
        memory = torch.cuda.memory
        memory.reset_accumulated_memory_stats()
        memory.reset_peak_memory_stats()
        block, other = memory.Block(3 * MIB), memory.Block(MIB)
        del other
        stats = memory.memory_stats()
        self.assertEqual((stats["allocated_bytes.all.current"], stats["allocated_bytes.all.peak"]), (3 * MIB, 4 * MIB))
        self.assertEqual((stats["allocated_bytes.all.allocated"], stats["allocated_bytes.all.freed"]), (4 * MIB, MIB))
        self.assertEqual(stats["num_ooms"], 0)
        self.assertEqual((memory.memory_allocated(), memory.max_memory_allocated()), (3 * MIB, 4 * MIB))
        self.assertEqual(memory.memory_reserved(), state()["reserved_bytes"])
        memory.reset_peak_memory_stats()
        self.assertEqual(memory.max_memory_allocated(), 3 * MIB)
        memory.reset_accumulated_memory_stats()
        self.assertEqual(memory.memory_stats()["allocated_bytes.all.allocated"], 0)
        self.assertRegex(memory.memory_summary(), r"allocated_bytes +3145728 +3145728 +0 +0\n")
        del block

    def test_a_peak_that_is_not_known_is_said_to_be_a_bound(self):
        memory = torch.cuda.memory
        blocks = [memory.Block(MIB, 0, 1), memory.Block(MIB, 0, 2)]
        self.assertNotIn("allocated_bytes.all.peak", memory.memory_stats())
        with self.assertWarnsRegex(UserWarning, "several streams"):
            self.assertEqual(memory.max_memory_allocated(), memory.max_memory_reserved())
        blocks.clear()

    def test_says_what_cannot_be_had_where_it_is_asked_for(self):
        with self.assertRaisesRegex(RuntimeError, "emmctl record"):
            torch.cuda.memory.memory_snapshot()
        with self.assertRaisesRegex(RuntimeError, "torch.cuda.graph"):
            torch.cuda.MemPool()
        with self.assertWarnsRegex(UserWarning, "benchmark mode"):
            torch.backends.cudnn.benchmark = True
        self.assertFalse(torch.backends.cudnn.benchmark)

    def test_serves_cuda_core(self):
        emmctl.core.use()
        buffer = Device().allocate(KIB, stream=2)
        self.assertEqual(state()["live_bytes"], KIB)
        self.assertEqual((buffer.size, buffer.mr.device_id, buffer.mr.is_device_accessible), (KIB, 0, True))
        self.assertEqual(Device().allocate(0, stream=None).handle, 0)
        with self.assertRaises(emmctl.EmmError):
            Device().allocate(65 * MIB, stream=None)
        buffer.close()
        self.assertEqual(state()["live_bytes"], 0)

    def test_a_buffer_of_a_manager_that_is_gone_frees_nothing_of_the_next_ones(self):
        emmctl.core.use()
        late = Device().allocate(KIB, stream=None)
        resource, token = late.mr, next(iter(late.mr._tokens.values()))
        emmctl.manager(0).abandon()  # as where Numba has reset the device
        kept = Device().allocate(KIB, stream=None)
        late.handle, resource._tokens = kept.handle, {kept.handle: token}  # as the same address comes again then
        late.close()
        self.assertEqual(state()["live_bytes"], KIB)
        kept.close()
        self.assertEqual(state()["live_bytes"], 0)

    def test_knows_the_streams_of_others(self):
        class OfNumba:
            handle = 5

        class OfCore:
            def __cuda_stream__(self):
                return 0, 7

        class WithoutCall:
            __cuda_stream__ = 0, 9
        streams = [None, 0, 3, OfNumba(), OfCore(), WithoutCall()]
        self.assertEqual([emmctl.core._stream_handle(each) for each in streams], [0, 0, 3, 5, 7, 9])

    def test_is_chosen_once(self):
        self.assertEqual(emmctl.use(), SPEC)
        self.assertEqual(emmctl.torch.use(SPEC), SPEC)
        with self.assertRaises(emmctl.EmmError):
            emmctl.torch.use("default")


if __name__ == "__main__":
    unittest.main()
