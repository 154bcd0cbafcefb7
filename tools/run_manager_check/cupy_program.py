"""Arrays of many sizes without CuPy's pool: each is a call of the driver."""
import hashlib
import json
import random
import time

import cupy

cupy.cuda.set_allocator(None)


def work(count, seed):
    chance = random.Random(seed)
    kept = [cupy.arange(1000, dtype=cupy.float32)]
    for _ in range(count):
        array = cupy.full(chance.randrange(1 << 10, 1 << 20), chance.random(), dtype=cupy.float32)
        array += kept[chance.randrange(len(kept))][0]
        kept.append(cupy.sqrt(array))
        if len(kept) > 50:
            kept.pop(chance.randrange(len(kept)))
    cupy.cuda.Device().synchronize()
    return kept


work(50, 1)  # kernels are compiled
begun = time.monotonic()
arrays = work(3000, 2)
took = time.monotonic() - begun
digest = hashlib.sha256()
for one in arrays:
    digest.update(cupy.asnumpy(one).tobytes())
print(json.dumps({"seconds": took, "digest": digest.hexdigest()}))
