"""Small requests of a framework, each ended before the next and with a thousand alive, and a line of JSON: how long
they took.

    small_requests.py [--framework torch|cupy] [--stream default|own] [--manager native|NAME[:options]]
                      [--requests 400000]

A torch request is torch.empty(1000, device="cuda"), one of CuPy cupy.empty(1000, dtype="float32").
"""
import argparse
import contextlib
import json
import time

ALIVE = 1000


def of_torch(own_stream):
    import torch

    def make(empty=torch.empty, device=torch.device("cuda")):
        return empty(1000, device=device)

    torch.zeros(1).cuda()
    return make, torch.cuda.stream(torch.cuda.Stream()) if own_stream else contextlib.nullcontext()


def of_cupy(own_stream):
    import cupy

    def make(empty=cupy.empty, dtype=cupy.dtype("float32")):
        return empty(1000, dtype=dtype)

    cupy.zeros(1)  # while CUDA's runtime has no context, asking it for the current device takes long
    return make, cupy.cuda.Stream(non_blocking=True) if own_stream else contextlib.nullcontext()


def seconds_of(make, requests):
    began = time.perf_counter()
    for _ in range(requests // 2):
        make()
    kept = [make() for _ in range(ALIVE)]
    for request in range(requests // 2):
        kept[request * 7919 % ALIVE] = make()
    return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--framework", choices=["torch", "cupy"], default="torch")
    parser.add_argument("--stream", choices=["default", "own"], default="default")
    parser.add_argument("--manager", default="native")
    parser.add_argument("--requests", type=int, default=400000)
    options = parser.parse_args()
    if options.manager != "native":
        import importlib

        import emmctl
        importlib.import_module("emmctl." + options.framework).use(options.manager)
    make, stream = {"torch": of_torch, "cupy": of_cupy}[options.framework](options.stream == "own")
    with stream:
        seconds_of(make, 2 * ALIVE)
        seconds = seconds_of(make, options.requests)
    if options.manager != "native":
        reserved = emmctl.manager(0).state()["reserved_bytes"]
    elif options.framework == "torch":
        import torch
        reserved = torch.cuda.memory_reserved()
    else:
        import cupy
        reserved = cupy.get_default_memory_pool().total_bytes()
    print(json.dumps({"manager": options.manager, "framework": options.framework, "stream": options.stream,
                      "requests": options.requests, "seconds": seconds, "reserved_bytes": reserved}))


if __name__ == "__main__":
    main()
