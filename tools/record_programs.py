"""Programs beside those of torch_check/programs.py that record_cost.py times. Each makes one run and waits for the device."""
import os


def cupy_streams(chance):
    """Arrays of 20 sizes on three streams, from CuPy's pool."""
    import cupy
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    sizes = [chance.randrange(1 << 10, 1 << 22) for _ in range(20)]
    kept = []
    for _ in range(20_000):
        with chance.choice(streams):
            array = cupy.zeros(chance.choice(sizes), dtype=cupy.uint8)
            array += 1
            kept.append(array)
        if len(kept) > 50:
            kept.pop(chance.randrange(len(kept)))
    cupy.cuda.Device().synchronize()


def cupy_without_pool(chance):
    """The same with no cache: each array is a call of the driver."""
    import cupy
    cupy.cuda.set_allocator(None)
    kept = []
    for _ in range(3_000):
        kept.append(cupy.zeros(chance.randrange(1 << 10, 1 << 22), dtype=cupy.uint8))
        if len(kept) > 50:
            kept.pop(chance.randrange(len(kept)))
    cupy.cuda.Device().synchronize()


def jax_training(chance, preallocate=False):
    """400 steps of a perceptron of three layers."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = str(preallocate).lower()
    import jax
    key = jax.random.PRNGKey(chance.randrange(1 << 30))
    widths = (512, 1024, 1024, 64)
    layers = [jax.random.normal(key, shape) * 0.02 for shape in zip(widths, widths[1:])]
    batch = jax.random.normal(key, (256, widths[0]))

    @jax.jit
    def step(layers, batch):
        def loss(layers):
            at = batch
            for layer in layers:
                at = jax.nn.relu(at @ layer)
            return (at ** 2).mean()
        return [layer - 0.01 * slope for layer, slope in zip(layers, jax.grad(loss)(layers))]

    for _ in range(400):
        layers = step(layers, batch)
    jax.block_until_ready(layers)


def jax_preallocated(chance):
    """The same, from memory that JAX takes as it begins."""
    jax_training(chance, preallocate=True)


def graphs(chance):
    """A training step captured in a CUDA graph and launched 2,000 times."""
    import torch
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 64)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(256, 512, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(batch).square().mean().backward()
        optimizer.step()

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(2_000):
        graph.replay()
    torch.cuda.synchronize()


def all_reduce(rank, count, sizes):
    import torch
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", init_method="tcp://127.0.0.1:29512", rank=rank, world_size=count)
    for size in sizes:
        torch.distributed.all_reduce(torch.ones(size, device="cuda"))
    torch.cuda.synchronize()
    torch.distributed.destroy_process_group()


def nccl(chance):
    """A process for each device; they add 300 tensors of 4 KiB to 64 MiB up."""
    import torch
    count = torch.cuda.device_count()
    torch.multiprocessing.spawn(all_reduce, (count, [chance.randrange(1 << 10, 1 << 24) for _ in range(300)]), count)


PROGRAMS = {made.__name__: made for made in (cupy_streams, cupy_without_pool, jax_training, jax_preallocated, graphs,
                                             nccl)}
