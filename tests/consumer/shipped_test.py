#!/usr/bin/env python3
"""What is shipped leads somewhere: shipped_test.py BUILD

Installs a build into an empty root. There every symbolic link and every link of a document is followed, and a program that asks for
libcuda.so or libcudart.so, with and without their versions, finds the stand-ins and gets memory.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ALLOCATE = """
import ctypes, sys
cudart = ctypes.CDLL(sys.argv[1])
place = ctypes.c_void_p()
code = cudart.cudaMalloc(ctypes.byref(place), ctypes.c_size_t(4096))
print(code, cudart.cudaFree(place) if code == 0 else None)
"""
DRIVER = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).cuInit(0), 0)"
failures = []


def run(*command, **variables):
    return subprocess.run([str(word) for word in command], env=os.environ | variables, capture_output=True, text=True, timeout=120, check=False)


def without_code(text):
    return re.sub(r"^ *```.*?^ *```|^    [^\n]*$", "", text, flags=re.M | re.S)


def documents(folder):
    seen = links = 0
    for path in sorted(folder.rglob("*.md")):
        seen += 1
        for target in re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text())):
            if re.match(r"[a-z]+:", target):
                continue
            links += 1
            name = target.partition("#")[0]
            there = (path.parent / name).resolve()
            if name and not (there.exists() and there.is_relative_to(folder.resolve())):
                failures.append(f"{path.relative_to(folder)} links {target}, which is not shipped")
    if seen < 10 or links < 50:
        failures.append(f"{seen} documents with {links} links: expected those of docs/")


def symbolic_links(root):
    for path in root.rglob("*"):
        if path.is_symlink() and not (path.exists() and path.resolve().is_relative_to(root.resolve())):
            failures.append(f"{path.relative_to(root)} leads to {os.readlink(path)}, which is not shipped")


def stand_ins(prefix):
    folder = prefix / "lib/emmctl/standin"
    for name, program in (("libcudart.so.13", ALLOCATE), ("libcudart.so", ALLOCATE), ("libcuda.so.1", DRIVER), ("libcuda.so", DRIVER)):
        done = run(sys.executable, "-c", program, name, LD_LIBRARY_PATH=str(folder))
        if done.returncode != 0 or done.stdout.strip() != "0 0":
            failures.append(f"a program that asks for {name} gets '{done.stdout.strip()}': expected '0 0'\n{done.stderr}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        done = run("cmake", "--install", sys.argv[1], "--prefix", "/usr", DESTDIR=str(root))
        if done.returncode != 0:
            print(done.stdout, done.stderr)
            return 1
        documents(root / "usr/share/doc/emmctl")
        symbolic_links(root)
        if (root / "usr/lib/emmctl/standin").exists():
            stand_ins(root / "usr")
    print("\n".join(failures))
    return 1 if failures else 0


sys.exit(main())
