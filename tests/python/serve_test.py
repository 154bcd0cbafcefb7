"""Allocators of Python's as managers of a replay: emmctl starts a Python process by libemm-python.so and asks it. The
allocators are stand-ins; their addresses are used by nobody."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

EMMCTL = os.environ["EMMCTL"]
TRACES = pathlib.Path(__file__).resolve().parent.parent.parent / "traces"


def replay(trace, name, *options, **variables):
    with tempfile.TemporaryDirectory() as folder:
        said = pathlib.Path(folder) / "replay.json"
        done = subprocess.run([EMMCTL, "replay", str(trace), "--manager", "python:name=" + name, "--device", "sim",
                               "--json", str(said), *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              universal_newlines=True, env=dict(os.environ, **variables))
        return done.returncode, json.loads(said.read_text()) if said.exists() else None, done.stdout


def trace_of(folder, *operations):
    path = pathlib.Path(folder) / "trace.jsonl"
    rows = [{"format": "emmctl-trace", "version": "1.0"}, *operations, {"op": "end"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class ServedByPython(unittest.TestCase):
    def test_cupys_pool_and_torchs_allocator_and_any_class_serve_a_trace(self):
        for name in ("torch", "cupy", "served_allocator.Bump"):
            with self.subTest(name=name):
                code, summary, said = replay(TRACES / "basics" / "pool_reuse.json", name)
                self.assertEqual(code, 0, said)
                self.assertEqual((summary["allocs"], summary["frees"], summary["failures"]), (5, 5, 0))
                self.assertIn("python: reserved_bytes: 0 current, 41943040 peak", said)

    def test_no_memory_is_out_of_memory_with_its_words(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = trace_of(folder, {"op": "memalloc", "id": 1, "size": 65 << 20})
            code, summary, said = replay(trace, "served_allocator.Bump")
        self.assertEqual(code, 1)
        self.assertEqual(summary["first_failure"]["outcome"], "oom")
        self.assertIn("MemoryError: no 68157440 bytes", said)

    def test_what_is_not_served_is_not_supported(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = trace_of(folder, {"op": "memalloc", "id": 1, "size": 7}, {"op": "memhostalloc", "id": 2, "size": 8},
                             {"op": "memalloc", "id": 3, "size": 8})
            code, _, said = replay(trace, "served_allocator.Bump")
        self.assertEqual(code, 0, said)

    def test_reset_and_memory_info_reach_the_allocator(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = trace_of(folder, {"op": "memalloc", "id": 1, "size": 60 << 20}, {"op": "reset"},
                             {"op": "memalloc", "id": 2, "size": 60 << 20},
                             {"op": "get_memory_info", "expect": {"free_at_least": 4 << 20, "free_at_most": 4 << 20}},
                             {"op": "free", "id": 1}, {"op": "free", "id": 2})
            code, _, said = replay(trace, "served_allocator.Bump")
        self.assertEqual(code, 0, said)

    def test_a_process_that_ends_is_a_failure_of_the_call(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = trace_of(folder, {"op": "memalloc", "id": 1, "size": 13}, {"op": "memalloc", "id": 2, "size": 64})
            code, _, said = replay(trace, "served_allocator.Bump")
        self.assertEqual(code, 1)
        self.assertIn("the Python process has ended", said)

    def test_an_allocator_that_is_not_there_is_said(self):
        code, _, said = replay(TRACES / "basics" / "pool_reuse.json", "rmm-pool")
        self.assertNotEqual(code, 0)
        self.assertIn("No module named 'rmm'", said)

    def test_what_cannot_be_started_or_is_not_known_is_said(self):
        trace = TRACES / "basics" / "pool_reuse.json"
        for name, words, variables in (
                ("nosuch", "no allocator 'nosuch': expected one of torch, cupy, cupy-async, rmm-pool,", {}),
                ("rmm-nosuch", "no allocator 'rmm-nosuch'", {}), ("torch,other=1", "the options are 'name=torch,other=1'", {}),
                ("torch", "/nowhere/python cannot be started; EMM_PYTHON names another", {"EMM_PYTHON": "/nowhere/python"})):
            with self.subTest(name=name):
                code, _, said = replay(trace, name, **variables)
                self.assertNotEqual(code, 0)
                self.assertIn(words, said)

    def test_memory_of_no_size_is_given_back_too(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = trace_of(folder, {"op": "memalloc", "id": 1, "size": 0}, {"op": "free", "id": 1},
                             {"op": "memalloc", "id": 2, "size": 0}, {"op": "free", "id": 2})
            code, _, said = replay(trace, "served_allocator.OneOfNoSize")
        self.assertEqual(code, 0, said)


if __name__ == "__main__":
    unittest.main()
