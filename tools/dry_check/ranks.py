#!/usr/bin/env python3
"""Programs of PyTorch with several ranks, for tools/dry-check: ranks.py NAME [--limit BYTES], once for each rank, as torch.distributed.run
starts it.

Each rank prints one line of JSON: its rank, its peaks of reserved and of allocated bytes, and the largest segment that it has. What ranks
tell one another, such as lengths and numbers of rows, decides sizes in `objects` and `ddp`, and is checked. Where only some of them run, as
under `emmctl run --ranks`, what those tell one another is.
"""
import argparse
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False
torch.backends.cuda.enable_cudnn_sdp(False)
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
NAMED = os.environ.get("EMM_STANDIN_RANKS")  # "0,7/64"
RUNNING = [int(rank) for rank in NAMED.partition("/")[0].split(",")] if NAMED else list(range(WORLD))


class Block(nn.Module):
    """Attention and two layers, whose heads may be spread over ranks."""

    def __init__(self, width, heads, parts=1):
        super().__init__()
        self.heads = heads // parts
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.first(x)
        q, k, v = (part(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(nn.functional.gelu(self.wide(self.second(x))))


class Gpt(nn.Module):
    def __init__(self, words=8192, width=768, layers=6, length=512, parts=1):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 12, parts) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train(model, parameters, lengths, batch=8, **options):
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, **options)
    for length in lengths:
        ids = torch.zeros(batch, length, dtype=torch.long, device=DEVICE)
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1).float(), ids.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


def ddp():
    """Each rank has batches of its own length; every third step all take the longest."""
    model = nn.parallel.DistributedDataParallel(Gpt().to(DEVICE), device_ids=[DEVICE.index])
    lengths = []
    for step in range(6):
        own = 256 + 32 * ((RANK + step) % 4)
        longest = torch.tensor([own], device=DEVICE)
        dist.all_reduce(longest, op=dist.ReduceOp.MAX)
        lengths.append(int(longest.item()) if step % 3 == 2 else own)
        assert longest.item() == max(256 + 32 * ((rank + step) % 4) for rank in RUNNING), longest
    train(model, model.parameters(), lengths)


def fsdp2():
    from torch.distributed.fsdp import fully_shard
    model = Gpt(layers=8).to(DEVICE)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    train(model, model.parameters(), [512, 384, 512, 448])


def spread(model, mesh):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    for block in model.blocks:
        parallelize_module(block, mesh, {"q": ColwiseParallel(), "k": ColwiseParallel(), "v": ColwiseParallel(), "out": RowwiseParallel(),
                                         "wide": ColwiseParallel(), "narrow": RowwiseParallel()})
    return model


def tensor():
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cuda", (WORLD,))
    model = spread(Gpt(parts=WORLD).to(DEVICE), mesh)
    train(model, model.parameters(), [512, 384, 512], foreach=False)  # some parameters are spread, and some are not


def both():
    """Tensor parallel in pairs, and DDP over these."""
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cuda", (WORLD // 2, 2), mesh_dim_names=("data", "tensor"))
    model = spread(Gpt(parts=2).to(DEVICE), mesh["tensor"])
    model = nn.parallel.DistributedDataParallel(model, device_mesh=mesh["data"])
    train(model, model.parameters(), [512, 384, 512], batch=6)


def pipeline():
    """Stages of different size; each microbatch goes forward by send and receive, and its gradient back."""
    width, batch, length, microbatches = 768, 4, 512, 4
    stage = nn.Sequential(*[Block(width, 12) for _ in range(2 + RANK)]).to(DEVICE)
    is_first, is_last = RANK == 0, RANK == WORLD - 1
    optimizer = torch.optim.AdamW(stage.parameters(), lr=1e-4)
    for _ in range(3):
        kept = []
        for _ in range(microbatches):
            x = torch.zeros(batch, length, width, device=DEVICE)
            if not is_first:
                dist.recv(x, RANK - 1)
                x.requires_grad_()
            y = stage(x)
            if not is_last:
                dist.send(y.detach(), RANK + 1)
            kept.append((x, y))
        for x, y in reversed(kept):
            if is_last:
                y.square().mean().backward()
            else:
                gradient = torch.empty_like(y)
                dist.recv(gradient, RANK + 1)
                y.backward(gradient)
            if not is_first:
                dist.send(x.grad, RANK - 1)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def objects():
    """What ranks tell one another decides how much each takes."""
    def is_told(found, of):
        """Is what was gathered `of(rank)` of each rank that runs?"""
        assert [found[rank] for rank in RUNNING] == [of(rank) for rank in RUNNING], found
    told = [None] * WORLD
    dist.all_gather_object(told, {"rank": RANK, "rows": 1000 * (RANK + 1)})
    is_told([one["rows"] for one in told], lambda rank: 1000 * (rank + 1))
    plan = [{"width": 512} if RANK == 0 else None]
    dist.broadcast_object_list(plan, src=0)
    kept = [torch.zeros(one["rows"], plan[0]["width"], device=DEVICE) for one in told]
    # Rows that go to the ranks as experts get them: first how many, then these.
    sends = torch.tensor([100 * (RANK + 1) + peer for peer in range(WORLD)], device=DEVICE)
    comes = torch.empty_like(sends)
    dist.all_to_all_single(comes, sends)
    is_told(comes.tolist(), lambda rank: 100 * (rank + 1) + RANK)
    rows = torch.zeros(int(sends.sum().item()), 512, device=DEVICE)
    received = torch.empty(int(comes.sum().item()), 512, device=DEVICE)
    dist.all_to_all_single(received, rows, comes.tolist(), sends.tolist())
    kept.append(received)
    # A row of one rank each, sums, and the same in pieces.
    own = torch.arange(4, device=DEVICE) + 10 * RANK
    parts = [torch.empty_like(own) for _ in range(WORLD)]
    dist.all_gather(parts, own)
    is_told(torch.stack(parts)[:, 1].tolist(), lambda rank: 10 * rank + 1)
    piece = torch.empty(4, dtype=torch.long, device=DEVICE)
    dist.reduce_scatter_tensor(piece, torch.cat(parts))
    assert NAMED or piece.tolist() == [WORLD * (10 * RANK + i) for i in range(4)], piece
    before = (RANK - 1) % WORLD
    requests = dist.batch_isend_irecv([dist.P2POp(dist.isend, own, (RANK + 1) % WORLD), dist.P2POp(dist.irecv, piece, before)])
    for request in requests:
        request.wait()
    assert before not in RUNNING or piece.tolist() == [10 * before + i for i in range(4)], piece
    half = dist.new_group(list(range(0, WORLD, 2)))
    if RANK % 2 == 0:
        total = torch.tensor([RANK], device=DEVICE)
        dist.all_reduce(total, group=half)
        assert NAMED or total.item() == sum(range(0, WORLD, 2)), total
    dist.barrier()
    del kept


PROGRAMS = {"ddp": ddp, "fsdp2": fsdp2, "tensor": tensor, "both": both, "pipeline": pipeline, "objects": objects}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=sorted(PROGRAMS))
    parser.add_argument("--limit", type=int, help="bytes that each process may have")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.cuda.set_device(DEVICE)
    if arguments.limit:
        torch.cuda.set_per_process_memory_fraction(arguments.limit / torch.cuda.get_device_properties(DEVICE).total_memory)
    dist.init_process_group("nccl", device_id=DEVICE if arguments.name == "both" else None)
    failed = None
    try:
        PROGRAMS[arguments.name]()
        torch.cuda.synchronize()
    except torch.OutOfMemoryError as error:
        failed = str(error).splitlines()[0]
    with open("/proc/self/maps", encoding="utf-8") as maps:
        loaded = sorted({line.split()[-1] for line in maps if "libcuda.so" in line or "libcudart" in line or "libnccl" in line})
    # In one write: the ranks have one standard output.
    line = json.dumps({"rank": RANK, "reserved": torch.cuda.max_memory_reserved(), "allocated": torch.cuda.max_memory_allocated(),
                       "segment": max((one["total_size"] for one in torch.cuda.memory_snapshot()), default=0), "failed": failed, "loaded": loaded})
    os.write(1, (line + "\n").encode())
    if failed is None:
        dist.destroy_process_group()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
