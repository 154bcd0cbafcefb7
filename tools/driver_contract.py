#!/usr/bin/env python3
"""docs/driver-contract.md: every fact of the driver seam, where it is from, and whether each device keeps it.

    tools/driver_contract.py [--program PROGRAM] [--gpu gpu-check.json]    writes it
    tools/driver_contract.py --check [--program PROGRAM]                   fails where the committed one is not what is true

The facts are the tests of tests/driver/contract, a fact's source is the comment above it, and what the simulated device
says is asked of it. The real device's column is from a run of tools/gpu-check, else it stays as committed: "not run" is a
fact that is younger than the last run.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs/driver-contract.md"
TESTS = ROOT / "tests/driver/contract"
NOT_RUN = "not run"
HEAD = """# What a device answers

`tools/driver_contract.py` wrote this page, and the test `driver_contract.table` compares it with what the devices answer. A row is a
test of [tests/driver/contract](../tests/driver/contract). It runs on the simulated device, through the stand-in for `libcuda.so.1`, and
on a real device where there is one ([gpu.md](gpu.md)). *Measured* facts are of an H200 with driver 580.159.04 and CUDA 13.0,
*documented* ones of the CUDA driver API's reference; `driver.hpp` is the header of the interface, which promises more than either.

The devices differ in what follows. These are no facts, and no code may rely on them:

- Use of a handle that was destroyed. The H200 ended the process when a destroyed event was recorded or destroyed again, and when a
  released memory handle was released again; for a destroyed stream it answered 201. The simulated device answers 400, and 1 for memory.
- A mapping that begins in a reservation and ends outside of it. The H200 accepts it (0), and the reservation can then not be freed. The
  simulated device refuses it (1), as documented.
- Memory of mappings and pools that live at a reset. The H200 kept all of it: 192 MiB of a mapped handle, a pool and the default pool, each
  of 64 MiB. The simulated device releases all of it.
- The used bytes of a pool whose memory `cuMemFree` freed. The H200 still counts them as used, the simulated device does not.

"""
FACT = re.compile(r"((?:^//[^\n]*\n)*)^TEST_P\((\w+),\s*(\w+)\)", re.M)


def words(name):
    """AStreamReusesWhatItFreed as "A stream reuses what it freed"."""
    parts = re.findall(r"MiB|GiB|[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+", name)
    parts = [p if p in ("MiB", "GiB") or (len(p) > 1 and p.isupper()) else p.lower() for p in parts]
    text = " ".join(parts)
    return text[:1].upper() + text[1:]


def facts():
    """(section, suite.name, source) of every fact, in the order of the files."""
    found = []
    for path in sorted(TESTS.glob("*_test.cpp")):
        section = path.stem.removesuffix("_test").replace("_", " ").capitalize()
        for comment, suite, name in FACT.findall(path.read_text()):
            source = " ".join(line.removeprefix("//").strip() for line in comment.splitlines())
            found.append((section, f"{suite}.{name}", source))
    return found


def ask_sim(program):
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder) / "facts.json"
        subprocess.run([program, "--gtest_filter=*/sim", f"--gtest_output=json:{results}"], stdout=subprocess.DEVNULL,
                       stdin=subprocess.DEVNULL)
        if not results.is_file():
            sys.exit(f"driver_contract.py: {program} ended without results")
        answers = {}
        for suite in json.loads(results.read_text())["testsuites"]:
            for test in suite["testsuite"]:
                name = suite["name"].split("/")[-1] + "." + test["name"].split("/")[0]
                answers[name] = ("skipped" if test["result"] == "SKIPPED" else "fails" if test.get("failures") else "holds")
        return answers


def committed():
    """The real device's answers and the line that says which it was."""
    if not TABLE.is_file():
        return {}, ""
    text = TABLE.read_text()
    answers = {name: answer for answer, name in re.findall(r"^\| .* \| .* \| [\w ]+ \| ([^|]*?) \| `(.*?)` \|$", text, re.M)}
    machine = re.search(r"^The \w+ column is .*$", text, re.M)
    return answers, machine[0] if machine else ""


def machine_line(machine):
    device = machine["devices"][0]["name"]
    many = f"{len(machine['devices'])} of them, " if len(machine["devices"]) > 1 else ""
    column = device.removeprefix("NVIDIA ").split()[0]
    return f"The {column} column is {device}, {many}driver {machine['driver']}, CUDA {machine['cuda']}, {machine['date']}."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/release/tests/driver/driver_contract_test"))
    parser.add_argument("--gpu", help="what tools/gpu-check --out wrote")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()

    real, machine = committed()
    if arguments.gpu:
        run = json.loads(pathlib.Path(arguments.gpu).read_text())
        real, machine = run["facts"], machine_line(run["machine"])
    sim, listed, wrong = ask_sim(arguments.program), facts(), []
    for _, name, source in listed:
        if not source:
            wrong.append(f"{name}: no comment says where the fact is from")
    wrong += [f"{name}: not a test of {TESTS.relative_to(ROOT)}" for name in sim if name not in {name for _, name, _ in listed}]
    wrong += [f"{name}: {sim.get(name, NOT_RUN)} on the simulated device" for _, name, _ in listed
              if sim.get(name) not in ("holds", "skipped")]

    answers = [real.get(name, NOT_RUN) for _, name, _ in listed]
    column = machine.split()[1] if machine else "real"
    text = HEAD + (machine + "\n\n" if machine else "")
    text += f"{len(listed)} facts: on the simulated device {sum(sim.get(n) == 'holds' for _, n, _ in listed)} hold; on the {'real one' if column == 'real' else column} "
    text += ", ".join(f"{answers.count(a)} {a if a != 'holds' else 'hold'}" for a in sorted(set(answers), key=lambda a: (a != "holds", a))) + ".\n"
    last = ""
    for section, name, source in listed:
        if section != last:
            text += f"\n## {section}\n\n| fact | source | sim | {column} | test |\n| --- | --- | --- | --- | --- |\n"
            last = section
        text += f"| {words(name.split('.')[1])} | {source.replace('|', '/')} | {sim.get(name, NOT_RUN)} | {real.get(name, NOT_RUN)} | `{name}` |\n"

    for line in wrong:
        print(line, file=sys.stderr)
    if arguments.check:
        if not TABLE.exists() or TABLE.read_text() != text:
            print(f"{TABLE.relative_to(ROOT)} is out of date; run tools/driver_contract.py", file=sys.stderr)
            return 1
    else:
        TABLE.write_text(text)
    print(f"{len(listed)} facts, {len(wrong)} mistakes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
