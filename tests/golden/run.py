#!/usr/bin/env python3
"""Runs transcripts and compares what happened with what they say, whole.

A transcript is a file of tests/golden/transcripts. A line "$ command" is run by bash in a fresh copy of
tests/golden/inputs; what it prints, both streams, and "[exit code]" follow it. Lines before the first command
are comments. "{managers}" stands for the names of the bundled managers, "{manager lines}" for one a line.

    run.py --build FOLDER TRANSCRIPT...            compares
    run.py --build FOLDER --update TRANSCRIPT...   rewrites them
"""
import argparse
import difflib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def placeholders(build):
    """What is written in a transcript for what the program prints of all managers; so a new one changes none."""
    listed = subprocess.run([build / "bin/emmctl", "list", "managers", "--json", "-"], stdout=subprocess.PIPE, check=True)
    names = [row["manager"] for row in json.loads(listed.stdout)["rows"]]
    return {", ".join(names): "{managers}", "\n".join(names): "{manager lines}"}


def environment(build):
    """What a command of a transcript sees."""
    return {
        "PATH": ":".join([*(str(build / f) for f in ("bin", "tests/cli", "tests/emm")), "/usr/bin", "/bin"]),
        "FAKE_CUDA": str(build / "tests/fake_cuda"),
        "LIBEMM": str(build / "lib/libemm.so"),
        "PLUGINS": str(build / "tests/plugins"),
        "LD_LIBRARY_PATH": str(build / "tests/fake_cuda/none"),  # no driver, also where there is one
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "HOME": "/nonexistent",
        "TRACES": "traces",
        "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "detect_leaks=1"),
    }


def prepare(folder):
    """The folder that commands run in. Traces are a link in it: lines must not break by where a clone lies."""
    shutil.copytree(HERE / "inputs", folder)
    (folder / "traces").symlink_to(ROOT / "traces")


def run(path, build, short):
    """The transcript as it would be written today."""
    lines = path.read_text().splitlines()
    commands = [line[2:] for line in lines if line.startswith("$ ")]
    first = next((i for i, line in enumerate(lines) if line.startswith("$ ")), len(lines))
    out = lines[:first]
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder) / "work"
        prepare(work)
        for number, command in enumerate(commands):
            done = subprocess.run(["bash", "-c", command], cwd=work, env=environment(build), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
            text = done.stdout.decode("utf-8", "backslashreplace").replace(str(ROOT) + "/", "")
            for long, placeholder in short.items():
                text = text.replace(long, placeholder)
            code = done.returncode if done.returncode >= 0 else 128 - done.returncode
            if number:
                out.append("")
            out.append("$ " + command)
            out.extend(text.splitlines())
            out.append(f"[{code}]")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("transcripts", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    short = placeholders(build)
    different = 0
    for path in arguments.transcripts:
        expected, actual = path.read_text(), run(path, build, short)
        if not re.search(r"^\$ ", expected, re.M):
            print(f"{path}: no command in it")
            different += 1
        if expected == actual:
            continue
        if arguments.update:
            path.write_text(actual)
            print(f"{path}: rewritten")
            continue
        different += 1
        sys.stdout.writelines(difflib.unified_diff(expected.splitlines(True), actual.splitlines(True),
                                                   str(path), "today"))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
