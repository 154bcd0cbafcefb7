"""Stands for the package filecheck where it is not installed: tests that use it are skipped."""
