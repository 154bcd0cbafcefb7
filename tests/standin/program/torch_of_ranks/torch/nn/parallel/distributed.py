import torch
import torch.distributed as dist


class DistributedDataParallel:
    """What its constructor asks of other ranks, in its order."""

    def __init__(self, shapes, large):
        _verify_param_shape_across_processes(shapes)
        dist.broadcast(torch.Tensor(count=large), 0)  # the parameters


def _verify_param_shape_across_processes(shapes):
    counts = dist.all_gather(torch.Tensor([len(shapes)])).tolist()
    if counts != [len(shapes)] * dist.get_world_size():
        raise RuntimeError("ranks have different numbers of parameters: %s" % counts)
    given = torch.Tensor(shapes)
    dist.broadcast(given, 0)
    if given.tolist() != shapes:
        raise RuntimeError("the shapes appear not to match those of rank 0: %s" % given.tolist())
