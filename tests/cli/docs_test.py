#!/usr/bin/env python3
"""The commands of README.md and the docs do what the docs say: docs_test.py EMMCTL ROOT [INSTALLED]

A line "    $ command" of an indented block is run by bash; the lines below it are what it must print, in this order, where
"..." stands for any lines, and inside of a line for any words. A line "    emmctl ..." is run too, and must be no mistake in usage. All commands of a file run in
one folder, which has the tree's traces, `oom.pickle`, `train.log`, `run.jsonl`, `run.emmb` and `gpt2.jsonl.gz`, with the program on the path.

Where a command has a word in capitals, or a program after `--`, nothing can be run: each of its options must then be known.
The same holds of the commands inside of sentences. The examples of `--help` are run as those of the docs, two of each command.
INSTALLED is a prefix that CMake finds emmctl in.
"""
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

USAGE, DAMAGED, BUG = 2, 4, 70
COMMAND = re.compile(r"^(?:tools/)?emmctl +([a-z][a-z-]*)\b(.*)$")
PLACEHOLDER = re.compile(r"(?<![\w/.$-])[A-Z]{1,2}(?![\w])|\b[A-Z]{3,}(?![\w/=.])|\.\.\.| -- ")


def examples(text):
    """(command, lines shown, or None where only the exit code matters) of each example in a block."""
    block = None
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)
    for line in text.splitlines():
        if line.startswith("    $ "):
            block = (line[6:], [])
            yield block
        elif line.startswith("    ") and block is None and COMMAND.match(line[4:]):
            yield (line[4:], None)
        elif block is not None and line.startswith("    "):
            block[1].append(line[4:])
        elif line.strip():
            block = None


def in_sentences(text):
    """The commands inside of backquotes."""
    return [word for word in re.findall(r"`([^`\n]+)`", text) if COMMAND.match(word)]


def words(line):
    """A line without what only lines its words up with others."""
    return " ".join(line.split())


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
            wanted = re.compile(".*".join(map(re.escape, words(line).split("..."))))
            found = next((i for i in range(at, len(printed)) if wanted.fullmatch(words(printed[i]))), None)
            if found is None or (found != at and not gap):
                return line
            at, gap = found + 1, False
    return None


class Docs:
    def __init__(self, emmctl, root, installed):
        self.emmctl, self.root, self.helps = emmctl, root, {}
        self.environment = os.environ | {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PATH": f"{emmctl.parent}:{os.environ['PATH']}",
                                         "CMAKE_PREFIX_PATH": installed, "CMAKE_GENERATOR": "Ninja"}

    def help_of(self, command):
        if command not in self.helps:
            done = subprocess.run([self.emmctl, command, "--help"], capture_output=True, text=True)
            self.helps[command] = done.stdout if done.returncode == 0 else None
        return self.helps[command]

    def unknown(self, command):
        """What of the command line emmctl does not know; None where it knows all."""
        name, rest = COMMAND.match(command).groups()
        helped = self.help_of(name)
        if helped is None:
            return f"there is no command {name}"
        known = set(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", helped))
        rest = re.sub(r"[\[\]]", " ", rest.split(" -- ")[0].split("#")[0])
        for word in re.split(r"[ =|,]", rest):
            if re.match(r"--?[a-z]", word) and word not in known:
                return f"{name} has no option {word}"
        return None

    def prepare(self, folder):
        os.symlink(self.root / "traces", folder / "traces")
        os.symlink(self.root / "traces/torch/torch_gpt2_train_varlen.jsonl.gz", folder / "gpt2.jsonl.gz")
        (folder / "oom.pickle").write_bytes(gzip.decompress((self.root / "tests/golden/inputs/torch_oom.pickle.gz").read_bytes()))
        shutil.copy(self.root / "tests/golden/inputs/oom.log", folder / "train.log")
        for name in ("run.jsonl", "train.jsonl", "service.4711.jsonl"):
            shutil.copy(self.root / "tests/golden/inputs/training.jsonl", folder / name)
            compact = (folder / name).with_suffix(".emmb")
            subprocess.run([self.emmctl, "convert", folder / name, compact], check=True, stderr=subprocess.DEVNULL)
        shutil.copy(self.root / "traces/basics/pool_reuse.json", folder / "trace.json")
        shutil.copy(self.root / "tests/golden/inputs/clocked.jsonl", folder / "timed.jsonl")
        shutil.copy(self.root / "tests/golden/inputs/smi_beside.csv", folder / "smi.csv")
        fleet = self.root / "tests/golden/inputs/fleet"
        shutil.copy(fleet / "before.jsonl", folder / "before.jsonl")
        shutil.copy(fleet / "layer.jsonl", folder / "after.jsonl")
        (folder / "ranks").mkdir()
        for rank in range(3):
            shutil.copy(fleet / f"rank{rank}.jsonl", folder / f"ranks/rank{rank}.jsonl")

    def help_examples(self):
        """(command, the words of its help) of each example; a command that has not two is said with no example."""
        overview = subprocess.run([self.emmctl, "--help"], capture_output=True, text=True, check=True).stdout
        for name in re.findall(r"^  ([a-z]+) {2,}\S", overview, re.M):
            found = re.findall(r"^  ((?:emmctl|source) .*)$", self.help_of(name), re.M)
            yield from ((name, command) for command in found[:2])
            if len(found) != 2:
                yield name, None

    def wrong_help(self):
        with tempfile.TemporaryDirectory() as made:
            folder = pathlib.Path(made)
            self.prepare(folder)
            self.run("emmctl compare run.jsonl --manager pool --device sim --json saved.json", None, folder)
            for name, command in self.help_examples():
                if command is None:
                    yield name, "its help has not two examples"
                    continue
                words = self.unknown(command) if COMMAND.match(command) else None
                cannot_run = name in ("view", "top") or " -- " in command or "libemm-mine" in command
                yield command, words or (None if cannot_run else self.run(command, None, folder))

    def run(self, command, shown, folder):
        """What is wrong with it; None where nothing is."""
        done = subprocess.run(["bash", "-c", command.replace("tools/emmctl", "emmctl")], cwd=folder, capture_output=True, text=True,
                              env=self.environment, timeout=500)
        printed = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        told = "\n  but:\n    " + "\n    ".join(printed[:40])
        if done.returncode in (USAGE, DAMAGED, BUG) or done.returncode > 125:
            return f"exits with {done.returncode}{told}"
        line = missing(shown or [], printed)
        return None if line is None else f"does not print: {line}{told}"

    def wrong(self, path):
        text = path.read_text()
        with tempfile.TemporaryDirectory() as made:
            folder = pathlib.Path(made)
            self.prepare(folder)
            for command, shown in list(examples(text)):
                emmctls = COMMAND.match(command)
                words = self.unknown(command) if emmctls else None
                if not words and not (emmctls and PLACEHOLDER.search(command)):
                    words = self.run(command, shown, folder)
                yield command, words
        for command in in_sentences(text):
            yield command, self.unknown(command)


def main():
    emmctl, root = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    docs = Docs(emmctl, root, sys.argv[3] if len(sys.argv) > 3 else "")
    wrong = count = 0
    for path in [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md")), root / "managers/README.md",
                 root / "managers/pool/README.md", root / "traces/README.md", root / "tools/peers/README.md"]:
        for command, words in docs.wrong(path):
            count += 1
            if words is not None:
                wrong += 1
                print(f"{path.relative_to(root)}: $ {command}\n  {words}")
    for command, words in docs.wrong_help():
        count += 1
        if words is not None:
            wrong += 1
            print(f"--help: $ {command}\n  {words}")
    size = len((root / "README.md").read_bytes())
    if size > 6000:
        wrong += 1
        print(f"README.md has {size} bytes: expected 6,000 at most")
    print(f"{count} commands, {wrong} wrong")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
