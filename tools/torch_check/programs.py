"""The programs of tools/torch-check, each the same from its seed on whatever it runs.

    programs.py NAME [--snapshot FILE] [--limit BYTES] [--pool SPEC]

It prints one line of JSON: `passed`, or why not, and PyTorch's own figures. Exit codes: 0 the program ended; 3 it ran out of memory.
Convolutions are computed without cuDNN, which would choose another algorithm where memory is short.
"""
import argparse
import fcntl
import json
import math
import pickle
import random
import sys
import time

import torch
from torch import nn

DEVICE = "cuda"
MIB = 1 << 20


def language_model(width, layers, heads, vocabulary, longest):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(vocabulary, width)
            self.places = nn.Embedding(longest, width)
            layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
            self.head = nn.Linear(width, vocabulary)

        def forward(self, tokens):
            places = torch.arange(tokens.shape[1], device=tokens.device)
            return self.head(self.body(self.words(tokens) + self.places(places)))
    return Model().to(DEVICE)


def train_on(model, batches, vocabulary, step=torch.optim.AdamW):
    optimizer = step(model.parameters(), lr=1e-4)
    for batch, length in batches:
        tokens = torch.randint(vocabulary, (batch, length), device=DEVICE)
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


def gpt(choose):
    """A language model learns from batches of any length up to 1024."""
    model = language_model(768, 6, 12, 32000, 1024)
    train_on(model, [(choose.choice((2, 4, 6)), choose.randrange(64, 1025, 8)) for _ in range(25)], 32000)


def growing(choose):
    """The same, and the batches grow longer from step to step: what is cached is always a little too small."""
    model = language_model(512, 4, 8, 16000, 2048)
    train_on(model, [(4, 256 + 64 * step) for step in range(24)], 16000)


def accumulate(choose):
    """Gradients of several batches are added up before a step of SGD; every third batch is judged without gradients."""
    model = language_model(512, 6, 8, 8000, 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for step in range(30):
        tokens = torch.randint(8000, (choose.randrange(1, 9), choose.randrange(32, 513)), device=DEVICE)
        with torch.set_grad_enabled(step % 3 != 2):
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            if step % 3 != 2:
                loss.backward()
        if step % 6 == 5:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


def generate(choose):
    """Serving: keys and values of each request grow by a token a step, requests come and go."""
    layers, heads, size = 8, 16, 64
    weights = [torch.randn(heads * size, 3 * heads * size, device=DEVICE, dtype=torch.float16) for _ in range(layers)]
    requests = {}
    for step in range(160):
        if len(requests) < 12 and step % 3 == 0:
            length = choose.randrange(64, 2000)
            requests[step] = [length + choose.randrange(20, 300),
                              [torch.randn(2, heads, length, size, device=DEVICE, dtype=torch.float16)
                               for _ in range(layers)]]
        for name in list(requests):
            end, cache = requests[name]
            x = torch.randn(1, heads * size, device=DEVICE, dtype=torch.float16)
            for layer in range(layers):
                q, k, v = (x @ weights[layer]).view(3, heads, 1, size)
                cache[layer] = torch.cat((cache[layer], torch.stack((k, v))), 2)
                keys, values = cache[layer]
                x = ((q @ keys.transpose(1, 2) / math.sqrt(size)).softmax(-1) @ values).reshape(1, -1)
            if cache[0].shape[2] >= end:
                del requests[name]


def perceptron(choose):
    """A wide multilayer perceptron with Adam, with batches that vary."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(6))).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(40):
        x = torch.randn(choose.randrange(100, 20000), 4096, device=DEVICE)
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()


def churn(choose):
    """Tensors of any size come and go, as in a simulation with refinement."""
    alive = []
    for _ in range(3000):
        while len(alive) > 60 or alive and choose.random() < 0.45:
            del alive[choose.randrange(len(alive))]
        size = int(2 ** choose.uniform(9, 26.5))
        alive.append(torch.empty(size, dtype=torch.uint8, device=DEVICE))


def pictures(choose):
    """A small residual network learns from pictures of several sizes; convolutions as matrix products."""
    def block(width):
        return nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 64, 7, 2, 3)
            self.blocks = nn.ModuleList(block(64) for _ in range(8))
            self.head = nn.Linear(64, 100)

        def forward(self, x):
            x = self.first(x)
            for one in self.blocks:
                x = x + one(x)
            return self.head(x.mean((2, 3)))

    model = Model().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for _ in range(20):
        side = choose.choice((96, 128, 160, 192, 224))
        x = torch.randn(choose.randrange(8, 33), 3, side, side, device=DEVICE)
        optimizer.zero_grad(set_to_none=True)
        model(x).logsumexp(1).mean().backward()
        optimizer.step()


def retrieval(choose):
    """Distances of queries to a table, the nearest sorted out: temporary memory of many sizes."""
    table = torch.randn(200_000, 128, device=DEVICE)
    kept = []
    for _ in range(40):
        queries = torch.randn(choose.randrange(16, 700), 128, device=DEVICE)
        distances = torch.cdist(queries, table)
        values, places = distances.topk(choose.randrange(10, 200), largest=False)
        kept.append((values.clone(), table[places[:, :8]].mean(1)))
        if len(kept) > 12:
            kept.pop(choose.randrange(len(kept)))
        del distances


PROGRAMS = {each.__name__: each for each in (gpt, growing, accumulate, generate, perceptron, churn, pictures, retrieval)}


def fraction_of(limit, total):
    """The fraction by which PyTorch computes exactly `limit` bytes of `total`."""
    fraction = limit / total
    while int(fraction * total) < limit:
        fraction = math.nextafter(fraction, 2)
    while int(fraction * total) > limit:
        fraction = math.nextafter(fraction, 0)
    return fraction


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--snapshot")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--pool")
    parser.add_argument("--alone", help="a file: of the programs that are given the same one, only one runs at a time")
    arguments = parser.parse_args()
    random.seed(1)
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    if arguments.snapshot:
        torch.cuda.memory._record_memory_history(max_entries=4_000_000, stacks="python", context="alloc")
    if arguments.pool:
        import emmctl.torch
        emmctl.torch.use(arguments.pool)
    elif arguments.limit:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(fraction_of(arguments.limit, total))
    torch.manual_seed(1)
    answer, code = {"passed": True}, 0
    turn = open(arguments.alone, "w") if arguments.alone else None
    if turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
    started = time.monotonic()
    try:
        PROGRAMS[arguments.name](random.Random(1))
        torch.cuda.synchronize()
        answer["seconds"] = time.monotonic() - started
    except (torch.cuda.OutOfMemoryError, RuntimeError) as error:
        if "out of memory" not in str(error):
            raise
        answer, code = {"passed": False, "why": str(error).split(". ")[0]}, 3
    if turn:
        turn.close()
    if not arguments.pool:
        stats = torch.cuda.memory_stats()
        answer["reserved"] = stats["reserved_bytes.all.peak"]
        answer["allocated"] = stats["allocated_bytes.all.peak"]
        answer["retries"] = stats["num_alloc_retries"]
    if arguments.snapshot:
        with open(arguments.snapshot, "wb") as file:
            pickle.dump(torch.cuda.memory._snapshot(), file)
    print(json.dumps(answer))
    sys.exit(code)


if __name__ == "__main__":
    main()
