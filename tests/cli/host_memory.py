#!/usr/bin/env python3
"""Runs every command with less and less address space, and looks at how it ends.

    host_memory.py BUILD [--all] [--only WORD] [--jobs N]

A run under a limit may end as it does without one, with the same output and the same files; or with exit code 3 and one
sentence that names host memory; or with the loader's 127, before main. Never by a signal, as a bug (70), or not at all.
Of its files, those that are there are whole; a log has whole lines.

    --all   every MiB from 8 to 72 and every command; without it, what CI has time for
"""
import argparse
import concurrent.futures
import gzip
import json
import os
import pathlib
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MIB = 1 << 20
SAID = re.compile(r"^emmctl: .*(out of host memory|the system has no room for).*$", re.M)


def commands(data, build):
    """Rows of words, in the order of the user's manual. A word in capitals before them says what CI leaves out or
    what cannot be compared."""
    basics, inputs, plugins = ROOT / "traces/basics", ROOT / "tests/golden/inputs", build / "tests/plugins"
    t, s, m = f"{data}/t.jsonl", f"{data}/s.jsonl", f"{data}/m.jsonl"
    oom = f"{inputs}/torch_oom.pickle.gz"
    sim = "--device sim"
    rows = ["--version", "--help", "replay --help", "nonsense", f"replay {data}/missing.jsonl", "doctor"]
    rows += [f"list {what}" for what in ("managers", "formats", "clauses")] + [f"list managers {plugins}/example_c.so"]

    listed = json.loads(subprocess.run([build / "bin/emmctl", "list", "managers", "--json", "-"], capture_output=True,
                                       check=True).stdout)["rows"]
    for manager in (spec for row in listed if row["device_memory"] for spec in row["judged_as"].split()
                    if spec == "default:profile=numba" or "profile=" not in spec):
        rows.append(f"replay {t} {sim} --manager {manager}")
    rows += [f"replay {s} {sim} --manager pool", f"replay {t} {sim} --manager pool --verify",
             f"replay {data}/t.jsonl.gz {sim} --manager pool --latency --json -",
             f"replay {data}/t.json {sim} --manager pool --adaptor statistics --adaptor logging:file=a.log",
             f"replay {data}/t.jsonl.zst {sim} --manager pool --log t.log --log-format emm",
             f"replay {t} {sim} --manager pool --log t.log --log-format rmm --repeat 2",
             f"replay {t} {sim} --manager pool --log t.log --log-format rmm-legacy --memory-map map.json",
             f"replay {t} {sim}:capacity=64MiB --manager pool --json j.json",
             f"replay {t} {sim} --manager pool --fault rate=0.01,seed=7",
             f"replay {t} {sim} --manager {plugins}/example_c.so", f"replay {t} {sim} --manager {plugins}/example_cpp.so",
             f"replay {t} {sim} --manager {build}/lib/libemm.so:name=pool",
             f"replay {t} {sim} --manager torch:{plugins}/foreign.so,torch_alloc,torch_free", f"replay {oom} {sim} --manager pool"]
    rows += [f"UNSTABLE replay {m} {sim} --manager pool --threads {how}" for how in ("recorded", "free")]
    rows += [f"replay {m} {sim} --manager pool --threads trace"]
    rows += [f"replay {basics}/{name} {sim}" for name in
             ("ipc_two_openings.json", "ipc_offset.json", "pinning.json", "host_memory.json", "managed.json",
              "several_devices.json", "streams.json")]

    rows += [f"replay {t} {sim} --manager pool {how}" for how in
             ("--stop-at 5000", "--pace x1000000", "--profile numba", "--adaptor limiting:max=10MiB --on-oom stop")]

    forms = ["t.jsonl", "t.json", "t.jsonl.gz", "t.jsonl.zst", "t.csv", "t.pickle", "t.dsa.csv", "t.events", "t.sqlite.gz"]
    rows += [f"check {data}/{form}" for form in forms] + [f"check {oom} --json -"]
    rows += [f"convert {data}/{form} o.jsonl" for form in forms]
    rows += [f"convert {t} o.{end}" for end in ("json", "jsonl.gz", "jsonl.zst")]
    rows += [f"convert {t} o.out --to {form}" for form in ("rmm-csv", "torch-pickle", "dsa-csv", "chrome-trace")]
    rows += [f"convert {t} - --anonymize", f"convert {oom} o.jsonl --json j.json"]
    rows += [f"inspect {data}/{form}" for form in forms] + [f"inspect {oom} --svg o.svg --json -"]
    rows += [f"UNSTABLE inspect {t} --limit --search-time 10ms", f"inspect {t} --map 100"]
    rows += [f"explain {oom}", f"explain {inputs}/oom_waste.jsonl --json -", f"explain {t}"]
    rows += [f"fit {data}/few.jsonl --manager {manager}" for manager in ("pool", "async", "default")]
    rows += [f"fit {data}/few.jsonl --manager {plugins}/example_c.so --json -"]
    rows += [f"minimize {data}/few.jsonl --manager pool --capacity 16MiB -o small.jsonl"]
    rows += [f"compare {data}/few.jsonl --manager pool --manager async --manager default {sim}"]
    rows += ["adversary worst.jsonl --manager pool --trials 20", "adversary worst.json.gz --manager async --trials 10"]
    rows += [f"generate {kind} o.jsonl --events 5000" for kind in ("log-uniform", "many-live", "multi-stream")]
    rows += ["generate log-uniform o.pickle --to torch --events 5000", "generate comb o.json.gz --events 5000",
             "generate comb o.jsonl.zst --events 5000", "generate multi-thread - --events 5000"]
    rows += [f"conformance --manager {manager} --clause {clauses} --tap -" for manager, clauses in
             (("pool", "PD-*"), ("default", "DEV-*"), ("async", "RST-*"), ("pool", "suite/*"), ("default", "accounts/*"),
              (f"{plugins}/example_c.so", "DEV-*"), (f"torch:{plugins}/calls_driver.so,torch_alloc,torch_free", "DEV-1"))]
    rows += ["plugin new mine --language c++"]
    rows += ["WHOLE conformance --manager default", "WHOLE conformance --manager pool",
             f"WHOLE conformance --manager {plugins}/example_cpp.so", f"WHOLE UNSTABLE conformance --manager torch:{plugins}/foreign.so,torch_alloc,torch_free"]
    return rows


def make_data(emmctl, data):
    def emm(*words):
        subprocess.run([emmctl, *words], check=True, cwd=data, stderr=subprocess.DEVNULL)

    emm("generate", "log-uniform", "t.jsonl", "--events", "20000", "--seed", "1")
    emm("generate", "log-uniform", "few.jsonl", "--events", "1000", "--seed", "1")
    emm("generate", "multi-stream", "s.jsonl", "--events", "5000")
    emm("generate", "multi-thread", "m.jsonl", "--events", "5000")
    for name in ("t.json", "t.jsonl.gz", "t.jsonl.zst"):
        emm("convert", "t.jsonl", name)
    with open(data + "/t.events", "w") as events:  # as torch-events has them
        for i in range(5000):
            events.write(f'["alloc",{4096 * (i + 1)},100,0,{2 * i}]\n["free_completed",{4096 * (i + 1)},100,0,{2 * i + 1}]\n')
    with sqlite3.connect(data + "/t.sqlite") as base:
        base.execute("CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INT, globalPid INT, deviceId INT, contextId INT, "
                     "address INT, pc INT, bytes INT, memKind INT, memoryOperationType INT, name TEXT, correlationId INT, "
                     "streamId INT)")
        base.executemany("INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (?,?,0,1,?,0,512,2,?,NULL,1,0)",
                         [(i, 7 << 24, 4096 * (i // 2 + 1), i % 2) for i in range(20000)])
    base.close()
    with open(data + "/t.sqlite", "rb") as plain, gzip.open(data + "/t.sqlite.gz", "wb") as packed:
        packed.write(plain.read())
    for name, form in (("t.csv", "rmm-csv"), ("t.pickle", "torch-pickle"), ("t.dsa.csv", "dsa-csv")):
        emm("convert", "t.jsonl", name, "--to", form)


def run(emmctl, words, limit):
    """Exit code, stdout, stderr and files of one run; no exit code where it does not end."""
    def lower():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if limit:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([emmctl, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, preexec_fn=lower,
                                   env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"})
        try:
            out, err = process.communicate(timeout=120)
            code = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            code = None
        files = {str(p.relative_to(folder)): p.read_bytes() for p in pathlib.Path(folder).rglob("*") if p.is_file()}
    return code, out, err.decode("utf-8", "replace"), files


def wrong(free, limited, unstable):
    """What is wrong with how a run under a limit ended; empty: nothing."""
    code, out, err, files = limited
    if code is None:
        return "does not end"
    if code == 127 and "error while loading shared libraries" in err:
        return ""
    if code < 0:
        return f"ended by signal {-code}"
    said = SAID.findall(err)
    in_report = b"out of host memory in the child process" in out  # of a clause that was not judged
    if code == 3 and (said or in_report):
        if len(said) > 1 and "child process" not in err and "second process" not in err:
            return "says it more than once"
        for name, content in files.items():
            whole = free[3].get(name)
            if name.endswith(".log"):
                if content and not content.endswith(b"\n"):
                    return f"{name} ends inside a line"
            elif not unstable and content != whole:
                return f"{name} is there and is not whole"
        return ""
    if code != free[0]:
        return f"exit code {code}, without a limit {free[0]}"
    if not unstable and out != free[1]:
        return "prints something else than without a limit"
    if not unstable and files != free[3]:
        return "writes something else than without a limit"
    return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--emmctl", help="another program than the build's")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    emmctl = arguments.emmctl or str(build / "bin/emmctl")
    limits = range(8, 73) if arguments.all else range(12, 61, 8)
    data = tempfile.mkdtemp()
    try:
        make_data(emmctl, data)
        rows = [row.split() for row in commands(data, build)]
        rows = [row for row in rows if (arguments.all or row[0] != "WHOLE") and arguments.only in " ".join(row)]
        ends, failures = {}, []

        def sweep(row):
            unstable = "UNSTABLE" in row
            words = [word for word in row if word not in ("WHOLE", "UNSTABLE")]
            free = run(emmctl, words, None)
            found = []
            for limit in limits:
                limited = run(emmctl, words, limit * MIB)
                found.append((words, limit, limited, wrong(free, limited, unstable)))
            return found

        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            for found in pool.map(sweep, rows):
                for words, limit, (code, _, err, _), what in found:
                    ends[code] = ends.get(code, 0) + 1
                    if what:
                        failures.append(what)
                        print(f"{limit} MiB: emmctl {' '.join(words).replace(data + '/', '')}: {what}")
                        print("".join(f"    {line}\n" for line in err.splitlines()[-3:]), end="", flush=True)
        counted = ", ".join(f"{count} with {code}" for code, count in sorted(ends.items(), key=str))
        print(f"{sum(ends.values())} runs of {len(rows)} commands: {counted}; {len(failures)} not as they should be")
        return 1 if failures else 0
    finally:
        shutil.rmtree(data)


if __name__ == "__main__":
    sys.exit(main())
