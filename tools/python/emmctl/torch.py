"""PyTorch's device memory from emmctl's managers, as its pluggable allocator.

    emmctl.torch.use("pool:max=8GiB")     # before PyTorch's first use of a device

What PyTorch itself refuses with any pluggable allocator: torch.cuda.memory_stats() and memory_allocated() (stats() here
answers), memory snapshots (emmctl.record does), cuDNN's benchmark mode. No memory is a RuntimeError that begins with
"CUDA out of memory".
"""
from emmctl import _library, _manager, _recorder

# PyTorch's setter of each function; those that a version does not have are left out.
_SETTERS = {
    "set_reset_fn": "emm_torch_reset",
    "set_memory_fraction_fn": "emm_torch_memory_fraction",
    "set_base_alloc_fn": "emm_torch_base_alloc",
    "set_record_stream_fn": "emm_torch_record_stream",
    "set_begin_allocate_to_pool": "emm_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "emm_torch_end_allocate_to_pool",
    "set_release_pool": "emm_torch_release_pool",
}

_in_use = False


def allocator():
    """A torch.cuda.memory.CUDAPluggableAllocator with all that the library offers."""
    import torch
    library = _library.library()
    made = torch.cuda.memory.CUDAPluggableAllocator(library.path, "emm_torch_alloc", "emm_torch_free")
    for setter, function in _SETTERS.items():
        take = getattr(made.allocator(), setter, None)
        if take is not None:
            take(library.address_of(function))
    return made


def use(spec=None):
    """Makes PyTorch's memory come from the manager `spec`, "NAME" or "NAME:key=value,...". Without a spec: what another
    framework of this process uses, else EMM_MEMORY_MANAGER, else "pool". Returns the spec."""
    spec = _manager.use(spec)
    import torch
    torch.cuda.memory.change_current_allocator(allocator())
    global _in_use
    _in_use = True
    _recorder.record_shared()
    return spec


def in_use():
    """Whether PyTorch's memory comes from here."""
    return _in_use


def stats(device=0):
    """The manager's figures: bytes "allocated" to this process's frameworks, bytes "reserved" of the device, and the
    number of "wrong_frees" of any kind."""
    manager = _manager.manager(device)
    state, counted = manager.state(), manager.statistics()
    return {"allocated": state["live_bytes"], "reserved": state["reserved_bytes"],
            "largest_free": state["largest_free_bytes"],
            "wrong_frees": sum(count for name, count in counted.items() if name.startswith("wrong_frees."))}
