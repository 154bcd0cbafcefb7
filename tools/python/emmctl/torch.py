"""PyTorch's device memory from emmctl's managers, as its pluggable allocator.

    emmctl.torch.use("pool:max=8GiB")     # before PyTorch's first use of a device

PyTorch itself refuses some questions with any pluggable allocator. torch.cuda.memory_stats() and the functions that are made
of it are answered from the manager's own figures (_torch_figures has what and how); what cannot be had is said when it is
asked for. No memory is a RuntimeError that begins with "CUDA out of memory".
"""
from emmctl import _library, _manager, _recorder, _torch_figures

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
    _torch_figures.answer(torch)
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


def snapshot_on_oom(path="oom.%p.pickle", max_entries=1_000_000, **history):
    """Saves a memory snapshot where PyTorch runs out of device memory, the first time on each device:

        emmctl.torch.snapshot_on_oom()      # before the first allocation
        emmctl explain oom.4711.pickle      # what was there, and what would have served the request

    `%p` in `path` is the process's number; a second device's snapshot has its number before the suffix. `max_entries` is
    how many of the last events are kept; `history` goes to torch.cuda.memory._record_memory_history() (stacks="python" is
    cheap). The snapshot also holds what PyTorch's own leaves out: the memory fraction and the device's total. Returns the
    path. What cannot be saved is said on stderr; the program's own error is not touched."""
    import os
    import pickle
    import shlex
    import sys
    import torch

    path = os.fspath(path).replace("%p", str(os.getpid()))
    torch.cuda.memory._record_memory_history(max_entries=max_entries, **history)
    saved = set()

    def save(device, *_):
        if device in saved:
            return
        saved.add(device)
        stem, suffix = os.path.splitext(path)
        to = path if len(saved) == 1 else f"{stem}.{device}{suffix}"
        try:
            snapshot = torch.cuda.memory._snapshot()
            settings = snapshot.setdefault("allocator_settings", {})
            fraction = getattr(torch.cuda, "get_per_process_memory_fraction", None)
            if fraction is not None:
                settings["emmctl_memory_fraction"] = float(fraction(device))
            settings["emmctl_device_total"] = int(torch.cuda.mem_get_info(device)[1])
            with open(to + ".part", "wb") as file:
                pickle.dump(snapshot, file)
            os.replace(to + ".part", to)
            print(f"emmctl: out of memory; the snapshot is {to}; next: emmctl explain {shlex.quote(to)}", file=sys.stderr)
        except Exception as error:  # The program's own error is the one that counts.
            print(f"emmctl: no snapshot: {error}", file=sys.stderr)

    torch._C._cuda_attach_out_of_memory_observer(save)
    return path
