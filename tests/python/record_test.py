"""Traces that emmctl.record leaves: whole, in order, and replayed as they were recorded. Of Numba (Debian's, a real one)
on the stand-in for libcuda.so.1, of CuPy and PyTorch through stand-ins for their entry points."""
import json
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

EMMCTL = os.environ["EMMCTL"]
KIB, MIB = 1 << 10, 1 << 20
CALL = re.compile(r"(mem_alloc|mem_alloc_managed|mem_free|mem_host_alloc|mem_free_host|mem_host_register|"
                  r"mem_host_unregister|ipc_get_mem_handle)\((.*)")


def have_numba():
    return subprocess.call([sys.executable, "-c", "import numba.cuda"], stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL) == 0


def calls_of(log):
    """The driver calls that change memory, with addresses by the order in which they first came."""
    names = {}
    return [re.sub("0x[0-9a-f]+", lambda m: "#%d" % names.setdefault(m.group(), len(names) + 1), line)
            for line in log.read_text().splitlines() if CALL.match(line)]


class Recording(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="emmctl-record-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_program(self, *command, **variables):
        done = subprocess.run([str(c) for c in command], env=dict(os.environ, **variables), cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def python(self, program, *arguments, **variables):
        return self.run_program(sys.executable, "-c", program, *arguments, **variables)

    def replay(self, trace, manager, **variables):
        """The replay's own summary; it must find nothing wrong."""
        self.run_program(EMMCTL, "replay", trace, "--manager", manager, "--json", "replay.json", "--device",
                         "cuda" if variables else "sim", **variables)
        return json.loads((self.folder / "replay.json").read_text())

    def operations(self, trace):
        said = self.run_program(EMMCTL, "check", trace)
        self.assertIn(" 0 errors, ", said)
        self.assertEqual([line for line in said.splitlines() if "warning: " in line and "never freed" not in line], [])
        rows = [json.loads(line) for line in (self.folder / trace).read_text().splitlines()]
        self.assertEqual(rows[-1]["op"], "end")
        self.assertEqual(rows[-1]["lost"], 0)
        return rows[1:-1]


SESSION = """
import gc, sys
import numba_session as session
from numba import cuda
import emmctl.record
if "emmctl" in sys.argv[1:]:
    import emmctl.numba
    emmctl.numba.use("cudart")
if "record" in sys.argv[1:]:
    emmctl.record.start("run.jsonl")
for part in (session.arrays, session.host_memory, session.streams, session.many_frees, session.large_frees,
             session.deferred, session.out_of_memory, session.reset):
    part()
    gc.collect()
"""


@unittest.skipUnless(have_numba(), "there is no Numba")
class OfNumba(Recording):
    def test_replays_to_the_same_driver_calls_and_flushes(self):
        numba_log, our_log = self.folder / "numba.log", self.folder / "emmctl.log"
        self.python(SESSION, "record", EMM_STANDIN_LOG=str(numba_log))
        rows = self.operations("run.jsonl")

        summary = self.replay("run.jsonl", "default:profile=numba", EMM_STANDIN_LOG=str(our_log))

        self.assertEqual(calls_of(our_log), calls_of(numba_log))
        recorded = [(row["count"], row["bytes"]) for row in rows if row["op"] == "flush"]
        self.assertEqual([(f["count"], f["bytes"]) for f in summary["flushes"]], recorded)
        self.assertGreaterEqual(len(recorded), 8)
        self.assertEqual(summary["outcomes"]["fails_fails"], 1)
        self.assertEqual(summary["outcomes"]["worked_fails"] + summary["outcomes"]["fails_works"], 0)

    def test_of_our_manager_replays_on_others(self):
        self.python(SESSION, "record", "emmctl")
        rows = self.operations("run.jsonl")
        kinds = {row["op"] for row in rows}
        self.assertLessEqual({"initialize", "memalloc", "memallocmanaged", "memhostalloc", "mempin", "free",
                              "defer_cleanup", "end_defer_cleanup", "reset"}, kinds)
        for manager in ("default", "async"):
            self.assertEqual(self.replay("run.jsonl", manager)["outcomes"]["fails_fails"], 1)

    def test_needs_no_line_in_the_program(self):
        program = SESSION.replace("import emmctl.record", "")
        self.python(program, NUMBA_CUDA_MEMORY_MANAGER="emmctl.record", EMM_RECORD="run-%p.jsonl",
                    EMM_RECORD_OF="emmctl.numba", EMM_MEMORY_MANAGER="cudart")
        trace = next(self.folder.glob("run-*.jsonl"))
        self.assertEqual(self.replay(trace.name, "default")["outcomes"]["fails_fails"], 1)

    def test_says_which_part_another_process_was_given(self):
        self.python("""
import numpy as np
from numba import cuda
import emmctl.record
emmctl.record.start("run.jsonl")
array = cuda.to_device(np.zeros(100, dtype=np.int64))
array[10:20].get_ipc_handle()
""")
        row = next(row for row in self.operations("run.jsonl") if row["op"] == "get_ipc_handle")
        self.assertEqual((row["id"], row["offset"], row["size"]), (1, 80, 80))
        self.replay("run.jsonl", "default")

    def test_begins_and_ends_in_the_middle_of_a_program(self):
        self.python("""
import gc
import numpy as np
from numba import cuda
import emmctl.record
before = cuda.device_array(100)
emmctl.record.start("run.jsonl")
within = cuda.device_array(200)
del before
gc.collect()
assert emmctl.record.stop() == ["run.jsonl"]
after = cuda.device_array(300)
with cuda.pinned(np.zeros(100)), cuda.mapped(np.zeros(100)):
    emmctl.record.start("again.jsonl")
    del within
    gc.collect()
    emmctl.record.stop()
""")
        def requests(trace):
            return [(row["op"], row.get("size"), row.get("preexisting")) for row in self.operations(trace)
                    if row["op"] in ("memalloc", "free")]
        self.assertEqual(requests("run.jsonl"), [("memalloc", 800, True), ("memalloc", 1600, None), ("free", None, None)])
        self.replay("run.jsonl", "default")
        self.assertEqual(requests("again.jsonl"), [("memalloc", 1600, True), ("memalloc", 2400, True), ("free", None, None)])
        self.replay("again.jsonl", "default")
        header = json.loads((self.folder / "again.jsonl").read_text().splitlines()[0])
        self.assertFalse(header["complete"], "a pinned array was there, and a free was put off")


    def test_is_of_the_manager_that_numba_is_told_of_later(self):
        self.python("""
import emmctl.record, emmctl.numba
from numba import cuda
emmctl.record.start("run.jsonl")
emmctl.numba.use("pool")
array = cuda.device_array(100)
""")
        self.assertEqual([row["op"] for row in self.operations("run.jsonl")].count("memalloc"), 1)

    def test_of_what_lives_to_the_end_is_silent(self):
        for manager in ("default", "emmctl.numba"):
            said = self.python("""
from numba import cuda
import emmctl.record
emmctl.record.start("run.jsonl")
alive = [cuda.device_array(10), cuda.mapped_array(10), cuda.managed_array(10), cuda.pinned_array(10)]
alive.append(alive[0][1:3])
""", NUMBA_CUDA_MEMORY_MANAGER=manager)
            self.assertEqual(said, "")
            self.assertEqual([row["op"] for row in self.operations("run.jsonl") if row["op"] == "free"], [])

    def test_takes_sizes_of_numpy_and_leaves_what_is_no_size_to_the_manager(self):
        said = self.python("""
import ctypes
import numpy as np
from numba import cuda
import emmctl.record
emmctl.record.start("run.jsonl")
manager = cuda.current_context().memory_manager
manager.memalloc(np.int64(8))
try:
    manager.memalloc("much")
except ctypes.ArgumentError:
    pass
""")
        self.assertEqual(said, "emmctl.record: 1 operations of run.jsonl are missing\n")
        rows = [json.loads(line) for line in (self.folder / "run.jsonl").read_text().splitlines()]
        self.assertEqual([row["size"] for row in rows if row.get("op") == "memalloc"], [8])
        self.assertEqual(rows[-1]["lost"], 1)

    def test_says_that_numbas_work_is_on_the_per_thread_stream(self):
        program = "import emmctl.record; from numba import cuda; emmctl.record.start('run.jsonl'); cuda.device_array(100)"
        self.python(program, NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM="1")
        row = next(row for row in self.operations("run.jsonl") if row["op"] == "memalloc")
        self.assertEqual(row["stream"], "per_thread")

    def test_a_free_within_another_row_has_the_earlier_time(self):
        self.python("""
from numba import cuda
import emmctl.record
from emmctl import _recorder
emmctl.record.start("run.jsonl")
held = [cuda.device_array(100)]
dumps = _recorder.json.dumps
def dumps_and_collects(row, **named):
    held.clear()  # as a collection of garbage may, anywhere
    return dumps(row, **named)
_recorder.json.dumps = dumps_and_collects
again = cuda.device_array(200)
""")
        times = [row["time_ns"] for row in self.operations("run.jsonl")]
        self.assertEqual(times, sorted(times))

    def test_of_a_process_that_is_killed_has_all_rows(self):
        for count in (3, 200):
            with self.assertRaises(AssertionError):
                self.python("""
import os, signal
from numba import cuda
import emmctl.record
emmctl.record.start("run.jsonl")
for size in range(%d):
    cuda.device_array(1 + size)
os.kill(os.getpid(), signal.SIGKILL)
""" % count)
            rows = [json.loads(line) for line in (self.folder / "run.jsonl").read_text().splitlines()]
            self.assertEqual(rows[0]["format"], "emmctl-trace")
            self.assertEqual([row["size"] for row in rows[1:] if row["op"] == "memalloc"], [8 * (1 + size) for size in range(count)])
        self.replay("run.jsonl", "default")


FRAMEWORKS = """
import threading
import cupy, torch
import emmctl.record
%s
emmctl.record.start("run.jsonl")
kept = cupy.cuda.alloc(1024)
with cupy.cuda.Stream(2):
    other = cupy.cuda.alloc(2048)
try:
    cupy.cuda.alloc(1 << 30)
except MemoryError:
    pass
%s
del other
"""


class OfFrameworks(Recording):
    def setUp(self):
        super().setUp()
        stand_ins = str(pathlib.Path(__file__).resolve().parent / "stand_ins")
        os.environ["PYTHONPATH"] = stand_ins + ":" + os.environ["PYTHONPATH"]
        self.addCleanup(os.environ.__setitem__, "PYTHONPATH", os.environ["PYTHONPATH"][len(stand_ins) + 1:])

    def test_on_our_pool_is_one_trace_of_all(self):
        self.python(FRAMEWORKS % ('import emmctl.cupy, emmctl.torch; emmctl.cupy.use("pool"); emmctl.torch.use()', """
block = torch.cuda.memory.Block(4096, 0, 1)
block.record_stream(2)
thread = threading.Thread(target=lambda: torch.cuda.memory.Block(8192))
thread.start(); thread.join()
del block"""))
        rows = self.operations("run.jsonl")
        said = [(row["op"], row.get("size"), row.get("stream"), row.get("result", {}).get("outcome")) for row in rows]
        self.assertEqual(said, [
            ("memalloc", 1024, None, None), ("memalloc", 2048, "per_thread", None),
            ("memalloc", 1 << 30, None, "oom"), ("memalloc", 1 << 30, None, "oom"),  # once more after a collection
            ("memalloc", 4096, "legacy", None), ("record_stream", None, "per_thread", None),
            ("memalloc", 8192, None, None), ("free", None, None, None),
            ("free", None, "legacy", None), ("free", None, "per_thread", None)])
        self.assertEqual(len({row["thread"] for row in rows}), 2)
        for manager in ("pool", "async", "default"):
            self.replay("run.jsonl", manager)

    def test_a_child_does_not_write_to_its_parents_trace(self):
        self.python(FRAMEWORKS % ('import emmctl.cupy, emmctl.torch; emmctl.cupy.use("pool"); emmctl.torch.use()', """
import os
many = [cupy.cuda.alloc(512) for _ in range(40)]
if os.fork() == 0:
    del kept, other, many  # more than are kept back
    emmctl.record.stop()
    emmctl.record.start("child.jsonl")
    os._exit(0)
assert os.wait()[1] == 0
del many"""))
        ops = [row["op"] for row in self.operations("run.jsonl")]
        self.assertEqual((ops.count("memalloc"), ops.count("free")), (44, 41))

    def test_ends_in_the_middle_of_a_request(self):
        self.python("""
import cupy
import emmctl.record
def stopping(size):
    if size == 2048: emmctl.record.stop()
    return below(size)
import emmctl, somebodys
emmctl.use("pool")
below = somebodys.allocator()
cupy.cuda.set_allocator(stopping)
emmctl.record.start("run.jsonl")
first = cupy.cuda.alloc(1024)
second = cupy.cuda.alloc(2048)
del second
""")
        self.assertEqual([(row["op"], row.get("size")) for row in self.operations("run.jsonl")], [("memalloc", 1024)])

    def test_goes_where_the_program_was_when_it_began(self):
        self.python("""
import os, cupy, somebodys
import emmctl, emmctl.record
emmctl.use("pool")
cupy.cuda.set_allocator(somebodys.allocator())
emmctl.record.start("run.jsonl")
os.mkdir("elsewhere"); os.chdir("elsewhere")
cupy.cuda.alloc(1024)
""")
        self.assertEqual([row["op"] for row in self.operations("run.jsonl")], ["memalloc", "free"])
        self.assertEqual(os.listdir(str(self.folder / "elsewhere")), [])

    def test_that_cannot_be_written_is_refused_before_anything_is_asked(self):
        self.python("""
import cupy
import emmctl.cupy, emmctl.record
emmctl.cupy.use("pool")
for path in ("nowhere/run.jsonl", "."):
    try:
        emmctl.record.start(path)
    except OSError:
        pass
    else:
        raise AssertionError(path)
emmctl.record.start("run.jsonl")
cupy.cuda.alloc(1024)
""")
        self.assertEqual(len(self.operations("run.jsonl")), 2)

    def test_on_a_full_disk_is_no_trouble_of_the_program(self):
        for use in ("emmctl.cupy.use('pool')", "cupy.cuda.set_allocator(somebodys.allocator())"):
            said = self.python("""
import cupy, somebodys
import emmctl.cupy, emmctl.record
%s
emmctl.record.start("/dev/full")
for _ in range(100):
    assert cupy.cuda.alloc(1024).ptr
print(emmctl.record.stop())
""" % use)
            self.assertEqual(sorted(said.splitlines()), [
                "['/dev/full']", "emmctl.record: /dev/full is not whole: cannot write /dev/full: No space left on device"])

    def test_a_beginning_that_fails_leaves_nothing_behind(self):
        self.python("""
import cupy, torch
import emmctl.cupy, emmctl.record
emmctl.cupy.use("pool")
def failing(**named): raise RuntimeError("no history")
torch.cuda.memory._record_memory_history = failing
try:
    emmctl.record.start("other.jsonl")
except RuntimeError as error:
    assert "no history" in str(error)
torch.cuda.memory._record_memory_history = lambda **named: None
def dump(path): raise RuntimeError("no snapshot")
torch.cuda.memory._dump_snapshot = dump
emmctl.record.start("run.jsonl")
cupy.cuda.alloc(1024)
assert emmctl.record.stop() == ["run.jsonl"]  # of which nothing is lost by that
""")
        self.assertEqual(len(self.operations("run.jsonl")), 2)

    def test_asks_nothing_of_a_torch_that_is_built_without_cuda(self):
        self.python("""
import types, cupy, torch
torch.version = types.SimpleNamespace(cuda=None)
import emmctl.cupy, emmctl.record
emmctl.cupy.use("pool")
emmctl.record.start("run.jsonl")
cupy.cuda.alloc(1024)
assert emmctl.record.stop() == ["run.jsonl"]
""")
        self.assertEqual(len(self.operations("run.jsonl")), 2)

    def test_begun_before_the_frameworks_are_told_is_the_same(self):
        self.python("""
import cupy, torch
import emmctl.record
torch.cuda.memory._record_memory_history = lambda **named: None
emmctl.record.start("run.jsonl")
import emmctl.cupy, emmctl.torch
emmctl.torch.use("pool"); emmctl.cupy.use()
cupy.cuda.alloc(1024)
torch.cuda.memory.Block(2048)
""")
        rows = self.operations("run.jsonl")
        self.assertEqual([row.get("size") for row in rows], [1024, None, 2048, None])

    def test_around_somebody_elses_allocator(self):
        self.python(FRAMEWORKS % ("""
import emmctl, somebodys
emmctl.use("default")
cupy.cuda.set_allocator(somebodys.allocator())
def refusing(size, below=cupy.cuda.get_allocator()):
    if size > 1 << 20: raise MemoryError(size)
    return below(size)
cupy.cuda.set_allocator(refusing)
torch.cuda.memory._record_memory_history = lambda **named: None
torch.cuda.memory._dump_snapshot = lambda path: None
emmctl.record._begin_torch = lambda *arguments: None""", ""))
        rows = self.operations("run.jsonl")
        said = [(row["op"], row.get("size"), row.get("stream"), row.get("result", {}).get("outcome")) for row in rows]
        self.assertEqual(said, [("memalloc", 1024, None, None), ("memalloc", 2048, "per_thread", None),
                                ("memalloc", 1 << 30, None, "oom"), ("free", None, "per_thread", None)])
        self.replay("run.jsonl", "pool")

    def test_of_torchs_own_allocator_is_its_history(self):
        def row(action, addr, size, time):
            return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time, "frames": []}
        snapshot = {"segments": [], "device_traces": [[
            row("segment_alloc", 4096, 2 * MIB, 1), row("alloc", 4096, 512, 2), row("free_requested", 4096, 512, 3),
            row("free_completed", 4096, 512, 4), row("alloc", 4096, 1024, 5)]]}
        (self.folder / "made.pickle").write_bytes(pickle.dumps(snapshot, protocol=4))
        program = """
import shutil, torch
import emmctl.record
torch.cuda.memory._record_memory_history = lambda **named: print("history", named["enabled"])
torch.cuda.memory._dump_snapshot = lambda path: shutil.copy("made.pickle", path)
%s
"""
        self.python(program % 'emmctl.record.start("run.jsonl")')
        rows = self.operations("run.jsonl")
        requests = [(row["op"], row.get("size")) for row in rows if row.get("layer") != "backing"]
        self.assertEqual(requests, [("memalloc", 512), ("free", None), ("memalloc", 1024)])
        self.replay("run.jsonl", "pool")

        (self.folder / "v1.0").mkdir()
        self.python(program % """
import cupy
import emmctl.cupy
emmctl.cupy.use("pool")
emmctl.record.start("./v1.0/run.jsonl")
cupy.cuda.alloc(2048)
assert emmctl.record.stop() == ["./v1.0/run.jsonl", "./v1.0/run-torch.jsonl"]
""")
        self.assertEqual([row.get("size") for row in self.operations("v1.0/run.jsonl")], [2048, None])
        self.assertEqual(len(self.operations("v1.0/run-torch.jsonl")), len(rows))


if __name__ == "__main__":
    unittest.main()
