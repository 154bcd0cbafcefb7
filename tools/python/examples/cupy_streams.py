"""Arrays of many sizes over several streams with CuPy, and a line of JSON: what was computed (a hash), how long it
took, the first quarter of the steps by itself, and what was held of the device.

    cupy_streams.py [--manager native|NAME[:options]] [--steps 8000] [--record FILE]
"""
import argparse
import hashlib
import json

import cupy
import numpy
from stopwatch import Stopwatch


def work(steps, held, marks, watch):
    numbers = numpy.random.default_rng(3)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    kept, sums = [[] for _ in streams], []
    for step in range(steps):
        if step == steps // 4:
            marks.append(watch.seconds)
        lane = step % len(streams)
        size = int(numbers.integers(1 << 10, 1 << 22))
        with streams[lane]:
            values = cupy.arange(size, dtype=cupy.int64) * (step % 97)
            kept[lane].append(cupy.sort(values % 1009)[: size // 2].copy())
            if len(kept[lane]) > 8:
                sums.append(kept[lane].pop(int(numbers.integers(len(kept[lane])))).sum())
            square = (cupy.ones((256, 256), dtype=cupy.float32) * (step % 13)) @ cupy.ones((256, 256), dtype=cupy.float32)
            sums.append(square.astype(cupy.int64).sum())
        if step % 100 == 0:
            held.append(cupy.cuda.runtime.memGetInfo()[0])
        if step % 50 == 0:
            watch.step()
    for stream in streams:
        stream.synchronize()
    values = []
    for each in sums:
        values.append(int(each))
        if len(values) % 1000 == 0:
            watch.step()
    return numpy.array(values)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--manager", default="native")
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--record")
    options = parser.parse_args()
    if options.manager != "native":
        import emmctl.cupy
        emmctl.cupy.use(options.manager)
    if options.record:
        import emmctl.record
        emmctl.record.start(options.record)
    cupy.zeros(1)
    watch = Stopwatch(cupy.cuda.Device().synchronize)
    work(20, [], [], watch)  # kernels are compiled here
    cupy.cuda.Device().synchronize()
    held = [cupy.cuda.runtime.memGetInfo()[0]]
    marks = []
    watch.start()
    sums = work(options.steps, held, marks, watch)
    watch.stop()
    held.append(cupy.cuda.runtime.memGetInfo()[0])
    row = {"manager": options.manager, "seconds": watch.seconds, "first_quarter_seconds": marks[0],
           "sums": hashlib.sha256(sums.tobytes()).hexdigest()[:16], "held_bytes": held[0] - min(held)}
    if options.manager == "native":
        row["reserved_bytes"] = cupy.get_default_memory_pool().total_bytes()
    else:
        row["reserved_bytes"] = emmctl.manager(0).state()["reserved_bytes"]
    print(json.dumps(row))


if __name__ == "__main__":
    main()
