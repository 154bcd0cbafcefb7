#!/usr/bin/env python3
"""emmctl top in a terminal of its own: it draws, keys move it, q ends it and the terminal is as it was.

    top_test.py EMMCTL TRACE
"""
import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time


def read_until(terminal, wanted, seconds=20):
    seen, end = b"", time.monotonic() + seconds
    while wanted not in seen and time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                seen += os.read(terminal, 1 << 16)
            except OSError:
                break
    return seen


def main():
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(LANG="C.UTF-8", TERM="xterm")
        os.execv(sys.argv[1], [sys.argv[1], "top", sys.argv[2]])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    first = read_until(terminal, b"q: end")
    before = termios.tcgetattr(terminal)
    os.write(terminal, b"g")
    begin = read_until(terminal, b"after event 0 ")
    os.write(terminal, b"\x1b[C")
    moved = read_until(terminal, b"after event 1 ")
    os.write(terminal, b"\x1b[C\x1b[C")
    together = read_until(terminal, b"after event 3 ")
    os.write(terminal, b"\x1b")
    time.sleep(0.1)
    os.write(terminal, b"[C")
    in_pieces = read_until(terminal, b"after event 4 ")
    # Another size is drawn for at once, without a key.
    if b"q: end" not in in_pieces.split(b"\x1b[H")[-1]:
        read_until(terminal, b"q: end")
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 9, 30, 0, 0))
    smaller = read_until(terminal, b"\x1b[J").split(b"\x1b[H")[-1]
    lines = [re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", line).decode().rstrip("\r") for line in smaller.split(b"\r\n")]
    os.write(terminal, b"q")
    last = read_until(terminal, b"\x1b[?1049l")
    _, status = os.waitpid(child, 0)
    wrong = [words for true, words in (
        (b"\x1b[?1049h" in first and b"q: end" in first, "it draws on another screen"),
        (b"after event 0 " in begin, "g moves to the first event"),
        (b"after event 1 " in moved, "Right moves by one"),
        (b"after event 3 " in together, "two keys that come at once are two"),
        (b"after event 4 " in in_pieces, "a key that comes in pieces is one"),
        (b"\x1b[?1049l" in last and b"\x1b[?25h" in last, "its end shows the screen and the cursor again"),
        (len(lines) <= 9 and max(map(len, lines)) <= 30, f"it fits a smaller terminal: {lines}"),
        (not before[3] & termios.ICANON, "keys are read at once"),
        (os.waitstatus_to_exitcode(status) == 0, "q ends it with exit code 0"),
    ) if not true]
    print("\n".join("FAILED: " + words for words in wrong) or "as it should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
