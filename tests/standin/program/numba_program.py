# A program with Numba: arrays, streams and events, and a request that no card serves.
import numpy as np
from numba import cuda

array = np.arange(1000, dtype=np.float32)
there = cuda.to_device(array)
assert (there.copy_to_host() == array).all()
stream, event = cuda.stream(), cuda.event()
pinned = cuda.pinned_array(1000, dtype=np.float32)
there.copy_to_host(pinned, stream=stream)
event.record(stream)
event.synchronize()
print(cuda.get_current_device().name.decode(), cuda.get_current_device().compute_capability, cuda.current_context().get_memory_info().total)
held = [cuda.device_array(8 << 20, dtype=np.uint8) for _ in range(4)]
try:
    cuda.device_array(1 << 40, dtype=np.uint8)
except cuda.cudadrv.driver.CudaAPIError as error:
    print("refused with", error.code)
