"""Stands for pytest in the test of tools/numba-suite: says what became of tests that nobody runs."""
