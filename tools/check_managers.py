#!/usr/bin/env python3
"""Prints file:line of each list of all bundled managers outside managers/: a new manager would have to be added there.
What needs them all asks the registry: bundled_managers(), `emmctl list managers --json`, {managers} in a transcript."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
KINDS = {".cpp", ".hpp", ".c", ".h", ".py", ".sh", ".txt", ".cmake", ".yml"}
WINDOW = 4  # lines that a list by hand may take


def main():
    listed = (ROOT / "managers/CMakeLists.txt").read_text().split("bundled_managers\n")[1].split(")")[0].split()
    words = [re.compile(rf"(?<![\w/-]){name}(?![\w(.-])") for name in listed if name != "default"]
    found = 0
    for top in ("src", "tests", "tools"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix not in KINDS or not path.is_file():
                continue
            lines = path.read_text(errors="replace").splitlines()
            for at in range(len(lines)):
                window = "\n".join(lines[at:at + WINDOW])
                if words[0].search(lines[at]) and all(word.search(window) for word in words):
                    print(f"{path.relative_to(ROOT)}:{at + 1}: lists all bundled managers: ask the registry")
                    found += 1
    return 1 if found or len(words) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
