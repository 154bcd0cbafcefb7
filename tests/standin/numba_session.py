"""What a program does with Numba that reaches its memory manager: run on the stand-in for libcuda.so.1, whose
device has 64 MiB. Every result is checked; the calls are recorded by numba_recorder."""
import ctypes
import gc
import multiprocessing
import sys

import numpy as np
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError, driver

KIB, MIB = 1 << 10, 1 << 20


def arrays():
    host = np.arange(1000, dtype=np.float32)
    device = cuda.to_device(host)
    assert (device.copy_to_host() == host).all()
    part = device[10:20]
    assert (part.copy_to_host() == host[10:20]).all()
    del device  # the view keeps the memory
    gc.collect()
    assert (part.copy_to_host() == host[10:20]).all()
    other = cuda.device_array_like(host)
    other.copy_to_device(host[::-1].copy())
    assert (other.copy_to_host() == host[::-1]).all()
    grid = cuda.to_device(np.arange(64, dtype=np.int64).reshape(8, 8))
    assert (grid[2:4].copy_to_host() == np.arange(16, 32).reshape(2, 8)).all()


def host_memory():
    data = np.arange(4096, dtype=np.uint8)
    for _ in range(3):
        with cuda.pinned(data):
            assert (cuda.to_device(data).copy_to_host() == data).all()
    with cuda.mapped(data) as mapped:
        assert (mapped.copy_to_host() == data).all()
    pinned = cuda.pinned_array(100, dtype=np.int32)
    pinned[:] = 7
    assert (cuda.to_device(pinned).copy_to_host() == 7).all()
    mapped = cuda.mapped_array(100, dtype=np.int32, portable=True, wc=True)
    mapped[:] = 3
    assert (mapped == 3).all()
    managed = cuda.managed_array(100, dtype=np.int32)
    managed[:] = 5
    assert (managed == 5).all()


def host_flags():
    """The driver tells the flags that host memory was asked for with."""
    def told(memory):
        flags = ctypes.c_uint(99)
        assert driver.lib.cuMemHostGetFlags(ctypes.byref(flags), ctypes.c_void_p(memory.host_pointer.value)) == 0
        return flags.value
    context = cuda.current_context()
    for flags in range(8):
        mapped, portable, wc = flags & 2 != 0, flags & 1 != 0, flags & 4 != 0
        memory = context.memhostalloc(3 * 4096, mapped, portable, wc)
        assert told(memory) == flags, (flags, told(memory))


def streams():
    stream, event = cuda.stream(), cuda.event()
    data = np.arange(256, dtype=np.int64)
    device = cuda.to_device(data, stream=stream)
    event.record(stream)
    event.wait(stream)
    back = device.copy_to_host(stream=stream)
    event.synchronize()
    stream.synchronize()
    assert event.query()
    assert (back == data).all()
    with stream.auto_synchronize():
        device.copy_to_device(data[::-1].copy(), stream=stream)
    assert (device.copy_to_host() == data[::-1]).all()


def many_frees():
    for _ in range(35):  # the queue empties at its eleventh, three times
        cuda.device_array(KIB, dtype=np.uint8)


def large_frees():
    for _ in range(3):  # a fifth of the device may wait, no more
        cuda.device_array(10 * MIB, dtype=np.uint8)


def deferred():
    with cuda.defer_cleanup():
        for _ in range(12):
            cuda.device_array(KIB, dtype=np.uint8)
        with cuda.defer_cleanup():
            cuda.device_array(KIB, dtype=np.uint8)
        cuda.device_array(KIB, dtype=np.uint8)
    cuda.device_array(KIB, dtype=np.uint8)
    try:
        with cuda.defer_cleanup():
            cuda.device_array(2 * KIB, dtype=np.uint8)
            raise KeyError("leaves the guard")
    except KeyError:
        pass


def out_of_memory():
    held = cuda.device_array(40 * MIB, dtype=np.uint8)
    waiting = cuda.device_array(12 * MIB, dtype=np.uint8)
    del waiting  # pending; the next needs it
    again = cuda.device_array(20 * MIB, dtype=np.uint8)
    assert again.size == 20 * MIB
    try:
        cuda.device_array(30 * MIB, dtype=np.uint8)  # numba_test.py knows this size
        raise AssertionError("30 MiB beside 60 of 64 were given")
    except CudaAPIError as error:
        assert error.code == 2, error
    del held, again


def _read(handle, shape, results):
    with handle as array:
        results.put(array.copy_to_host().sum())


def other_process():
    data = np.arange(2048, dtype=np.int64)
    device = cuda.to_device(data)
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    for part in (device, device[100:300]):
        child = spawn.Process(target=_read, args=(part.get_ipc_handle(), part.shape, results))
        child.start()
        assert results.get(timeout=60) == part.copy_to_host().sum()
        child.join()
        assert child.exitcode == 0


def reset():
    kept = cuda.device_array(KIB, dtype=np.uint8)
    cuda.current_context().reset()
    del kept  # late: its memory went with the reset
    gc.collect()
    cuda.device_array(KIB, dtype=np.uint8)


def main():
    import numba_recorder
    cuda.set_memory_manager(numba_recorder.RecordingManager)
    assert cuda.current_context().get_memory_info().total == 64 * MIB
    for part in (arrays, host_memory, host_flags, streams, many_frees, large_frees, deferred, out_of_memory, other_process, reset):
        part()
        gc.collect()
        print(part.__name__)
    cuda.close()


if __name__ == "__main__":
    sys.exit(main())
