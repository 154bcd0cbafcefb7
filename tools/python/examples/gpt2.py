"""Trains a model of GPT-2's size with PyTorch on text of varying length, over several streams, and prints a line of JSON:
what it computed (hashes), how long it took, and what it held of the device.

    gpt2.py [--manager native|NAME[:options]] [--steps 200] [--record FILE]

Deterministic: two runs on one allocator give the same hashes.
"""
import argparse
import contextlib
import hashlib
import json
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from stopwatch import Stopwatch  # noqa: E402

VOCABULARY, WIDTH, HEADS, LAYERS, LONGEST, BATCH = 50257, 768, 12, 12, 1024, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.in_projection, self.out_projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        batch, length, _ = x.shape
        query, key, value = (part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
                             for part in self.in_projection(self.before_attention(x)).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out_projection(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.before_mlp(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.blocks, self.last = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.last(x) @ self.tokens.weight.T


def batches(steps):
    generator = torch.Generator().manual_seed(7)
    for _ in range(steps):
        length = int(torch.randint(128, LONGEST + 1, (1,), generator=generator))
        yield torch.randint(VOCABULARY, (BATCH, length), generator=generator).pin_memory()


def train(steps, held):
    """Copies run a batch ahead on a stream of their own, and the loss is looked at on another."""
    torch.manual_seed(1)
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=True)
    copies, looks = torch.cuda.Stream(), torch.cuda.Stream()
    losses = []
    ahead = None
    watch = Stopwatch(torch.cuda.synchronize)
    for step, host in enumerate(list(batches(steps + 1))):
        with torch.cuda.stream(copies):
            coming = host.cuda(non_blocking=True)
        if ahead is None:
            ahead = coming
            continue
        tokens, ahead = ahead, coming
        torch.cuda.current_stream().wait_stream(copies)
        tokens.record_stream(torch.cuda.current_stream())
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        looks.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(looks):
            seen = loss.detach()
            seen.record_stream(looks)
            losses.append((seen * 2).clone())
        del logits, loss, tokens
        if step % 10 == 0:
            held.append(torch.cuda.mem_get_info()[0])
        watch.step()
        if step == 20:
            watch.start()
    watch.stop()
    held.append(torch.cuda.mem_get_info()[0])
    return watch.seconds, torch.stack(losses).cpu(), model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--manager", default="native")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--record")
    options = parser.parse_args()
    if options.manager != "native":
        import emmctl.torch
        emmctl.torch.use(options.manager)
    if options.record:
        import emmctl.record
        emmctl.record.start(options.record)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.zeros(1).cuda()
    held = [torch.cuda.mem_get_info()[0]]
    seconds, losses, model = train(options.steps, held)
    content = hashlib.sha256()
    for parameter in model.parameters():
        content.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    row = {"manager": options.manager, "seconds": seconds, "loss": float(losses[-1]) / 2,
           "losses": hashlib.sha256(losses.numpy().tobytes()).hexdigest()[:16],
           "parameters": content.hexdigest()[:16], "held_bytes": held[0] - min(held)}
    with contextlib.suppress(RuntimeError):  # of a pluggable allocator
        row["reserved_bytes"] = torch.cuda.max_memory_reserved()
    if options.manager != "native":
        row["reserved_bytes"] = emmctl.torch.stats()["reserved"]
    print(json.dumps(row))


if __name__ == "__main__":
    main()
