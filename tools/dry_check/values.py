#!/usr/bin/env python3
"""Programs of PyTorch whose sizes or whose end depend on values, for tools/dry-check: values.py NAME [--limit BYTES]

The values of KNOWN follow from what comes from the host, so that nothing may differ without a GPU; those of the others are what
a kernel computes or a generator of the device draws.
"""
import sys
import threading

import torch
from torch import nn

import programs
from programs import DEVICE, Gpt


def lengths_of(rows, longest):
    return [longest // 4 + (37 * row) % (3 * longest // 4) for row in range(rows)]


@torch.no_grad()
def decode(choose, length=160, rows=8, end=2):
    """As transformers' generate() does: each step asks the device whether all rows are finished."""
    model = Gpt(words=8192, width=256, layers=2, length=256).to(DEVICE)
    ids = torch.full((rows, 16), 5, device=DEVICE)
    unfinished = torch.ones(rows, dtype=torch.long, device=DEVICE)
    ends = torch.tensor([end], device=DEVICE)
    kept = torch.zeros(rows, 0, 256, device=DEVICE)
    finished = False
    while not finished:
        logits = model(ids)[:, -1]
        following = choose(logits) * unfinished + end * (1 - unfinished)
        ids = torch.cat([ids, following[:, None]], -1)
        kept = torch.cat([kept, model.words(following)[:, None]], 1)
        is_long = torch.full((rows,), ids.shape[1] >= length, device=DEVICE, dtype=torch.bool)
        unfinished = unfinished & ~(torch.isin(ids[:, -1], ends) | is_long)
        finished = unfinished.max() == 0


def generate():
    decode(lambda logits: logits.argmax(-1))


def sample():
    decode(lambda logits: torch.multinomial(torch.softmax(logits, -1), 1).squeeze(1))


class Experts(nn.Module):
    """Each expert gets the rows that the router sends it: nonzero of a mask."""

    def __init__(self, width=512, experts=8, chosen=2):
        super().__init__()
        self.router, self.chosen = nn.Linear(width, experts), chosen
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(experts))

    def forward(self, x):
        rows = x.flatten(0, 1)
        weights, chosen = torch.topk(torch.softmax(self.router(rows), -1), self.chosen, -1)
        mask = nn.functional.one_hot(chosen, len(self.experts)).permute(2, 1, 0)
        out = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            place, row = torch.where(mask[number])
            out.index_add_(0, row, expert(rows[row]) * weights[row, place, None])
        return out.view_as(x)


def experts():
    model = nn.Sequential(*[Experts() for _ in range(3)])
    programs.train(model, lambda step: (torch.randn(8, 256, 512, device=DEVICE),), lambda net, x: net(x).square().mean())


def masks():
    """Boolean masks of lengths that the host knows: as many rows as the lengths say."""
    lengths = torch.tensor(lengths_of(32, 256)).to(DEVICE)
    layer = nn.Linear(512, 2048).to(DEVICE)
    for step in range(4):
        x = torch.randn(32, 256, 512, device=DEVICE)
        mask = torch.arange(256, device=DEVICE)[None] < (lengths - 8 * step)[:, None]
        packed = layer(x[mask])
        back = torch.zeros(32, 256, 2048, device=DEVICE)
        back[mask] = packed
        back.masked_select(mask[..., None]).sum().backward()
        rows, _ = mask.nonzero(as_tuple=True)
        torch.zeros(int(torch.bincount(rows).max()), 4096, device=DEVICE)


def packing():
    """Sequences packed into one row: their ends, their numbers, their longest."""
    layer = nn.Linear(256, 1024).to(DEVICE)
    for step in range(4):
        lengths = torch.tensor(lengths_of(48, 128 + 32 * step)).to(DEVICE)
        ends = lengths.cumsum(0)
        numbers = torch.repeat_interleave(torch.arange(48, device=DEVICE), lengths)
        x = torch.randn(int(ends[-1]), 256, device=DEVICE, requires_grad=True)
        y = layer(x)
        padded = torch.zeros(48, int(lengths.max()), 1024, device=DEVICE)
        places = torch.arange(len(numbers), device=DEVICE) - (ends - lengths)[numbers]
        padded = padded.index_put((numbers, places), y)
        ids, counts = torch.unique_consecutive(numbers, return_counts=True)
        assert ids.shape[0] == 48 and int(counts.max()) == int(lengths.max())
        padded.square().mean().backward()


def until():
    """A loop that asks the device whether all are done."""
    lengths = torch.tensor(lengths_of(16, 64), device=DEVICE)
    steps = torch.zeros_like(lengths)
    done = torch.zeros(16, dtype=torch.bool, device=DEVICE)
    layer, kept = nn.Linear(1024, 1024).to(DEVICE), []
    while not done.all():
        steps[~done] += 1
        done |= steps >= lengths
        kept.append(layer(torch.randn(int((~done).sum()) + 1, 1024, device=DEVICE)))


def sparse():
    """A sparse gradient has as many rows as indices differ."""
    model = nn.EmbeddingBag(20_000, 128, sparse=True, mode="sum")
    programs.train(model, lambda step: (torch.randint(0, 20_000, (2048, 8), device=DEVICE),), lambda net, ids: net(ids).square().mean(),
                   optimizer=lambda parameters, lr: torch.optim.SGD(parameters, lr))


def indices():
    """Indices that the host knows, of which many are the same."""
    table = torch.zeros(50_000, 256, device=DEVICE)
    for step in range(4):
        ids = torch.tensor([(step * 7919 + i * i) % (9000 + 500 * step) for i in range(16_384)]).to(DEVICE)
        distinct, inverse = torch.unique(ids, return_inverse=True)
        rows = table[distinct].requires_grad_()
        rows[inverse].square().mean().backward()


def scaled():
    """A gradient scaler, an optimizer that counts on the device, and a clipped norm."""
    model = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    scaler = torch.amp.GradScaler(DEVICE)
    for _ in range(6):
        with torch.autocast(DEVICE, dtype=torch.float16):
            loss = model(torch.randn(512, 1024, device=DEVICE)).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        loss.item()


def threads():
    """A thread of the program's own asks, too."""
    failed = []

    def work():
        try:
            masks()
        except Exception as error:
            failed.append(error)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


class Served(nn.Module):
    """A GPT whose keys and values lie in blocks of 16 words, which requests get as they grow."""
    BLOCK = 16

    def __init__(self, model):
        super().__init__()
        self.model, self.blocks, self.cache = model, 0, None
        block = model.blocks[0]
        self.heads, self.width = block.heads, block.out.in_features // block.heads
        self.block_bytes = len(model.blocks) * 2 * self.BLOCK * block.out.in_features * model.head.weight.element_size()

    def take(self, blocks):
        self.blocks = list(range(blocks))
        self.cache = [torch.zeros(2, blocks, self.BLOCK, self.heads, self.width, dtype=self.model.head.weight.dtype, device=DEVICE)
                      for _ in self.model.blocks]

    def forward(self, ids, begin=0, table=None):
        """Words of one request behind `begin` others; without a table all lies in memory of its own, as in a profile run."""
        rows, length = ids.shape
        x = self.model.words(ids) + self.model.places(torch.arange(begin, begin + length, device=ids.device))
        for number, block in enumerate(self.model.blocks):
            q, k, v = (part.view(rows, length, self.heads, self.width) for part in block.asks(block.first(x)).chunk(3, -1))
            if table is not None:
                place = torch.arange(begin, begin + length, device=DEVICE)
                slots = table[place // self.BLOCK] * self.BLOCK + place % self.BLOCK
                for kept, new in zip(self.cache[number], (k, v)):
                    kept.view(-1, self.heads, self.width)[slots] = new[0]
                k, v = (kept[table].flatten(0, 1)[None, :begin + length] for kept in self.cache[number])
            mixed = nn.functional.scaled_dot_product_attention(*(part.transpose(1, 2) for part in (q, k, v)), is_causal=begin == 0)
            x = x + block.out(mixed.transpose(1, 2).reshape(rows, length, -1))
            x = x + block.narrow(nn.functional.gelu(block.wide(block.second(x))))
        return self.model.head(x[:, -1:])


@torch.no_grad()
def serving(share=0.9, requests=24, at_once=8):
    """An engine that asks how much memory there is, and takes the rest for its cache: after the model, and a run of the largest batch that
    it will have, of which the peak is known."""
    engine = Served(Gpt(words=8192, width=512, layers=6, length=512).half().to(DEVICE).eval())
    torch.cuda.reset_peak_memory_stats()
    engine(torch.zeros(32, 512, dtype=torch.long, device=DEVICE))
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    torch.cuda.empty_cache()
    free, whole = torch.cuda.mem_get_info()
    others = whole - free - torch.cuda.memory_reserved()  # the context, and what libraries have
    whole = int(whole * getattr(torch.cuda, "get_per_process_memory_fraction", lambda: 1.0)())
    blocks = int(whole * share - peak - others) // engine.block_bytes
    programs.TOLD.update(blocks=blocks, block_bytes=engine.block_bytes, peak_of_profile=peak, others=others)
    if blocks <= 0:
        raise torch.OutOfMemoryError("there is no room for a block")
    engine.take(blocks)
    waiting = [(16 + (37 * number) % 200, 8 + (11 * number) % 24) for number in range(requests)]  # words that come, and that are made
    running = []
    while waiting or running:
        while waiting and len(running) < at_once:
            length, more = waiting.pop(0)
            table = [engine.blocks.pop() for _ in range(-(-(length + more) // engine.BLOCK))]
            running.append([length, more, table, torch.tensor(table).to(DEVICE)])
            engine(torch.full((1, length), 5, device=DEVICE), 0, running[-1][3])
        for request in running:
            engine(torch.full((1, 1), 5, device=DEVICE), request[0], request[3])
            request[0], request[1] = request[0] + 1, request[1] - 1
        for request in [one for one in running if one[1] == 0]:
            engine.blocks.extend(request[2])
            running.remove(request)
    assert len(engine.blocks) == blocks


PROGRAMS = {"generate": generate, "sample": sample, "experts": experts, "masks": masks, "packing": packing, "until": until, "sparse": sparse,
            "indices": indices, "scaled": scaled, "threads": threads, "serving": serving}

if __name__ == "__main__":
    programs.PROGRAMS = PROGRAMS
    sys.exit(programs.main())
