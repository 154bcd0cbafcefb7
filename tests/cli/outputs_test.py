#!/usr/bin/env python3
"""Every output of every command: a disk that is full is said and exits 3; no input and no other output is written over.

The outputs are what --help says: options of FILE|- and the positional OUT. A command with one that is not in COMMANDS
below fails this test.

    outputs_test.py EMMCTL TRACES
"""
import itertools
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

EMMCTL, TRACES = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
INPUT = (TRACES / "basics/pool_reuse.json").read_bytes()
FULL = "cannot write /dev/full: No space left on device"
ONE = "are one file: expected an output of its own"

# What else a command needs. "in.json" is its input; {} is where a positional OUT goes.
COMMANDS = {
    "replay": ["in.json", "--device", "sim"],
    "check": ["in.json"],
    "convert": ["in.json", "{}"],
    "inspect": ["in.json"],
    "explain": ["in.json", "--capacity", "1GiB"],
    "ranks": ["in.json", "in.json"],
    "sweep": ["-o", "swept", "--trace", "in.json", "--status"],
    "diff": ["in.json", "in.json"],
    "fit": ["in.json", "--manager", "cudart"],
    "tune": ["in.json", "--jobs", "1"],
    "minimize": ["in.json", "--capacity", "34MiB", "--manager", "cudart"],
    "compare": ["in.json", "--device", "sim", "--manager", "cudart"],
    "adversary": ["{}", "--trials", "3", "--requests", "20"],
    "generate": ["comb", "{}", "--events", "20"],
    "conformance": ["--manager", "default", "--clause", "INI-2"],
    "report": ["in.json"],
    "list": ["formats"],
    "doctor": [],
}
failures = []


def emmctl(*arguments, file_bytes_max=None):
    """In a folder of its own, with the input: the exit code, what was said on stderr, whether the input is whole."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "in.json"
        source.write_bytes(INPUT)
        os.link(source, source.with_name("hard.json"))
        source.with_name("link.json").symlink_to("in.json")
        limit = None if file_bytes_max is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max,) * 2)
        done = subprocess.run([EMMCTL, *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=120, preexec_fn=limit)
        left = [name for name in os.listdir(folder) if name.startswith(".emmctl")]
        expect(not left, arguments, f"it leaves {left}")
        return done.returncode, done.stderr.decode(), source.read_bytes() == INPUT


def expect(true, arguments, saw):
    if not true:
        failures.append(f"emmctl {' '.join(arguments)}: {saw}")


def line(command, outputs):
    """The arguments of a command with these outputs, by name."""
    rest = [outputs.get("OUT", "out.jsonl") if word == "{}" else word for word in COMMANDS[command]]
    return [command, *rest, *(word for name, path in outputs.items() if name != "OUT" for word in (name, path))]


def outputs_of(command):
    said = subprocess.run([EMMCTL, command, "--help"], stdout=subprocess.PIPE, check=True).stdout.decode()
    found = re.findall(r"^  (?:-\w, |    )(--\S+) FILE\|-", said, re.M)
    return found + ["OUT"] * bool(re.search(r"^  OUT\b", said, re.M)), said


def main():
    said = subprocess.run([EMMCTL, "--help"], stdout=subprocess.PIPE, check=True).stdout.decode()
    commands = re.findall(r"^  ([a-z]+)  ", said.split("\n\nExamples:")[0], re.M)
    looked_at = 0
    for command in commands:
        outputs, help_text = outputs_of(command)
        if not outputs:
            continue
        if command not in COMMANDS:
            failures.append(f"{command} has outputs, and COMMANDS does not say how it is run")
            continue
        reads = "in.json" in COMMANDS[command]
        for name in outputs:
            looked_at += 1
            arguments = line(command, {name: "/dev/full"})
            code, words, _ = emmctl(*arguments)
            expect(code == 3 and FULL in words, arguments, f"a full disk gives {code}: {words}")
            arguments = line(command, {name: "out.json"})
            code, words, _ = emmctl(*arguments, file_bytes_max=0)
            expect(code == 3 and re.search(r"cannot write out\.jsonl?: File too large", words), arguments,
                   f"a file that may not grow gives {code}: {words}")
            for path in ("in.json", "./in.json", "hard.json", "link.json") if reads else ():
                arguments = line(command, {name: path})
                code, words, whole = emmctl(*arguments)
                expect(whole and code == 2 and ONE in words, arguments, f"the input as an output gives {code}: {words}")
        for one, other in itertools.combinations(outputs, 2):
            for first, second in (("x", "x"), ("x", "./x"), ("-", "-"), ("-", "/dev/stdout"), ("/dev/fd/1", "-")):
                arguments = line(command, {one: first, other: second})
                code, words, _ = emmctl(*arguments)
                expect(code == 2 and (ONE in words or "cannot both go to standard output" in words), arguments,
                       f"two outputs to one give {code}: {words}")
        if "--adaptor" not in help_text:
            continue
        looked_at += 1
        for path, wanted, told in (("/dev/full", 3, FULL), *((("in.json", 2, ONE), ("hard.json", 2, ONE)) if reads else ())):
            arguments = [*line(command, {}), "--adaptor", f"logging:file={path}"]
            code, words, whole = emmctl(*arguments)
            expect(whole and code == wanted and told in words, arguments, f"expected {wanted}, and it gives {code}: {words}")
    print(f"{looked_at} outputs of {len(commands)} commands")
    print("\n".join(failures))
    return 1 if failures or looked_at < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
