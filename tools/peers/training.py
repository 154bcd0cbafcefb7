"""Real PyTorch programs whose sizes vary, for tools/peers/programs: the same bits from the same steps, whatever serves their memory.

    training.py NAME [--steps N | --seconds S] [--manager SPEC] [--snapshot FILE]

It prints one line of JSON: the steps, the seconds that they took, a digest of all that was computed, and PyTorch's own figures of memory.
With --seconds it takes as many steps as fit. --snapshot records all requests with PyTorch's own recorder. --manager serves the memory from a manager of emmctl's (emmctl.torch.use).
"""
import argparse
import hashlib
import json
import random
import time

import torch
from torch import nn
from torch.nn import functional

DEVICE = "cuda"


class Attention(nn.Module):
    """Attention with fewer keys than queries, as of Llama."""

    def __init__(self, width, heads, keys):
        super().__init__()
        self.heads, self.keys, self.size = heads, keys, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * keys * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, cache=None):
        rows, length, _ = x.shape
        q = self.q(x).view(rows, length, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(x).view(rows, length, 2, self.keys, self.size).unbind(2)
        if cache is not None:
            cache[:] = [k, v] if not cache else [torch.cat((cache[0], k), 1), torch.cat((cache[1], v), 1)]
            k, v = cache
        k, v = (each.transpose(1, 2).repeat_interleave(self.heads // self.keys, 1) for each in (k, v))
        scores = (q @ k.transpose(-1, -2)) / self.size ** 0.5
        if length > 1:
            scores = scores + torch.full((length, k.shape[2]), float("-inf"), device=x.device, dtype=x.dtype).triu(1 + k.shape[2] - length)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, -1))


class Layer(nn.Module):
    def __init__(self, width, heads, keys):
        super().__init__()
        self.before, self.after = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads, keys)
        self.gate, self.up, self.down = (nn.Linear(*sides, bias=False) for sides in ((width, 3 * width), (width, 3 * width), (3 * width, width)))

    def forward(self, x, cache=None):
        x = x + self.attention(self.before(x), cache)
        y = self.after(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, width=1024, layers=12, heads=16, keys=4, vocabulary=32000):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, heads, keys) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, caches=None):
        x = self.words(tokens)
        for at, layer in enumerate(self.layers):
            x = layer(x, None if caches is None else caches[at])
        return self.head(self.norm(x))


def tokens_of(rows, length, choose):
    return torch.randint(0, 32000, (rows, length), generator=torch.Generator().manual_seed(choose.randrange(1 << 30))).to(DEVICE)


def trained(model, loss_of, choose):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    while True:
        loss = loss_of(model, choose)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield loss


def varying(choose):
    """A language model learns in bfloat16 from batches of any length."""
    def loss_of(net, choose):
        tokens = tokens_of(choose.choice((2, 4, 8)), choose.randrange(64, 1025), choose)
        with torch.autocast("cuda", torch.bfloat16):
            return functional.cross_entropy(net(tokens).flatten(0, 1).float(), tokens.flatten())
    return trained(Llama().to(DEVICE), loss_of, choose)


def steady(choose):
    """The same with batches of one size, as most trainings have them: each step is like the one before."""
    def loss_of(net, choose):
        tokens = tokens_of(4, 512, choose)
        with torch.autocast("cuda", torch.bfloat16):
            return functional.cross_entropy(net(tokens).flatten(0, 1).float(), tokens.flatten())
    return trained(Llama().to(DEVICE), loss_of, choose)


@torch.no_grad()
def decoded(choose, rows, prompt, answer):
    model = Llama().to(DEVICE).bfloat16().eval()
    while True:
        tokens = tokens_of(rows(), prompt(), choose)
        caches = [[] for _ in model.layers]
        for _ in range(answer()):
            tokens = model(tokens, caches)[:, -1:].argmax(-1)
        yield tokens.float().mean()


def decoding(choose):
    """Rows are decoded with caches that grow by each token; new rows come as others end."""
    return decoded(choose, lambda: choose.choice((4, 8, 16)), lambda: choose.randrange(32, 769), lambda: choose.randrange(16, 65))


def answering(choose):
    """The same with prompts and answers of one length."""
    return decoded(choose, lambda: 8, lambda: 256, lambda: 32)


def experts(choose):
    """What each expert gets depends on what a router computes."""
    class Experts(nn.Module):
        def __init__(self, width=768, count=8):
            super().__init__()
            self.first = nn.Linear(512, width)
            self.router = nn.Linear(width, count)
            self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(count))
            self.last = nn.Linear(width, 16)

        def forward(self, x):
            x = self.first(x)
            for _ in range(3):
                weight, chosen = self.router(x).softmax(-1).topk(2, -1)
                parts = torch.zeros_like(x)
                for at, expert in enumerate(self.experts):
                    rows, which = (chosen == at).nonzero(as_tuple=True)
                    added = torch.zeros_like(x)
                    added[rows] = expert(x[rows]) * weight[rows, which].unsqueeze(-1)
                    parts = parts + added
                x = x + parts
            return self.last(x)

    def loss_of(net, choose):
        x = torch.randn(choose.randrange(2000, 16000), 512, generator=torch.Generator().manual_seed(choose.randrange(1 << 30))).to(DEVICE)
        return net(x).square().mean()
    return trained(Experts().to(DEVICE), loss_of, choose)


def graphs(choose):
    """A graph network: each step has another graph, with other numbers of nodes and edges."""
    class Network(nn.Module):
        def __init__(self, width=256):
            super().__init__()
            self.first = nn.Linear(64, width)
            self.edges = nn.ModuleList(nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(4))
            self.nodes = nn.ModuleList(nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(4))
            self.last = nn.Linear(width, 1)

        def forward(self, x, sources, targets):
            x = self.first(x)
            for edge, node in zip(self.edges, self.nodes):
                messages = edge(torch.cat((x[sources], x[targets]), -1))
                gathered = torch.zeros_like(x).index_add(0, targets, messages)
                x = x + node(torch.cat((x, gathered), -1))
            return self.last(x)

    def loss_of(net, choose):
        drawn = torch.Generator().manual_seed(choose.randrange(1 << 30))
        nodes, edges = choose.randrange(2_000, 40_000), choose.randrange(20_000, 300_000)
        x = torch.randn(nodes, 64, generator=drawn).to(DEVICE)
        ends = torch.randint(0, nodes, (2, edges), generator=drawn).to(DEVICE)
        return net(x, ends[0], ends[1]).square().mean()
    return trained(Network().to(DEVICE), loss_of, choose)


def pictures(choose):
    """A U-Net learns from pictures of any size, by cuDNN's deterministic convolutions."""
    torch.backends.cudnn.deterministic = True

    def block(given, made):
        return nn.Sequential(nn.Conv2d(given, made, 3, padding=1), nn.GroupNorm(8, made), nn.ReLU(),
                             nn.Conv2d(made, made, 3, padding=1), nn.GroupNorm(8, made), nn.ReLU())

    class UNet(nn.Module):
        def __init__(self, widths=(64, 128, 256, 512)):
            super().__init__()
            self.down = nn.ModuleList(block(given, made) for given, made in zip((3, *widths), widths))
            self.wider = nn.ModuleList(nn.ConvTranspose2d(given, made, 2, 2) for given, made in zip(widths[:0:-1], widths[-2::-1]))
            self.up = nn.ModuleList(block(2 * made, made) for made in widths[-2::-1])
            self.last = nn.Conv2d(widths[0], 2, 1)

        def forward(self, x):
            kept = []
            for at, down in enumerate(self.down):
                x = down(x if at == 0 else functional.max_pool2d(x, 2))
                kept.append(x)
            kept.pop()
            for wider, up in zip(self.wider, self.up):
                x = up(torch.cat((kept.pop(), wider(x)), 1))
            return self.last(x)

    def loss_of(net, choose):
        shape = choose.randrange(2, 7), 3, 16 * choose.randrange(10, 25), 16 * choose.randrange(10, 25)
        x = torch.randn(shape, generator=torch.Generator().manual_seed(choose.randrange(1 << 30))).to(DEVICE)
        return net(x).square().mean()
    return trained(UNet().to(DEVICE), loss_of, choose)


def streams(choose):
    """Batches are brought to the device and prepared on three streams, and learnt from on a fourth."""
    model = nn.Sequential(nn.Linear(3 * 32 * 32, 2048), nn.ReLU(), *[layer for _ in range(6) for layer in (nn.Linear(2048, 2048), nn.ReLU())],
                          nn.Linear(2048, 100)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    beside = [torch.cuda.Stream() for _ in range(3)]
    ready = []

    def prepare(at):
        drawn = torch.Generator().manual_seed(choose.randrange(1 << 30))
        rows, side = choose.randrange(256, 2048), choose.choice((32, 40, 48))
        raw = torch.randint(0, 256, (rows, 3, side, side), generator=drawn, dtype=torch.uint8).pin_memory()
        with torch.cuda.stream(beside[at]):
            x = raw.to(DEVICE, non_blocking=True).float().div(255)
            x = (x - x.mean((2, 3), keepdim=True)) / (x.std((2, 3), keepdim=True) + 1e-3)
            x = functional.interpolate(x, size=(32, 32), mode="nearest").flatten(1)
            ready.append((x, beside[at].record_event(), raw))
    for at in range(3):
        prepare(at)
    step = 0
    while True:
        x, done, _ = ready.pop(0)
        torch.cuda.current_stream().wait_event(done)
        x.record_stream(torch.cuda.current_stream())
        loss = model(x).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        prepare(step % 3)
        step += 1
        yield loss


PROGRAMS = {each.__name__: each for each in (varying, steady, decoding, answering, experts, graphs, pictures, streams)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--manager")
    parser.add_argument("--snapshot")
    arguments = parser.parse_args()
    if arguments.manager:
        import emmctl.torch
        emmctl.torch.use(arguments.manager)
    if arguments.snapshot:
        torch.cuda.memory._record_memory_history(max_entries=1 << 20, stacks="python")
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True, warn_only=True)  # what is not deterministic shows in the bits
    program = PROGRAMS[arguments.name](random.Random(7))
    digest = hashlib.sha256()
    next(program)  # kernels are loaded
    torch.cuda.synchronize()
    begun, steps, losses = time.monotonic(), 0, []
    while steps < arguments.steps if arguments.steps else time.monotonic() - begun < arguments.seconds:
        losses.append(next(program).detach())
        steps += 1
        if steps % 16 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    took = time.monotonic() - begun
    digest.update(torch.stack(losses).double().cpu().numpy().tobytes())
    if arguments.snapshot:
        torch.cuda.memory._dump_snapshot(arguments.snapshot)
    memory = torch.cuda.memory_stats()
    print(json.dumps({"steps": steps, "seconds": took, "digest": digest.hexdigest(), "reserved_bytes": memory["reserved_bytes.all.peak"],
                      "allocated_bytes": memory.get("allocated_bytes.all.peak")}))


if __name__ == "__main__":
    main()
