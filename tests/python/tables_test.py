"""Traces and replays as tables, and the page that a notebook shows."""
import os
import pathlib
import subprocess
import sys
import unittest

import emmctl
from emmctl import tables

ROOT = pathlib.Path(__file__).resolve().parents[2]
INPUTS = ROOT / "tests" / "golden" / "inputs"
os.environ["EMM_PROGRAM"] = os.environ["EMMCTL"]


class Load(unittest.TestCase):
    def test_a_trace_has_its_events_and_its_allocations(self):
        trace = emmctl.load(str(INPUTS / "training.jsonl"))
        self.assertEqual(trace.header["format"], "emmctl-trace")
        self.assertEqual(list(trace.allocations["size"][:2]), [4096000, 1048576])
        self.assertEqual(trace.allocations["call_site"][1], "model.py:88 forward")
        self.assertEqual(trace.allocations["end_event"][0], -1)
        self.assertEqual(max(trace.events["live_bytes"]), 5341184)

    def test_peaks_are_those_of_inspect(self):
        for name in [INPUTS / "torch_oom.pickle.gz", INPUTS / "ranks.jsonl", *sorted((ROOT / "traces/basics").glob("*.json"))]:
            trace = emmctl.load(name)
            if not trace.events.rows:
                continue
            told = emmctl.ask("inspect", trace)
            self.assertEqual(max(trace.events["live_bytes"]), told["peak_live"]["bytes"], name)
            self.assertEqual(sum(op in ("memalloc", "memallocmanaged") for op in trace.allocations["op"]), told["allocs"], name)

    def test_columns_are_arrays_where_there_is_numpy_and_lists_elsewhere(self):
        asks = ("import sys; sys.modules['numpy'] = None\nimport emmctl\n"
                "trace = emmctl.load(%r)\nprint(type(trace.events['size']).__name__, trace.events.rows)" % str(INPUTS / "training.jsonl"))
        self.assertEqual(subprocess.run([sys.executable, "-c", asks], stdout=subprocess.PIPE, check=True).stdout.decode().split()[0], "list")
        trace = emmctl.load(INPUTS / "training.jsonl")
        if tables.numpy is not None:
            self.assertEqual(trace.events["size"].dtype, tables.numpy.int64)
            structured = trace.events.to_numpy()
            self.assertEqual(len(structured), trace.events.rows)
            self.assertEqual(structured["size"].sum(), trace.events["size"].sum())

    def test_a_table_is_a_data_frame_where_there_is_pandas(self):
        try:
            import pandas
        except ImportError:
            self.skipTest("there is no pandas")
        events = emmctl.load(INPUTS / "training.jsonl").events
        self.assertEqual(len(pandas.DataFrame(events)), events.rows)
        self.assertEqual(list(events.to_pandas().columns), tables.EVENT_COLUMNS)

    def test_what_is_no_trace_is_an_error_with_the_words_of_the_program(self):
        with self.assertRaises(tables.CommandError) as caught:
            emmctl.load(__file__)
        self.assertEqual(caught.exception.code, 4)
        self.assertIn("the format is not known", str(caught.exception))


class Replay(unittest.TestCase):
    def test_a_replay_has_its_summary_and_its_log(self):
        trace = emmctl.load(INPUTS / "training.jsonl")
        run = emmctl.replay(trace, manager="pool", verify=True)
        self.assertTrue(run.served)
        self.assertEqual(run.summary["schema"], "emmctl.replay/1")
        self.assertEqual(max(run.log["reserved_bytes"]), run.summary["peak_reserved_bytes"])
        self.assertEqual(run.log.rows, run.summary["allocs"] + run.summary["frees"])

    def test_a_failure_is_an_answer(self):
        run = emmctl.replay(INPUTS / "training.jsonl", manager="cudart", capacity="4MiB")
        self.assertFalse(run.served)
        self.assertEqual(run.summary["first_failure"]["outcome"], "oom")

    def test_each_device_has_its_rows(self):
        run = emmctl.replay(ROOT / "traces/basics/several_devices.json", manager="default")
        self.assertGreater(len(set(run.log["device"])), 1)

    def test_a_wrong_option_is_an_error(self):
        with self.assertRaises(tables.CommandError) as caught:
            emmctl.replay(INPUTS / "training.jsonl", manger="pool")
        self.assertEqual(caught.exception.code, 2)
        self.assertIn("did you mean --manager", caught.exception.words)

    def test_any_command_answers_as_json(self):
        told = emmctl.ask("tune", INPUTS / "torch_oom.pickle.gz", capacity="4GiB")
        self.assertEqual(told["schema"], "emmctl.tune/1")

    def test_a_notebook_shows_the_page(self):
        shown = emmctl.load(INPUTS / "training.jsonl")._repr_html_()
        self.assertTrue(shown.startswith("<iframe sandbox"))
        self.assertIn("&lt;html", shown)
        self.assertIn("<table>", emmctl.replay(INPUTS / "training.jsonl").log._repr_html_())


if __name__ == "__main__":
    unittest.main()
