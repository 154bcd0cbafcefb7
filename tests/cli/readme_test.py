#!/usr/bin/env python3
"""The examples of README.md print what it shows: readme_test.py EMMCTL ROOT

A line "    $ command" is run by bash in an empty folder that has the tree's traces; the lines below it are what it must print,
in this order, where "..." stands for any lines.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def examples(text):
    """(command, lines shown) of each example."""
    block = None
    for line in text.splitlines():
        if line.startswith("    $ "):
            block = (line[6:], [])
            yield block
        elif block is not None and line.startswith("    "):
            block[1].append(line[4:])
        elif line.strip():
            block = None


def missing(shown, printed):
    """The first shown line that is not printed where it must be; None where all are."""
    at, gap = 0, False
    for line in shown:
        line = line.rstrip()
        if line.strip() == "...":
            gap = True
        elif not line:
            continue
        else:
            found = next((i for i in range(at, len(printed)) if printed[i].rstrip() == line), None)
            if found is None or (found != at and not gap):
                return line
            at, gap = found + 1, False
    return None


def main():
    emmctl, root = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    wrong = count = 0
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(root / "traces", f"{folder}/traces")
        for command, shown in list(examples((root / "README.md").read_text())):
            done = subprocess.run(["bash", "-c", re.sub(r"\btools/emmctl\b", str(emmctl), command)], cwd=folder, capture_output=True,
                                  text=True, env=os.environ | {"TZ": "UTC", "LC_ALL": "C.UTF-8"}, timeout=500)
            printed = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            line = missing(shown, printed)
            count += 1
            if line is not None:
                wrong += 1
                print(f"README.md: $ {command}\n  does not print: {line}\n  but:\n    " + "\n    ".join(printed[:40]))
    print(f"{count} examples, {wrong} wrong")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
