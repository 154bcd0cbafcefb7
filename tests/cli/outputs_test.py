#!/usr/bin/env python3
"""Every output of every command: a disk that is full is said and exits 3; no input and no other output is written over.

The outputs are what --help says: options whose value is a path (FILE|-, FILE, FOLDER, DIR) and that are not among INPUTS below,
and the positionals OUT and NAME. A command with one that is not in COMMANDS below fails this test.

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
INPUTS = {"--with", "--baseline", "--trace", "--beside"}

# What else a command needs. "in.json" or "in.sh" is its input; {} is where a positional output goes.
COMMANDS = {
    "replay": ["in.json", "--device", "sim"],
    "check": ["in.json"],
    "convert": ["in.json", "{}"],
    "inspect": ["in.json"],
    "explain": ["in.json", "--capacity", "1GiB"],
    "ranks": ["in.json", "in.json"],
    "sweep": ["--trace", "in.json", "--status"],
    "diff": ["in.json", "in.json"],
    "fit": ["in.json", "--manager", "cudart"],
    "tune": ["in.json", "--jobs", "1"],
    "plan": ["in.json"],
    "minimize": ["in.json", "--capacity", "34MiB", "--manager", "cudart"],
    "compare": ["in.json", "--device", "sim", "--manager", "cudart"],
    "adversary": ["{}", "--trials", "3", "--requests", "20"],
    "generate": ["comb", "{}", "--events", "20"],
    "conformance": ["--manager", "default", "--clause", "INI-2"],
    "report": ["in.json"],
    "list": ["formats"],
    "doctor": [],
    "plugin": ["new", "{}"],
    "record": ["--", "sh", "in.sh"],
    "run": ["--device", "sim", "--", "sh", "in.sh"],
}
NEEDED = {"sweep": {"--output": "swept"}}
# Without a GPU they write nothing, and exit with 5.
OF_A_GPU = {("doctor", "--profile")}
failures = []


def emmctl(*arguments, file_bytes_max=None):
    """In a folder of its own, with the input: the exit code, what was said on stderr, whether the input is whole."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "in.json"
        source.write_bytes(INPUT)
        script = pathlib.Path(folder) / "in.sh"
        script.write_text("true\n")
        for file in (source, script):
            os.link(file, file.with_stem("hard"))
            file.with_stem("link").symlink_to(file.name)
        limit = None if file_bytes_max is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max,) * 2)
        done = subprocess.run([EMMCTL, *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=120, preexec_fn=limit)
        left = [name for name in os.listdir(folder) if name.startswith(".emmctl")]
        expect(not left, arguments, f"it leaves {left}")
        return done.returncode, done.stderr.decode(), source.read_bytes() == INPUT and script.read_text() == "true\n"


def expect(true, arguments, saw):
    if not true:
        failures.append(f"emmctl {' '.join(arguments)}: {saw}")


def line(command, outputs):
    """The arguments of a command with these outputs, by name."""
    options = {**NEEDED.get(command, {}), **outputs}
    place = options.pop("OUT", options.pop("NAME", "out.jsonl"))
    return [command, *(word for name_and_path in options.items() for word in name_and_path),
            *(place if word == "{}" else word for word in COMMANDS[command])]


def outputs_of(command):
    """The options and positionals that name an output, each with its kind: FILE|-, FILE, or a folder."""
    said = subprocess.run([EMMCTL, command, "--help"], stdout=subprocess.PIPE, check=True).stdout.decode()
    found = dict(re.findall(r"^  (?:-\w, |    )(--\S+) ((?:FILE|FOLDER|DIR)(?:\|\S+)?)(?= |$)", said, re.M))
    for name in INPUTS & found.keys():
        del found[name]
    for name, kind in (("OUT", "FILE|-"), ("NAME", "FOLDER")):
        if re.search(r"^  %s\b" % name, said, re.M):
            found[name] = kind
    return found, said


def others():
    """What a command reads without being told to, what it runs, and what a folder is for."""
    config, cells = '{"schema": "emmctl.config/1"}', ["sweep", "-o", "swept", "--trace", "in.json", "--manager", "cudart", "--device", "sim"]
    looked_at = 0
    for files, arguments, told in (
            ({"emmctl.json": config}, ["doctor", "--json", "emmctl.json"], ONE),
            ({"emmctl.json": config}, ["list", "formats", "--json", "./emmctl.json"], ONE),
            ({}, [*cells, "--csv", "swept/sweep.jsonl"], ONE),
            ({}, [*cells, "--csv", "swept/cells/mine.csv"], "expected a file elsewhere"),
            ({}, [*cells, "--json", "swept"], ONE),
            ({"traces/sweep.jsonl": INPUT.decode()}, ["sweep", "-o", "traces", "--trace", "traces", "--device", "sim"], "is no plan of a sweep"),
            ({"swept/sweep.jsonl": INPUT.decode()}, cells, "swept/sweep.jsonl is there and is no plan of a sweep"),
            ({"x": "true"}, ["record", "-o", "x", "--", "./x"], "the program ./x and --output x " + ONE),
            ({"x": "true"}, ["record", "-o", "y/../x", "--", "sh", "-c", "exec ./x"], "the program's argument ./x and --output y/../x " + ONE),
            ({"x": "a: 1"}, ["record", "-o", "x", "--", "true", "--config=x"], "the program's argument x and --output x " + ONE),
            ({"x": "#!%s/i\n", "i": "true"}, ["record", "-o", "i", "--", "./x"], "the program's interpreter"),
            ({"x": '{"events": 3}'}, ["record", "-o", "x", "--", "true", "x"], ONE),
            ({"x": "import this"}, ["record", "-o", "x", "--", "true"], "x is there and is no trace")):
        looked_at += 1
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "y"))
            pathlib.Path(folder, "in.json").write_bytes(INPUT)
            before = {}
            for name, content in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(exist_ok=True)
                path.write_text(content.replace("%s", folder))
                path.chmod(0o755)
                before[path] = path.read_text()
            done = subprocess.run([EMMCTL, *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=120, env={**os.environ, "HOME": folder})
            expect(done.returncode == 2 and told in done.stderr.decode(), arguments, f"{done.returncode}: {done.stderr.decode()}")
            expect(all(path.read_text() == content for path, content in before.items()), arguments, "a file is written over")
    return looked_at


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
        for name, kind in outputs.items():
            looked_at += 1
            inputs = ["." * dot + "/" * dot + stem for dot in (0, 1) for stem in ("in", "hard", "link")]
            for path in (stem + (".json" if kind != "FILE" else ".sh") for stem in inputs):
                if kind == "FILE|-" and not reads:
                    continue
                arguments = line(command, {name: path})
                code, words, whole = emmctl(*arguments)
                told = ONE if "FILE" in kind else "is a file: expected a folder"
                expect(whole and code == 2 and told in words, arguments, f"the input as an output gives {code}: {words}")
            if kind != "FILE|-" or ((command, name) in OF_A_GPU and emmctl(*line(command, {name: "x"}))[0] == 5):
                continue
            arguments = line(command, {name: "told.json"})
            _, words, _ = emmctl(*arguments)
            expect("told.json" in words or command == "record", arguments, f"what it wrote is not named: {words}")
            arguments = line(command, {name: "/dev/full"})
            code, words, _ = emmctl(*arguments)
            expect(code == 3 and FULL in words, arguments, f"a full disk gives {code}: {words}")
            arguments = line(command, {name: "out.json"})
            code, words, _ = emmctl(*arguments, file_bytes_max=0)
            # run makes libraries first, which may not grow either.
            told = "File too large" if command == "run" else r"cannot write out\.jsonl?: File too large"
            expect(code == 3 and re.search(told, words), arguments,
                   f"a file that may not grow gives {code}: {words}")
        for one, other in itertools.combinations([name for name, kind in outputs.items() if kind == "FILE|-"], 2):
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
    looked_at += others()
    print(f"{looked_at} outputs of {len(commands)} commands")
    print("\n".join(failures))
    return 1 if failures or looked_at < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
