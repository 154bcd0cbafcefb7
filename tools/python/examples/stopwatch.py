"""How long a script takes: all of it, or, where `compare.py --by-turns` runs two scripts at a time, its own turns alone."""
import os
import time


class Stopwatch:
    """`synchronize` waits for the device. EMM_TURNS has two file descriptors, "READ,WRITE": a byte comes for each turn,
    and one goes when the script is ready for its first and at the end of each but the last."""

    def __init__(self, synchronize):
        self._synchronize = synchronize
        turns = os.environ.get("EMM_TURNS")
        self._read, self._write = (int(each) for each in turns.split(",")) if turns else (None, None)
        self._seconds, self._began = 0.0, None

    def _let_the_other(self):
        if self._read is None:
            return
        os.write(self._write, b".")
        os.read(self._read, 1)

    def start(self):
        self._synchronize()
        self._let_the_other()
        self._began = time.perf_counter()

    def step(self):
        """The script may pause here."""
        if self._read is None or self._began is None:
            return
        self.stop()
        self._let_the_other()
        self._began = time.perf_counter()

    def stop(self):
        self._synchronize()
        self._seconds = self.seconds
        self._began = None

    @property
    def seconds(self):
        return self._seconds + (time.perf_counter() - self._began if self._began is not None else 0)
