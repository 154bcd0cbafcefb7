#!/usr/bin/env python3
"""emmctl beside itself, and where its surroundings give it nothing: three at once on one output, one sweep, one cache and one
configuration; no home, a home and a TMPDIR that cannot be written; standard streams that are closed or full.

    surroundings_test.py EMMCTL TRACES
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

EMMCTL, TRACE = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve() / "basics/pool_reuse.json"
FULL, CLOSED = "cannot write <stdout>: No space left on device", "cannot write <stdout>: Bad file descriptor"

# How each command is run so that it answers on standard output. One that is not here fails the test.
ANSWERS = {
    "replay": ["in.json", "--device", "sim"], "check": ["in.json"], "convert": ["in.json", "-"], "inspect": ["in.json"],
    "explain": ["in.json", "--capacity", "1GiB"], "ranks": ["in.json", "in.json"], "diff": ["in.json", "in.json"],
    "sweep": ["-o", "swept", "--trace", "in.json", "--manager", "pool"], "fit": ["in.json", "--manager", "cudart"], "tune": ["in.json", "--jobs", "1"],
    "plan": ["in.json"],
    "minimize": ["in.json", "--capacity", "34MiB", "--manager", "cudart", "-o", "-"], "compare": ["in.json", "--device", "sim", "--manager", "cudart"],
    "adversary": ["-", "--trials", "3", "--requests", "20"], "generate": ["comb", "-", "--events", "20"],
    "conformance": ["--manager", "default", "--clause", "INI-2"], "report": ["in.json", "-o", "-"], "view": ["in.json"], "list": ["formats"],
    "doctor": [], "help": [], "completion": ["bash"],
}
SILENT = {"record": "it is the program's", "run": "it is the program's", "top": "it needs a terminal", "plugin": "it writes files"}
failures = []


def start(folder, words, **more):
    environment = {name: value for name, value in os.environ.items() if "DISPLAY" not in name} | {"XDG_CACHE_HOME": str(folder / "cache")}
    environment |= more.pop("environment", {})
    environment = {name: value for name, value in environment.items() if value is not None}
    return subprocess.Popen([EMMCTL, *map(str, words)], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            **{"stdout": subprocess.PIPE, **more})


def finish(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, (out or b"").decode(), err.decode()


def expect(true, words):
    if not true:
        failures.append(words)


def three_at_once(folder):
    config = folder / "emmctl.json"
    config.write_text('{"schema":"emmctl.config/1","all":{"manager":"pool"}}')
    sweep = ["sweep", "-o", "swept", "--trace", "in.json", *(word for size in range(40, 60) for word in ("--capacity", f"{size}MiB"))]
    for words, out in ((["convert", "in.json", "out.jsonl"], "out.jsonl"), (["report", "in.json", "-o", "page.html"], "page.html"),
                       (["view", "in.json"], "cache/emmctl/in.json.html"), (["fit", "in.json", "--json", "fit.json"], "fit.json"), (sweep, "swept/sweep.jsonl")):
        alone = finish(start(folder, words, environment={"EMM_CONFIG": str(config)}))
        expect(alone[0] == 0, f"{words[0]} alone: {alone}")
        before = (folder / out).read_bytes()
        running = [start(folder, words, environment={"EMM_CONFIG": str(config)}) for _ in range(3)]
        for code, _, err in map(finish, running):
            expect(code == 0, f"{words[0]}, three at once: exit {code}: {err}")
        after = (folder / out).read_bytes()
        # A page says when it was made.
        expect(after == before if not out.endswith(".html") else after.endswith(b"</html>\n"), f"{words[0]}, three at once: {out} is not as one writes it")
    for process in [start(folder, [word.replace("swept", "together") for word in sweep]) for _ in range(3)]:
        code, _, err = finish(process)
        expect(code == 0, f"three sweeps in one new folder: exit {code}: {err}")
    cells = list((folder / "together/cells").iterdir())
    expect(len(cells) == 20 and all(json.loads(cell.read_text())["schema"] == "emmctl.replay/1" for cell in cells), f"three sweeps made {sorted(cell.name for cell in cells)}")
    left = [str(path) for path in folder.rglob("*") if path.name.startswith(".emmctl") or path.name.endswith(".tmp")]
    expect(not left, f"three at once leave {left}")


def nowhere_to_write(folder):
    for environment in ({"HOME": None, "XDG_CACHE_HOME": None}, {"HOME": "/proc", "XDG_CACHE_HOME": None}, {"HOME": "/dev/null", "XDG_CACHE_HOME": None},
                        {"TMPDIR": "/proc"}, {"TMPDIR": "/none"}):
        for words in (["replay", "in.json", "--device", "sim"], ["convert", "in.json", "out.jsonl"], ["report", "in.json", "-o", "page.html"], ["doctor"],
                      ["fit", "in.json", "--manager", "cudart"], ["sweep", "-o", "swept2", "--trace", "in.json"]):
            code, _, err = finish(start(folder, words, environment=environment))
            expect(code == 0, f"{words[0]} with {environment}: exit {code}: {err}")
        code, out, err = finish(start(folder, ["view", "in.json"], environment=environment))
        expect(code == 0 and (folder / out.strip()).is_file(), f"view with {environment}: exit {code}: {err}")


def streams(folder):
    said = subprocess.run([EMMCTL, "--help"], stdout=subprocess.PIPE, check=True).stdout.decode()
    commands = re.findall(r"^  ([a-z]+)  ", said.split("\n\nExamples:")[0], re.M)
    for command in commands:
        if command in SILENT:
            continue
        if command not in ANSWERS:
            failures.append(f"ANSWERS does not say how {command} answers")
            continue
        with open("/dev/full", "wb") as full:
            code, _, err = finish(start(folder, [command, *ANSWERS[command]], stdout=full))
        expect(code == 3 and "No space left on device" in err, f"{command}, standard output is full: exit {code}: {err}")
        code, _, err = finish(start(folder, [command, *ANSWERS[command]], stdout=None, preexec_fn=lambda: os.close(1)))
        expect(code == 3 and "Bad file descriptor" in err, f"{command}, standard output is closed: exit {code}: {err}")
    # A file does not take the place of a stream that is closed, and gets no other words.
    for closed in ((1,), (0, 1), (0, 1, 2)):
        log = folder / "log.csv"
        process = subprocess.Popen([EMMCTL, "replay", "in.json", "--device", "sim", "--log", "log.csv", "--json", "closed.json"], cwd=folder,
                                   preexec_fn=lambda closed=closed: [os.close(each) for each in closed])
        code = process.wait(120)
        expect(code == 3, f"replay with {closed} closed: exit {code}")
        expect(json.loads((folder / "closed.json").read_text())["schema"] == "emmctl.replay/1", f"the JSON of a replay with {closed} closed")
        expect(all(line.count(",") == 5 for line in log.read_text().splitlines()), f"the log of a replay with {closed} closed")
    expect(len(commands) > 20, f"{len(commands)} commands")


def main():
    for check in (three_at_once, nowhere_to_write, streams):
        with tempfile.TemporaryDirectory() as made:
            folder = pathlib.Path(made)
            (folder / "in.json").write_bytes(TRACE.read_bytes())
            check(folder)
    print("\n".join(failures) or "all as they should be")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
