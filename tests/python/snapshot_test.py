"""emmctl.torch.snapshot_on_oom() on a stand-in for what it calls of PyTorch: the snapshot is one that emmctl explains,
with the memory fraction that PyTorch's own leaves out."""
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

MIB = 1 << 20
SEGMENT = {"device": 0, "address": 1 << 40, "total_size": 40 * MIB, "stream": 0, "segment_type": "large",
           "segment_pool_id": (0, 0), "is_expandable": False,
           "blocks": [{"address": 1 << 40, "size": 40 * MIB, "requested_size": 40 * MIB, "state": "active_allocated",
                       "frames": []}]}
ROWS = [{"action": "segment_alloc", "addr": 1 << 40, "size": 40 * MIB, "stream": 0, "time_us": 1},
        {"action": "alloc", "addr": 1 << 40, "size": 40 * MIB, "stream": 0, "time_us": 2},
        {"action": "oom", "addr": 900 * MIB, "device_free": 900 * MIB, "size": 30 * MIB, "stream": 0, "time_us": 3}]


def stand_in(fails=False):
    """A torch whose snapshot is the above; `observers` are those that were attached."""
    torch = types.ModuleType("torch")
    torch.cuda = types.ModuleType("torch.cuda")
    torch.cuda.memory = types.ModuleType("torch.cuda.memory")
    torch.observers, torch.history = [], {}
    torch.cuda.memory._record_memory_history = torch.history.update

    def snapshot():
        if fails:
            raise RuntimeError("no history")
        return {"segments": [SEGMENT], "device_traces": [ROWS], "allocator_settings": {"max_split_size": -1}}

    torch.cuda.memory._snapshot = snapshot
    torch.cuda.get_per_process_memory_fraction = lambda device: 0.0625
    torch.cuda.mem_get_info = lambda device: (900 * MIB, 1024 * MIB)
    torch._C = types.SimpleNamespace(_cuda_attach_out_of_memory_observer=torch.observers.append)
    return torch


class SnapshotOnOom(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def fail_under(self, torch, *devices):
        sys.modules["torch"] = torch
        self.addCleanup(sys.modules.pop, "torch")
        import emmctl.torch
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            path = emmctl.torch.snapshot_on_oom(self.path / "oom.%p.pickle", stacks="python")
            for device in devices:
                torch.observers[0](device, 0, 0, 0)
        return pathlib.Path(path), said.getvalue()

    def test_saves_one_that_is_explained(self):
        torch = stand_in()
        path, said = self.fail_under(torch, 0, 0)
        self.assertEqual(path.name, f"oom.{os.getpid()}.pickle")
        self.assertEqual(torch.history, {"max_entries": 1_000_000, "stacks": "python"})
        self.assertEqual(said.count("emmctl explain"), 1)
        self.assertEqual([file.name for file in self.path.iterdir()], [path.name])
        done = subprocess.run([os.environ["EMMCTL"], "explain", path, "--json", "-"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, check=True)
        answer = json.loads(done.stdout)
        self.assertEqual(answer["failures"][0]["cause"], "limit")
        self.assertTrue(answer["remedies"])
        done = subprocess.run([os.environ["EMMCTL"], "replay", path, "--manager", "pytorch", "--device", "sim", "--json",
                               "-"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        answer = json.loads(done.stdout)
        self.assertEqual(answer["manager"], "pytorch:fraction=0.0625,total=1073741824")
        self.assertEqual(answer["outcomes"]["fails_fails"], 1)

    def test_saves_one_for_each_device(self):
        path, _ = self.fail_under(stand_in(), 0, 3)
        self.assertEqual(sorted(file.name for file in self.path.iterdir()),
                         sorted([path.name, f"{path.stem}.3.pickle"]))

    def test_says_why_there_is_none(self):
        path, said = self.fail_under(stand_in(fails=True), 0)
        self.assertEqual(said, "emmctl: no snapshot: no history\n")
        self.assertFalse(path.exists())


if __name__ == "__main__":
    unittest.main()
