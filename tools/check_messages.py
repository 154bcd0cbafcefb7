#!/usr/bin/env python3
"""Every message that the program holds is shown by a transcript: lists those that none shows, and counts.

A message is a literal given to fail(Errc, "words {}"). A transcript shows it where a line has its words, with
anything at all in place of each {}, and the command's exit code below.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LITERAL = r'"(?:[^"\\]|\\.)*"'
CALL = re.compile(r"\bfail\(\s*Errc::\w+,\s*(" + LITERAL + r"(?:\s*" + LITERAL + r")*)")


def templates():
    found = {}
    for top in ("src", "managers"):
        for path in sorted((ROOT / top).rglob("*.[ch]pp")):
            source = path.read_text()
            for match in CALL.finditer(source):
                words = "".join(literal[1:-1] for literal in re.findall(LITERAL, match[1]))
                words = re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), words)
                where = f"{path.relative_to(ROOT)}:{source.count(chr(10), 0, match.start()) + 1}"
                found.setdefault(words, where)
    return found


def main():
    shown = "\n".join(p.read_text() for p in sorted((ROOT / "tests/golden/transcripts").glob("*.txt")))
    all_templates = templates()
    missing = 0
    for words, where in sorted(all_templates.items(), key=lambda item: item[1]):
        pattern = ".*".join(re.escape(part) for part in re.sub(r"^(\{\})+|(\{\})+$", "", words).split("{}"))
        if not re.search(pattern, shown):
            print(f"{where}: no transcript shows: {words}")
            missing += 1
    print(f"{len(all_templates)} messages, {missing} that no transcript shows")
    return 1 if missing or not all_templates else 0


if __name__ == "__main__":
    sys.exit(main())
