#!/usr/bin/env python3
"""The statistics of tools/peers/paired.py on made-up rounds, and what the peers include: paired_test.py ROOT"""
import ast
import contextlib
import importlib.machinery
import importlib.util
import io
import itertools
import pathlib
import random
import shutil
import subprocess
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".") / "tools/peers"))
import paired  # noqa: E402

ROUNDS = 15


def made_up(source, cost):
    """Ratios of rounds on a busy machine: each time has noise of 3 %, each round a slow minute that both builds share, and
    one process in twenty meets a neighbour who takes up to half of the processor from it."""
    ratios = []
    for _ in range(ROUNDS):
        minute = source.uniform(1, 1.5)

        def time(base):
            neighbour = source.uniform(1, 2) if source.random() < 0.05 else 1
            return base * minute * neighbour * source.lognormvariate(0, 0.03)

        ratios.append(time(30 * cost) / time(30))
    return ratios


def lines(ns, held=1000, failed=0):
    return [{"trace": "t", "peer": "pool", "requests": 100, "ns": each, "held": held, "failed": failed} for each in ns]


class Interval(unittest.TestCase):
    def test_covers_the_truth_as_often_as_it_says(self):
        source, tries = random.Random(1), 1000

        covered = sum(low <= 1 <= high for _, low, high in (paired.interval(made_up(source, 1)) for _ in range(tries)))

        self.assertGreater(covered / tries, 0.93)
        self.assertLess(covered / tries, 0.98)

    def test_finds_five_percent_that_were_planted(self):
        source, tries = random.Random(2), 200

        found = [paired.interval(made_up(source, 1.05)) for _ in range(tries)]

        self.assertGreater(sum(low > 1 for _, low, _ in found) / tries, 0.75)
        self.assertGreater(sum(low <= 1.05 <= high for _, low, high in found) / tries, 0.92)
        self.assertAlmostEqual(sum(estimate for estimate, _, _ in found) / tries, 1.05, delta=0.01)

    def test_tail_is_that_of_every_choice_of_signs(self):
        for count in range(1, 11):
            sums = [sum(rank for rank, sign in zip(range(1, count + 1), signs) if sign)
                    for signs in itertools.product((False, True), repeat=count)]
            largest = max(k for k in range(len(sums)) if sum(each < k for each in sums) <= 0.025 * len(sums))
            self.assertEqual(paired.signed_rank_tail(count, 0.95), largest, count)

    def test_of_too_few_rounds_is_refused(self):
        with self.assertRaisesRegex(ValueError, "needs 6"):
            paired.interval([1.0] * 5)
        self.assertEqual(paired.interval([2.0] * paired.LEAST_ROUNDS), (2.0, 2.0, 2.0))

    def test_of_one_round_that_went_wrong_keeps_the_others(self):
        estimate, low, high = paired.interval([1.0 + i / 1000 for i in range(14)] + [9.0])

        self.assertLess(abs(estimate - 1.007), 0.002)
        self.assertGreater(low, 0.999)
        self.assertLess(high, 1.02)


class Judged(unittest.TestCase):
    steady = lines([30.0] * 6)

    def row(self, after, instructions=None):
        return paired.compared(self.steady, after, 1.02, instructions)

    def test_the_same_is_ok(self):
        self.assertEqual(self.row(lines([30.1] * 6))["wrong"], [])

    def test_slower_is_said(self):
        self.assertRegex(self.row(lines([31.0] * 6))["wrong"][0], "slower")

    def test_instructions_are_believed_before_the_clock(self):
        self.assertEqual(self.row(lines([40.0] * 6), [200, 201])["wrong"], [])
        self.assertRegex(self.row(lines([20.0] * 6), [200, 210])["wrong"][0], "1.050 x the instructions")

    def test_a_byte_more_and_a_refusal_more_are_said(self):
        self.assertEqual(self.row(lines([30.0] * 6, held=1001))["wrong"], ["reserves more"])
        self.assertEqual(self.row(lines([30.0] * 6, failed=1))["wrong"], ["refuses more"])

    def test_time_of_a_trace_with_refusals_is_not_judged(self):
        before, after = lines([30.0] * 6, failed=2), lines([60.0] * 6, failed=2)

        self.assertEqual(paired.compared(before, after, 1.02)["wrong"], [])

    def test_table_has_a_row_for_each_trace(self):
        row = self.row(lines([31.0] * 6, held=2000), [200, 210])
        found = {"date": "today", "device": "sim", "processors": 2, "processor": "P"}
        arguments = types.SimpleNamespace(quickest=False, bin=["a", "b"])

        text = paired.markdown([row], "valgrind", found, "tools/peers/run", arguments)

        self.assertIn("| t | pool | 30.0 | 31.0 | 1.033 | 1.033 to 1.033 | 200.0 | 210.0 | 1.050 | 1,000 B, then 2,000 B | "
                      "1.050 x the instructions, above 1.02; reserves more |", text)


HERE = pathlib.Path(paired.__file__).parent


def script(name):
    """A command of tools/peers as a module."""
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("peers_" + name, str(HERE / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class Peers(unittest.TestCase):
    def test_programs_are_those_of_training(self):
        tree = ast.parse((HERE / "training.py").read_text())
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        programs = script("programs")

        self.assertLessEqual(set(programs.PROGRAMS), functions)

    def test_a_table_says_which_bits_are_others(self):
        programs = script("programs")
        answers = {"PyTorch": {"steps": 5, "seconds": 2.0, "digest": "a", "reserved_bytes": 3 << 30, "allocated_bytes": 1 << 30},
                   "pool": {"steps": 5, "seconds": 1.0, "digest": "b", "reserved_bytes": 2 << 30, "allocated_bytes": None}}
        programs.run = lambda arguments, name, way, *more: (answers[way], "")
        said = io.StringIO()

        with contextlib.redirect_stdout(said):
            is_right = programs.check(types.SimpleNamespace(seconds=1, rounds=2, plan=False), "varying", ["PyTorch", "pool"])

        self.assertFalse(is_right)
        self.assertRegex(said.getvalue(), r"varying +pool +5 +1\.00 +0\.500 0\.500-0\.500 +2,048 +-  OTHER")

    @unittest.skipUnless(shutil.which("g++"), "no g++")
    def test_what_all_peers_include_is_found(self):
        run = script("run")

        done = subprocess.run(["g++", "-std=c++20", "-fsyntax-only", *run.INCLUDES, "-include", "tools/peers/peer_main.hpp", "-xc++", "/dev/null"],
                              capture_output=True, text=True)

        self.assertEqual(done.stderr, "")


if __name__ == "__main__":
    unittest.main()
