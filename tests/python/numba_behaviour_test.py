"""Numba's memory from emmctl's managers, as a program sees it: for the manager that EMM_MEMORY_MANAGER names, on the
stand-in for libcuda.so.1 with 64 MiB. Numba finds the manager by NUMBA_CUDA_MEMORY_MANAGER=emmctl.numba."""
import ctypes
import gc
import os
import pickle
import sys
import unittest
import weakref

import numpy as np

try:
    import numba_session as session
    from numba import cuda
except ImportError as error:
    print("skipped: no Numba for %s: %s" % (sys.executable, error))
    sys.exit(77)

import emmctl
from emmctl import _library

KIB, MIB = 1 << 10, 1 << 20
NAME = os.environ["EMM_MEMORY_MANAGER"].partition(":")[0]
EXPORTS = NAME in ("default", "cudart", "pool")


def bytes_of(size):
    return cuda.device_array(size, dtype=np.uint8)


def live_bytes():
    gc.collect()
    return emmctl.manager(0).state()["live_bytes"]


class NumbaMemory(unittest.TestCase):
    def setUp(self):
        gc.collect()
        self.assertEqual(type(cuda.current_context().memory_manager).__module__, "emmctl.numba")

    def test_arrays_slices_and_copies_hold_what_was_written(self):
        session.arrays()

    def test_pinned_mapped_and_managed_memory_serve(self):
        session.host_memory()

    def test_streams_and_events_order_copies(self):
        session.streams()

    def test_deferred_cleanup_nests_and_ends_with_an_exception(self):
        session.deferred()
        session.many_frees()
        session.large_frees()

    def test_memory_that_does_not_fit_is_numbas_own_error(self):
        if NAME != "pool":  # which takes more than it is asked for
            session.out_of_memory()
        with self.assertRaises(cuda.cudadrv.driver.CudaAPIError) as caught:
            bytes_of(65 * MIB)
        self.assertEqual(caught.exception.code, 2)
        self.assertRegex(str(caught.exception), r"^\[2\] Call to .* results in CUDA_ERROR_OUT_OF_MEMORY(; live .*)?$")

    @unittest.skipUnless(EXPORTS, "this manager exports nothing")
    def test_another_process_opens_an_array_and_a_slice_of_it(self):
        session.other_process()

    @unittest.skipUnless(EXPORTS, "this manager exports nothing")
    def test_a_handle_that_was_pickled_says_the_same(self):
        other = bytes_of(KIB)
        handle = cuda.to_device(np.arange(100, dtype=np.int64))[10:20].get_ipc_handle()._ipc_handle
        again = pickle.loads(pickle.dumps(handle))
        self.assertIsNone(again.base)
        self.assertEqual((again.size, again.offset, bytes(again.handle)), (80, handle.offset, bytes(handle.handle)))
        del other

    @unittest.skipIf(EXPORTS, "this manager exports")
    def test_what_a_manager_does_not_offer_is_not_implemented(self):
        with self.assertRaises(NotImplementedError):
            bytes_of(KIB).get_ipc_handle()

    def test_memory_info_is_the_devices(self):
        info = cuda.current_context().get_memory_info()
        self.assertEqual(info.total, 64 * MIB)
        self.assertLessEqual(info.free, info.total)

    def test_a_view_keeps_the_memory_and_its_end_gives_it_back(self):
        before = live_bytes()
        view = bytes_of(4 * KIB)[KIB:]
        self.assertEqual(live_bytes(), before + 4 * KIB)
        del view
        self.assertEqual(live_bytes(), before)

    def test_reset_ends_memory_once_and_late_finalizers_free_nothing(self):
        session.reset()
        kept = bytes_of(KIB)
        cuda.current_context().reset()
        fresh = cuda.to_device(np.full(KIB, 7, dtype=np.uint8))
        del kept
        gc.collect()
        self.assertEqual(live_bytes(), KIB)
        self.assertTrue((fresh.copy_to_host() == 7).all())

    def test_page_locked_memory_outlives_a_reset(self):
        pinned = cuda.pinned_array(KIB, dtype=np.uint8)
        cuda.current_context().reset()
        pinned[:] = 3
        self.assertTrue((cuda.to_device(pinned).copy_to_host() == 3).all())

    def test_reset_leaves_what_other_frameworks_have_in_the_pool(self):
        bytes_of(KIB)
        lib = _library.library()
        theirs = lib.emm_cupy_malloc(None, 8 * KIB, 0)
        try:
            ours = bytes_of(KIB)
            cuda.current_context().reset()
            self.assertEqual(live_bytes(), 8 * KIB)
            del ours
        finally:
            lib.emm_cupy_free(None, theirs, 0)
        self.assertEqual(live_bytes(), 0)

    def test_closing_and_beginning_again_serves(self):
        kept, pinned = bytes_of(KIB), cuda.pinned_array(KIB, dtype=np.uint8)
        cuda.close()
        device = cuda.to_device(np.arange(100))
        self.assertTrue((device.copy_to_host() == np.arange(100)).all())
        del kept, pinned  # of a context that is gone
        self.assertEqual(live_bytes(), 800)

    def test_a_region_that_is_pinned_already_is_an_error_that_changes_nothing(self):
        data = np.zeros(4096, dtype=np.uint8)
        with cuda.pinned(data):
            with self.assertRaises(cuda.cudadrv.driver.CudaAPIError) as caught:
                cuda.current_context().mempin(data, data.ctypes.data, data.nbytes, mapped=False)
            self.assertEqual(caught.exception.code, 712)
        with cuda.pinned(data):
            pass

    def test_numbas_queue_is_the_managers(self):
        manager = cuda.current_context().memory_manager
        memory = manager.memallocmanaged(KIB, attach_global=True)  # PyTorch's model keeps page-locked memory
        del memory
        gc.collect()
        self.assertGreaterEqual(len(manager.deallocations), 1)
        manager.deallocations.clear()
        self.assertEqual(len(manager.deallocations), 0)

    def test_a_context_around_somebody_elses_serves_whatever_its_device_is_called(self):
        class Theirs:
            def id(self):
                raise AssertionError("nobody asks")
        theirs, driver = Theirs(), cuda.cudadrv.driver
        context = driver.Context(weakref.proxy(theirs), cuda.current_context().handle)
        context.push()
        try:
            memory = context.memalloc(KIB)
            self.assertEqual(live_bytes(), KIB)
            del memory
        finally:
            context.pop()
        self.assertEqual(live_bytes(), 0)

    def test_a_manager_without_a_context_says_its_version_and_touches_nothing(self):
        manager = type(cuda.current_context().memory_manager)(context=None)
        self.assertEqual(manager.interface_version, 1)
        manager.reset()


class OneManagerAProcess(unittest.TestCase):
    def test_a_second_manager_is_refused_while_the_first_is_in_use(self):
        bytes_of(KIB)
        chosen = emmctl.use()
        with self.assertRaisesRegex(emmctl.EmmError, "the manager of this process is 'name=.*', in use"):
            emmctl.use("default:count=99")
        self.assertEqual(emmctl.use(), chosen)

    def test_an_unknown_manager_is_refused_with_the_names_that_are_known(self):
        lib = _library.library()
        status = lib.emm_shared_use(b"name=none", 0)
        self.assertNotEqual(status, 0)

    def test_the_functions_take_addresses_that_they_gave_and_no_other(self):
        bytes_of(KIB)
        lib = _library.library()
        lib.emm_cupy_free(None, 0x1234, 0)
        size = ctypes.c_size_t(1)
        self.assertIsNone(lib.emm_torch_base_alloc(0x1234, size))
        self.assertEqual(size.value, 0)


if __name__ == "__main__":
    unittest.main()
