#!/usr/bin/env python3
"""CuPy's pool on lists of requests, as tools/peers/peer_main.hpp says. Python's own share is taken off: the same loop
with a function that only makes an object and drops it."""
import argparse
import gc
import json
import statistics
import sys
import time

NOT_HERE = 3
try:
    import cupy

    cupy.cuda.runtime.free(0)
except Exception as error:  # not installed, no driver, no device
    print(f"no CuPy here: {error}", file=sys.stderr)
    sys.exit(NOT_HERE)


def read(path):
    requests, slots, live, peak, streams, by_stream = [], {}, 0, 0, 1, {}
    with open(path) as file:
        for line in file:
            what, slot, *rest = line.split()
            mine = by_stream.setdefault(rest[-1], [0, 0])  # live, and its peak
            if what == "a":
                size = int(rest[0])
                slots[slot] = size
                live += size
                peak = max(peak, live)
                mine[0] += size
                mine[1] = max(mine)
            else:
                size = 0
                live -= slots[slot]
                mine[0] -= slots[slot]
            streams = max(streams, int(rest[-1]) + 1)
            requests.append((size, int(slot), int(rest[-1])))
    return requests, max(int(slot) for slot in slots) + 1, peak, sum(most for _, most in by_stream.values()), streams


def walk(requests, slots, make, streams):
    """Nanoseconds. The stream is changed where the request's is another."""
    at = 0
    begin = time.perf_counter_ns()
    for size, slot, stream in requests:
        if stream != at:
            streams[stream].use()
            at = stream
        slots[slot] = make(size) if size else None
    return time.perf_counter_ns() - begin


def walk_each(requests, slots, make, streams):
    clock = time.perf_counter_ns
    allocations, frees, at = [], [], 0
    for size, slot, stream in requests:
        if stream != at:
            streams[stream].use()
            at = stream
        if size:
            begin = clock()
            slots[slot] = make(size)
            allocations.append(clock() - begin)
        else:
            begin = clock()
            slots[slot] = None
            frees.append(clock() - begin)
    return sorted(allocations), sorted(frees)


class Still:
    """A stream that is none: of the loop alone."""

    def use(self):
        pass


def measure(name, path, warm, latency):
    requests, places, peak, no_wait_need, count = read(path)
    pool = cupy.cuda.MemoryPool()
    streams = [cupy.cuda.Stream.null] + [cupy.cuda.Stream(non_blocking=True) for _ in range(count - 1)]
    free_before = cupy.cuda.runtime.memGetInfo()[0]
    slots = [None] * places
    gc.disable()

    def finish():
        slots[:] = [None] * places
        cupy.cuda.Stream.null.use()
        cupy.cuda.runtime.deviceSynchronize()

    loop = min(walk(requests, slots, float, [Still()] * count) for _ in range(5))
    times = []
    for _ in range(1 + warm):
        times.append((walk(requests, slots, pool.malloc, streams) - loop) / len(requests))
        finish()
    clock = statistics.median(sorted(-time.perf_counter_ns() + time.perf_counter_ns() for _ in range(1001)))
    tails = {"alloc": [], "free": []}
    for _ in range(latency):
        for what, spans in zip(tails, walk_each(requests, slots, pool.malloc, streams)):
            if spans:
                tails[what].append(max(0, spans[min(len(spans) - 1, int(0.999 * len(spans)))] - clock))
        finish()
    line = {"peer": name, "trace": path.rsplit("/", 1)[-1].removesuffix(".ops"), "requests": len(requests), "failed": 0,
            "peak_live_bytes": peak, "no_wait_need_bytes": no_wait_need, "first_ns": round(times[0], 2), "warm_ns": round(statistics.median(times[1:]), 2),
            "warm_passes_ns": [round(each, 2) for each in times[1:]], "loop_ns": round(loop / len(requests), 2),
            # The pool releases nothing while it is not asked to, so what it holds now is the most it held.
            "reserved_first_bytes": pool.total_bytes(), "reserved_warm_bytes": pool.total_bytes(),
            "device_peak_bytes": free_before - cupy.cuda.runtime.memGetInfo()[0], "clock_cost_ns": clock}
    for what, found in tails.items():
        if found:
            line[f"{what}_p999_ns"] = statistics.median(found)
    print(json.dumps(line), flush=True)
    pool.free_all_blocks()
    gc.enable()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="CuPy")
    parser.add_argument("--warm", type=int, default=15)
    parser.add_argument("--latency", type=int, default=5)
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    for path in arguments.files:
        measure(arguments.name, path, arguments.warm, arguments.latency)
    return 0


if __name__ == "__main__":
    sys.exit(main())
