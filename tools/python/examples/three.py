"""PyTorch, CuPy and Numba take turns with most of a device's memory, and say whether it was enough.

    three.py [--manager private|NAME[:options]] [--room 8GiB]

All but `--room` of the device is taken first. Each framework in turn then needs three quarters of the room and gives it up.
With three private pools the second finds what the first still keeps; on one pool there is room for all.
"""
import argparse
import json

import numpy
import cupy
import torch
from numba import cuda

MIB = 1 << 20
UNITS = {"MiB": MIB, "GiB": 1 << 30}


def by_torch(count):
    blocks = [torch.full((MIB // 4,), n, dtype=torch.int32, device="cuda") for n in range(count)]
    return sum(int(block[-1]) for block in blocks)


def by_cupy(count):
    blocks = [cupy.full((MIB // 4,), n, dtype=cupy.int32) for n in range(count)]
    return sum(int(block[-1]) for block in blocks)


def by_numba(count):
    pattern = numpy.empty(MIB // 4, dtype=numpy.int32)
    blocks = []
    for n in range(count):
        pattern[:] = n
        blocks.append(cuda.to_device(pattern))
    return sum(int(block[MIB // 4 - 1:].copy_to_host()[0]) for block in blocks)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--manager", default="pool")
    parser.add_argument("--room", default="4GiB")
    options = parser.parse_args()
    if options.manager != "private":
        import emmctl.cupy
        import emmctl.numba
        import emmctl.torch
        emmctl.numba.use(options.manager)
        emmctl.cupy.use()
        emmctl.torch.use()
    room = int(options.room[:-3]) * UNITS[options.room[-3:]]
    by_torch(1), by_cupy(1), by_numba(1)  # contexts, handles and kernels are there
    free = cupy.cuda.runtime.memGetInfo()[0]
    taken = cupy.cuda.runtime.malloc(free - room)
    count = room * 3 // 4 // MIB
    row = {"manager": options.manager, "room_bytes": room, "each_bytes": count * MIB}
    for turn in range(2):
        for name, use in (("torch", by_torch), ("cupy", by_cupy), ("numba", by_numba)):
            try:
                row[name] = "right" if use(count) == count * (count - 1) // 2 else "wrong"
            except Exception as error:
                row[name] = "%s: %s" % (type(error).__name__, str(error)[:80])
    cupy.cuda.runtime.free(taken)
    row["fits"] = all(row[name] == "right" for name in ("torch", "cupy", "numba"))
    print(json.dumps(row))


if __name__ == "__main__":
    main()
