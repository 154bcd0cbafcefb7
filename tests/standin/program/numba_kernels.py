# A program with Numba's kernels: a loop over elements, shared memory and atomics, a reduction, streams, mapped and managed memory.
import numpy as np
from numba import cuda


@cuda.jit
def scaled_sum(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]


@cuda.jit
def histogram(x, bins):
    part = cuda.shared.array(128, dtype=np.float32)
    part[cuda.threadIdx.x] = x[cuda.grid(1)]
    cuda.syncthreads()
    cuda.atomic.add(bins, int(part[cuda.threadIdx.x]), 1)


@cuda.reduce
def total(a, b):
    return a + b


x = cuda.to_device(np.ones(1 << 20, dtype=np.float32))
y = cuda.device_array_like(x)
bins = cuda.to_device(np.zeros(256, dtype=np.int32))
stream = cuda.stream()
for _ in range(3):
    scaled_sum[x.size // 256, 256, stream](np.float32(2), x, y)
    histogram[8, 128](x, bins)
stream.synchronize()
# No kernel ran: what was written is what is read.
print("sum", total(x), "first", y[:3].copy_to_host(), "bins", bins.copy_to_host().sum())
mapped, managed = cuda.mapped_array(100), cuda.managed_array(100, dtype=np.float32)
print("held", cuda.current_context().get_memory_info().total - cuda.current_context().get_memory_info().free)
