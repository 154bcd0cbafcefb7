#!/usr/bin/env python3
"""Runs commands of the transcripts in a terminal of 80 columns: none of their lines is longer, so that no word is torn.

    eighty_columns.py --build FOLDER [--all] TRANSCRIPT...

Takes the first few commands of each transcript that answer in text, with --all each of them. A word that is longer than a line
may reach beyond it.
"""
import argparse
import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import unicodedata

from run import environment, prepare

COLUMNS, FEW = 80, 2
# What a program reads, and what ends by a key.
NOT_TEXT = re.compile(r"(^|\s)(-|completion|top|view|generate)(\s|$)|--to |[|<>;&`(]|\$(?!TRACES)")


def width(line):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def shown(command, folder, variables):
    """What a terminal would be given."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    with subprocess.Popen(["bash", "-c", command], cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        out = b""
        while True:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # nobody has it open any more
                break
            if not piece:
                break
            out += piece
        process.wait(60)
    os.close(ours)
    # A line of progress is written over.
    text = re.sub(r"[^\n]*\r\x1b\[K", "", out.decode("utf-8", "replace").replace("\r\n", "\n"))
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def is_torn(line):
    inset = len(line) - len(line.lstrip(" "))
    return width(line) > COLUMNS and " " in line[inset:COLUMNS]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("transcripts", nargs="+", type=pathlib.Path)
    given = parser.parse_args()
    torn = ran = 0
    for path in given.transcripts:
        commands = [line[2:] for line in path.read_text().splitlines() if line.startswith("$ emmctl ")]
        commands = [command for command in commands if not NOT_TEXT.search(command)]
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder) / "work"
            prepare(work)
            for command in commands if given.all else commands[:FEW]:
                ran += 1
                lines = [line for line in shown(command, work, {**environment(given.build.resolve()), "TERM": "xterm"}).split("\n") if is_torn(line)]
                torn += len(lines)
                for line in lines[:3]:
                    print(f"{path.name}: $ {command}\n  {width(line)} columns: {line}")
    if ran < 20:
        print(f"only {ran} commands were found")
    return 1 if torn or ran < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
