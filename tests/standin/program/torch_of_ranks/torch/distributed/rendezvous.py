import os

from torch.distributed._store import TCPStore


def rendezvous(url, timeout=600):
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    yield _create_c10d_store(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), rank, size, timeout, True), rank, size


def _create_c10d_store(hostname, port, rank, world_size, timeout, use_libuv=True):
    return TCPStore(host_name=hostname, port=port, world_size=world_size, is_master=rank == 0, timeout=timeout, multi_tenant=True, use_libuv=use_libuv)
