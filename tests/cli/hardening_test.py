#!/usr/bin/env python3
"""What is shipped is hardened: relocations are read-only before main(), stacks are guarded, libc's checked functions are
called, and no path of the machine that built it is inside.

    hardening_test.py SOURCE_FOLDER BUILD_FOLDER FILE...
"""
import pathlib
import re
import subprocess
import sys


def readelf(option, file):
    return subprocess.run(["readelf", "-W", option, file], stdout=subprocess.PIPE, check=True).stdout.decode()


def defects(file, folders):
    dynamic, headers, symbols = readelf("-d", file), readelf("-l", file), readelf("--dyn-syms", file)
    if not re.search(r"\bGNU_RELRO\b", headers):
        yield "no read-only relocations (GNU_RELRO)"
    if not re.search(r"\bBIND_NOW\b|\bNOW\b", dynamic):
        yield "functions are bound late, so the table of their addresses stays writable (BIND_NOW)"
    if not re.search(r"\bDYN \(", readelf("-h", file)):
        yield "not position independent"
    if "__stack_chk_fail" not in symbols:
        yield "no stack protector"
    if not re.search(r"\b__\w+_chk\b", symbols.replace("__stack_chk_fail", "")):
        yield "no checked function of libc (_FORTIFY_SOURCE)"
    if re.search(r"GNU_STACK.* RWE ", headers):
        yield "an executable stack"
    content = pathlib.Path(file).read_bytes()
    for folder in folders:
        if folder.encode() in content:
            yield f"the path {folder}"


def main():
    source, build, *files = sys.argv[1:]
    found = [f"{file}: {defect}" for file in files for defect in defects(file, (source + "/", build))]
    print("\n".join(found) or f"{len(files)} files, each hardened")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
