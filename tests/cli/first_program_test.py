#!/usr/bin/env python3
"""What tools/emmctl builds first has the core alone, and nobody notices: emmctl_core answers as emmctl does, and continues as what EMM_REST
names when it is asked for more.

    first_program_test.py EMMCTL EMMCTL_CORE SOURCES PLUGIN
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

EMMCTL, CORE, SOURCES, PLUGIN = (os.path.abspath(path) for path in sys.argv[1:5])
TRACE = pathlib.Path(SOURCES) / "traces/basics/pool_reuse.json"
failures = []


def expect(is_so, what):
    if not is_so:
        failures.append(what)


def answer(program, words, **environment):
    known = {name: value for name, value in os.environ.items() if not name.startswith("EMM_")}
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=known | environment)
    return done.returncode, done.stdout, done.stderr


def answers_by_itself(folder):
    """The commands of the core need nothing else."""
    strange = folder / "emmctl.json"
    strange.write_text('{"schema": "emmctl.defaults/1", "tune": {"jobs": 1}, "doctor": {}, "conformance": {}}\n')
    for words in (["--version"], ["replay", "--help"], ["convert", "--help"], ["check", "--help"], ["generate", "--help"],
                  ["replay", TRACE, "--manager", "pool", "--device", "sim", "--json", "-"], ["replay", TRACE, "--manager", "recorded"],
                  ["check", TRACE], ["convert", TRACE, "-"], ["generate", "comb", "-", "--events", "20"], ["replay", TRACE, "--manger", "pool"]):
        for environment in ({}, {"EMM_CONFIG": str(strange)}):
            told, expected = answer(CORE, words, **environment), answer(EMMCTL, words, **environment)
            expect(told == expected, f"{words}: {told}, expected {expected}")


def lacks_the_rest():
    for words, wing in ((["conformance"], "judge"), (["tune", TRACE], "analysis"), (["record"], "inside"), (["doctor"], "cli")):
        told = answer(CORE, words)
        expect(told == (2, "", f"emmctl: emmctl was built without the wing {wing}, which has {words[0]}; see emmctl --help\n"), f"{words}: {told}")


def continues_as_the_rest(folder):
    unknown = folder / "unknown.txt"
    unknown.write_text("no trace\n")
    for words in ([], ["--help"], ["list", "gpus"], ["help", "replay"], ["conformance", "--help"], ["nothing"], [TRACE], ["replay", unknown],
                  ["check", unknown, "--json", "-"], ["replay", TRACE, "--manager", PLUGIN, "--json", "-"], ["replay", TRACE, "--manager", "pol"]):
        told, expected = answer(CORE, words, EMM_REST=EMMCTL), answer(EMMCTL, words)
        expect(told == expected, f"{words}: {told}, expected {expected}")
    told = answer(CORE, ["replay", TRACE, "--json", "-"], EMM_REST=EMMCTL, EMM_MEMORY_MANAGER=PLUGIN)
    expect(told == answer(EMMCTL, ["replay", TRACE, "--json", "-", "--manager", PLUGIN]), f"EMM_MEMORY_MANAGER: {told}")


def is_built_when_asked(folder):
    """tools/emmctl, with a build that notes what it is asked for and makes programs that are asked for more by the word `more`."""
    tools = folder / "tree/tools"
    tools.mkdir(parents=True)
    shutil.copy(pathlib.Path(SOURCES) / "tools/emmctl", tools)
    (tools / "build.sh").write_text('''
need_packages() { :; }
build() {
  echo "$*" >>built
  mkdir -p build/release/bin
  touch build/release/build.ninja
  printf '#!/usr/bin/env bash\\n[ "$1" != more ] || [ -z "${EMM_REST:-}" ] || exec "$EMM_REST" "$@"\\necho "$0 in $PWD:" "$@"\\n' >build/release/bin/$2
  chmod +x build/release/bin/$2
}
''')
    elsewhere = folder / "else where"
    elsewhere.mkdir()
    expected = []
    for words, program, built in ((["replay", "a b"], "emmctl_core", ["release emmctl_core -DEMM_TESTS=OFF -DEMM_UNITY=merged"]),
                                  (["replay"], "emmctl_core", ["release emmctl_core"]),
                                  (["more", "of it"], "emmctl", ["release emmctl_core", "release emmctl"]),
                                  (["replay"], "emmctl", ["release emmctl"])):
        expected += built
        known = {name: value for name, value in os.environ.items() if not name.startswith("EMM_")}
        done = subprocess.run([tools / "emmctl", *words], cwd=elsewhere, capture_output=True, text=True, env=known)
        told = f"{folder}/tree/build/release/bin/{program} in {elsewhere}: {' '.join(words)}\n"
        expect((done.returncode, done.stdout, done.stderr) == (0, told, ""), f"tools/emmctl {words}: {done}, expected {told!r}")
    found = (folder / "tree/built").read_text().splitlines()
    expect(found == expected, f"tools/emmctl built {found}, expected {expected}")


with tempfile.TemporaryDirectory() as made:
    place = pathlib.Path(made).resolve()
    answers_by_itself(place)
    lacks_the_rest()
    continues_as_the_rest(place)
    is_built_when_asked(place)
print("\n".join(failures) or "emmctl_core answers as emmctl does, or leaves it to emmctl")
sys.exit(bool(failures))
