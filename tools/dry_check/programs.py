#!/usr/bin/env python3
"""Programs of PyTorch that tools/dry-check runs with and without a GPU: programs.py NAME [--limit BYTES] [--batch N] [--free BYTES]

Each prints one line of JSON: the peaks of reserved and of allocated bytes, the total of the device, and whether it ran out of
memory. None takes a size from a computed value, and none uses cuDNN.
"""
import argparse
import json
import sys

import torch
from torch import nn

torch.backends.cudnn.enabled = False
torch.backends.cuda.enable_cudnn_sdp(False)
DEVICE = "cuda"
BATCH = None  # of --batch; each program has its own otherwise


def train(model, inputs, loss_of, steps=4, optimizer=torch.optim.AdamW):
    model = model.to(DEVICE)
    optimizer = optimizer(model.parameters(), lr=1e-3)
    for step in range(steps):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss_of(model, *inputs(step)).backward()
        optimizer.step()


def perceptron():
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000))
    rows = BATCH or 512
    train(model, lambda step: (torch.randn(rows + 64 * step, 1024, device=DEVICE), torch.zeros(rows + 64 * step, dtype=torch.long, device=DEVICE)),
          lambda net, x, y: nn.functional.cross_entropy(net(x), y))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.first, self.second = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.asks, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.asks(self.first(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(nn.functional.gelu(self.wide(self.second(x))))


class Gpt(nn.Module):
    def __init__(self, words=8192, width=512, layers=6, length=512):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 8) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def gpt(autocast=None):
    def loss_of(net, ids):
        with torch.autocast(DEVICE, dtype=autocast or torch.bfloat16, enabled=autocast is not None):
            return nn.functional.cross_entropy(net(ids).flatten(0, 1).float(), ids.flatten())
    train(Gpt(), lambda step: (torch.zeros(BATCH or 8, 512 - 96 * (step % 3), dtype=torch.long, device=DEVICE),), loss_of, steps=5)


def lstm():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.steps, self.head = nn.Embedding(4000, 256), nn.LSTM(256, 512, 2, batch_first=True), nn.Linear(512, 4000)

        def forward(self, ids):
            return self.head(self.steps(self.words(ids))[0])
    train(Net(), lambda step: (torch.zeros(BATCH or 32, 40 + 8 * step, dtype=torch.long, device=DEVICE),),
          lambda net, ids: nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten()), optimizer=torch.optim.Adam)


class UNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        def pair(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(8, b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1), nn.SiLU())
        self.down = nn.ModuleList([pair(3, width), pair(width, 2 * width), pair(2 * width, 4 * width)])
        self.up = nn.ModuleList([pair(6 * width, 2 * width), pair(3 * width, width)])
        self.out = nn.Conv2d(width, 3, 1)

    def forward(self, x):
        kept = []
        for i, block in enumerate(self.down):
            x = block(x)
            kept.append(x)
            if i < 2:
                x = nn.functional.avg_pool2d(x, 2)
        for block, beside in zip(self.up, reversed(kept[:2])):
            x = block(torch.cat([nn.functional.interpolate(x, scale_factor=2), beside], 1))
        return self.out(x)


def unet():
    train(UNet(), lambda step: (torch.randn(BATCH or 4, 3, 128 + 32 * (step % 2), 128, device=DEVICE),),
          lambda net, x: nn.functional.mse_loss(net(x), x), steps=3)


def streams():
    """A pipeline: batches come on a stream of their own while another one computes."""
    model = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048)).to(DEVICE)
    copies = torch.cuda.Stream()
    for step in range(8):
        with torch.cuda.stream(copies):
            batch = torch.zeros(1024 + 128 * (step % 3), 2048).pin_memory().to(DEVICE, non_blocking=True)
        torch.cuda.current_stream().wait_stream(copies)
        batch.record_stream(torch.cuda.current_stream())
        model(batch).square().mean().backward()
        torch.cuda.synchronize()


TOLD = {}  # what a program tells besides

PROGRAMS = {"perceptron": perceptron, "gpt": gpt, "gpt-bf16": lambda: gpt(torch.bfloat16), "lstm": lstm, "unet": unet, "streams": streams}


def main():
    global BATCH
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=sorted(PROGRAMS))
    parser.add_argument("--limit", type=int, help="bytes that the process may have")
    parser.add_argument("--batch", type=int, help="not of streams")
    parser.add_argument("--free", type=int, help="bytes that are free on the card when it begins: the rest is taken first")
    arguments = parser.parse_args()
    BATCH = arguments.batch
    torch.manual_seed(0)
    total = torch.cuda.get_device_properties(0).total_memory
    rest = None
    if arguments.free:
        rest = torch.empty(torch.cuda.mem_get_info()[0] - arguments.free, dtype=torch.uint8, device=DEVICE)
    if arguments.limit:
        torch.cuda.set_per_process_memory_fraction(arguments.limit / total)
    failed = None
    try:
        PROGRAMS[arguments.name]()
    except torch.OutOfMemoryError as error:
        failed = str(error).splitlines()[0]
    reserved, free = torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0]
    TOLD.setdefault("others", total - free - reserved)  # the context, and what libraries and kernels have
    del rest
    with open("/proc/self/maps", encoding="utf-8") as maps:
        loaded = sorted({line.split()[-1] for line in maps if "libcuda.so" in line or "libcudart" in line})
    print(json.dumps({"reserved": torch.cuda.max_memory_reserved(), "allocated": torch.cuda.max_memory_allocated(), "total": total,
                      "failed": failed, "loaded": loaded, **TOLD}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
