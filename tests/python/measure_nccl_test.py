"""tools/measure-nccl without GPUs: its rows are such as the table has, its processes are started and heard, and it says where it cannot measure."""
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOOL = ROOT / "tools/measure-nccl"
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("measure_nccl", str(TOOL))
tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("measure_nccl", loader))
loader.exec_module(tool)

# A PyTorch whose cards have 64 MiB, of which a communicator takes 5 MiB when it is made, each rank's first use its number of MiB and 2 more,
# and a further group 3 MiB.
TORCH = """
import os, sys, types
MIB = 1 << 20
used = 0
rank = int(os.environ.get("RANK", 0))
def take(mib):
    global used
    used += mib * MIB
cuda = types.SimpleNamespace(set_device=lambda _: None, synchronize=lambda: None, mem_get_info=lambda: (64 * MIB - used - 8 * MIB, 64 * MIB),
    memory_reserved=lambda: 8 * MIB, get_device_name=lambda: "Some Card", device_count=lambda: 2, nccl=types.SimpleNamespace(version=lambda: (2, 28, 9)))
__version__ = "2.11"
ones = lambda size, device: list(range(16))
empty = lambda size, device: []
device = lambda kind, index: (kind, index)
distributed = types.ModuleType("torch.distributed")
class Store:
    def __init__(self, *_): pass
    set = lambda *_: None
    wait = lambda *_: None
groups = []
def use(*_, group=None, **__):
    if group not in groups:
        groups.append(group)
        take(3 if group else rank + 2)
    if os.environ.get("FAILS") and rank == 1: sys.exit(1)
distributed.__dict__.update(TCPStore=Store, PrefixStore=lambda *_: None, is_nccl_available=lambda: True, new_group=lambda *_, **__: "further",
    init_process_group=lambda *_, **more: take(5 if "device_id" in more else 0), all_reduce=use, all_gather_into_tensor=use, reduce_scatter_tensor=use,
    send=use, recv=use, destroy_process_group=lambda: None)
sys.modules["torch.distributed"] = distributed
"""


class MeasureNccl(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "torch.py").write_text(TORCH)

    def run_tool(self, *words, path=None, **more):
        return subprocess.run([sys.executable, TOOL, *words], text=True, capture_output=True,
                              env={**os.environ, "PYTHONPATH": str(path or self.folder), **more})

    def test_rows(self):
        done = self.run_tool("--channels", "0,4", "-o", str(self.folder / "rows"))
        self.assertEqual(done.returncode, 0, done.stderr)
        source = '"2 of Some Card, NCCL 2.28.9, PyTorch 2.11"'
        rows = ["EMM_NCCL_MEMORY(\"h200\", 2, %d, %s, %s, 3'145'728, %s)" % (channels, use, first, source)
                for use, first in (("kCollectives", "8'388'608"), ("kSends", "3'145'728")) for channels in (0, 4)]
        self.assertEqual(done.stdout.splitlines(), rows)
        self.assertEqual((self.folder / "rows").read_text().splitlines(), rows)
        self.assertIn("2 ranks, NCCL's own channels, collectives: ncclCommInitRank 5.00 MiB, with the first use 8.00 MiB, a further communicator 3.00 MiB; "
                      "the ranks differ by 1.00 MiB", done.stderr)

    def test_the_table_has_such_rows(self):
        form = re.compile(r"""EMM_NCCL_MEMORY\("[a-z0-9-]+", \d+, \d+, (kCollectives|kSends), [\d']+, [\d']+, "[^"]+"\)""")
        table = [line for line in (ROOT / "src/inside/commands/nccl_memory.def").read_text().splitlines() if not line.startswith("//")]
        self.assertTrue(table)
        for line in table:
            self.assertRegex(line, form)

    def test_a_rank_that_fails(self):
        done = self.run_tool("--channels", "0", FAILS="1")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("2 ranks, 0 channels, sends: a process failed", done.stderr)

    def test_without_pytorch_nothing_is_measured(self):
        (self.folder / "none").mkdir()
        (self.folder / "none/torch.py").write_text("raise ImportError('no PyTorch here')")
        done = self.run_tool(path=self.folder / "none")
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertIn("expected PyTorch with NCCL and two GPUs: ImportError: no PyTorch here", done.stderr)


if __name__ == "__main__":
    unittest.main()
