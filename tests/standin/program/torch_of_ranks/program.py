"""Ranks of a training: program.py WHAT."""
import ctypes
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def ddp():
    DistributedDataParallel([128, 64, 32], 1 << 20)
    gradient = torch.Tensor([RANK, 1])
    dist.all_reduce(gradient)
    return gradient.tolist()


def both():
    """Pairs, and those of the same place in each."""
    pairs = [dist.new_group([first, first + 1]) for first in range(0, WORLD, 2)]
    places = [dist.new_group(list(range(place, WORLD, 2))) for place in range(2)]
    pair, place = torch.Tensor([RANK]), torch.Tensor([1])
    dist.all_reduce(pair, pairs[RANK // 2])
    dist.all_reduce(place, places[RANK % 2])
    return pair.tolist() + place.tolist()


def pipeline():
    """What comes of a stage that does not run is what was there."""
    for _ in range(3):
        activations = torch.Tensor([-RANK])
        if RANK > 0:
            dist.recv(activations, RANK - 1)
        if RANK < WORLD - 1:
            dist.send(torch.Tensor([RANK]), RANK + 1)
            gradient = torch.Tensor([-RANK])
            dist.recv(gradient, RANK + 1)
        if RANK > 0:
            dist.send(torch.Tensor([100 * RANK]), RANK - 1)
    return activations.tolist() + (gradient.tolist() if RANK < WORLD - 1 else [])


def awaits():
    """A word that an absent rank would leave in the store."""
    dist.distributed_c10d._get_default_store().get("word of rank 1")


def crossed():
    """One rank waits in the store for the other, which waits in a collective for it."""
    torch.Tensor([1])
    if RANK == 0:
        dist.distributed_c10d._get_default_store().get("word of rank 1")
    dist.all_reduce(torch.Tensor([1]))


def objects():
    dist.broadcast_object_list([None], 1)


def dies():
    """Before the others can know that it is a rank of the communicator."""
    if RANK == WORLD - 1:
        os.kill(os.getpid(), 9)
    dist.all_reduce(torch.Tensor([1]))


def dies_first():
    """Before it has made the id for which the others wait."""
    if RANK == 0:
        os.kill(os.getpid(), 9)
    dist.all_reduce(torch.Tensor([1]))


def mutes():
    """Waits with Python's lock."""
    ctypes.PyDLL(None).sleep(60)


dist.init_process_group("nccl")
found = {one.__name__: one for one in (ddp, both, pipeline, awaits, crossed, objects, dies, dies_first, mutes)}[sys.argv[1]]()
os.write(1, ("rank %d: %s\n" % (RANK, found)).encode())
dist.destroy_process_group()
