#!/usr/bin/env python3
"""Every command ends in bounded time, whatever sizes, addresses, times and capacities a trace states: no loop counts bytes.
Sizes that add up to 2^64 are refused with file, line, what is wrong and what was expected, in every form of a trace.

    hostile_sizes.py EMMCTL [TRACES]
"""
import gzip
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

EMMCTL, RANDOM_TRACES = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2
DEADLINE_S = 100  # what counts bytes takes years
SIZES = [1, 1 << 40, (1 << 40) + 1, 1 << 47, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
EXTREMES = [0, 1, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 4096, (1 << 64) - 1]

# What each command is asked. {} is the trace. A command that is not here fails the test.
ASKED = {
    "replay": ["{} --device sim --manager pool --repeat 2 --json o.json --memory-map m.csv --log l.csv", "{} --device sim:capacity=4TiB --manager async",
               "{} --device sim:capacity=4TiB --manager bfc", "{} --device sim --manager pytorch:expandable_segments=True", "{} --device sim --manager rmm-arena"],
    "check": ["{}"], "convert": ["{} o.pickle", "{} o.csv", "{} o.emmb", "{} o.json --to chrome-trace", "{} o.dsa --to dsa-csv"],
    "inspect": ["{} --json o.json --svg o.svg", "{} --limit", "{} --map 1", "{} --gap 1 --in-passes"],
    "explain": ["{}", "{} --capacity 1GiB", "{} --event 1"], "ranks": ["{} {}"], "diff": ["{} {}"],
    "fit": ["{} --manager cudart", "{} --manager pool"], "tune": ["{}", "{} --capacity 1TiB"], "plan": ["{} -o o.plan.json"], "minimize": ["{} --manager cudart --capacity 1GiB -o o.jsonl"],
    "compare": ["{} --device sim --manager cudart --manager rmm-pool"], "sweep": ["-o swept --trace {} --manager cudart --capacity 1GiB"],
    "report": ["{} --manager cudart -o o.html"], "view": ["{}"], "top": ["{}"],
    "adversary": ["o.jsonl --manager cudart --trials 3 --requests 20 --max-size 1099511627776", "o.jsonl --manager cudart --trials 3 --requests 20 --max-size 18446744073709551615"],
    "generate": ["ramps o.jsonl --events 100 --min-size 1 --max-size 18446744073709551615", "comb o.jsonl --events 100 --min-size 9223372036854775808 --max-size 18446744073709551615",
                 "log-uniform o.jsonl --events 100 --max-size 18446744073709551615"],
}
OF_NO_TRACE = {"record", "run", "conformance", "plugin", "list", "doctor", "help", "completion"}
failures = []


def lines(rows, **header):
    return "".join(json.dumps(row) + "\n" for row in [{"format": "emmctl-trace", "version": "1.0", **header}, *rows])


def fixed_traces():
    for size in SIZES:
        yield lines([{"op": "memalloc", "id": 1, "size": str(size)}, {"op": "free", "id": 1}])
    yield lines([{"op": "memalloc", "id": i, "size": str((1 << 62) - i)} for i in range(3)] + [{"op": "free", "id": 1}])
    yield lines([{"op": "memalloc", "id": i, "size": str(1 << i)} for i in range(63)])
    yield lines([row for i in range(40) for row in ({"op": "memalloc", "id": i, "size": str(1 << 58)}, {"op": "free", "id": i})])


def random_trace(seed):
    """Requests, segments, marks and failures whose numbers lie at the ends of what the format holds; their sum is below 2^64."""
    draw, rows, live, left = random.Random(seed), [], [], (1 << 64) - 1
    for i in range(draw.choice([1, 3, 30, 300])):
        kind = draw.random()
        time = {"time_ns": str(draw.choice(EXTREMES))} if draw.random() < 0.3 else {}
        if kind < 0.6 or not live:
            size = min(max(1, draw.choice(SIZES) // draw.choice([1, 2, 3, 1000])), left)
            if size == 0:
                continue
            row = {"op": draw.choice(["memalloc"] * 5 + ["memallocmanaged", "memhostalloc"]), "id": i, "size": str(size), **time}
            if draw.random() < 0.2:
                row["result"] = "oom"
            else:
                left -= size
                live.append(i)
            if draw.random() < 0.3 and row["op"] == "memalloc":
                row["addr"] = str(draw.choice(EXTREMES))
            if draw.random() < 0.2 and row["op"] == "memalloc":
                row |= {"granted": str(draw.choice(SIZES)), "stream": str(draw.choice(EXTREMES))}
            if draw.random() < 0.2 and row["op"] == "memalloc":
                row["layer"] = "backing"
            rows.append(row)
        elif kind < 0.9:
            each = live.pop(draw.randrange(len(live)))
            made = next(row for row in rows if row["op"] != "free" and row.get("id") == each)
            rows.append({"op": "free", "id": each, **({"layer": "backing"} if "layer" in made else {}), **time})
        else:
            rows.append({"op": "mark", "text": "step", **time})
    return lines(rows, devices=[{"id": 0, "capacity": str(draw.choice(SIZES[1:]))}])


def run(words, folder):
    """Its exit code, or nothing if it does not end."""
    try:
        return subprocess.run([EMMCTL, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEADLINE_S,
                              env={name: value for name, value in os.environ.items() if "DISPLAY" not in name} | {"XDG_CACHE_HOME": str(folder)})
    except subprocess.TimeoutExpired:
        return None


def every_command_ends():
    said = subprocess.run([EMMCTL, "--help"], stdout=subprocess.PIPE, check=True).stdout.decode()
    commands = re.findall(r"^  ([a-z]+)  ", said.split("\n\nExamples:")[0], re.M)
    missing = set(commands) - set(ASKED) - OF_NO_TRACE
    if missing:
        failures.append(f"ASKED does not say what {sorted(missing)} are asked")
    traces = [*fixed_traces(), *map(random_trace, range(RANDOM_TRACES))]
    few = traces if RANDOM_TRACES > 10 else [traces[1], traces[5], traces[7], traces[8], traces[10], *traces[11:]]
    jobs = [(command, words, None) for command in commands for words in ASKED.get(command, []) if "{}" not in words]
    jobs += [(command, words, trace) for command in commands for words in ASKED.get(command, []) if "{}" in words for trace in few]

    def one(job):
        command, words, content = job
        with tempfile.TemporaryDirectory() as made:
            folder = pathlib.Path(made)
            if content is not None:
                (folder / "t.jsonl").write_text(content)
            done = run([command, *words.replace("{}", "t.jsonl").split()], folder)
            if done is None or not 0 <= done.returncode <= 5:
                how = "does not end" if done is None else f"ends with {done.returncode}: {done.stderr[-200:].decode()}"
                failures.append(f"emmctl {command} {words} {how}: {(content or '')[:300]}")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, jobs))
    return len(jobs)


def too_much_is_refused():
    """By check and by what reads a trace for another end, of each form that holds sizes of 64 bits."""
    rows = [{"op": "memalloc", "id": i, "size": str(1 << 63)} for i in range(3)]
    text = lines(rows)
    csv = "Thread,Time,Action,Pointer,Size,Stream\n" + "".join(f"1,10:00:00.00000{i},allocate,{hex(4096 + i)},{1 << 63},0\n" for i in range(3))
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        head, *rest = text.splitlines()
        forms = {"t.jsonl": text.encode(), "t.json": (head[:-1] + ', "events": [\n' + ",\n".join(rest) + "]}\n").encode(),
                 "t.jsonl.gz": gzip.compress(text.encode()), "log.csv": csv.encode(), "t.ops": b"".join(b"a %d %d\n" % (i, 1 << 63) for i in range(3)),
                 # Operations that seq puts in another order are read again, as a whole.
                 "seq.jsonl": lines([{**row, "seq": seq} for row, seq in zip(rows, (3, 1, 2))]).encode()}
        for name, content in forms.items():
            (folder / name).write_bytes(content)
            for words in (["check", name], ["replay", name, "--device", "sim"], ["convert", name, "o.pickle"], ["inspect", name], ["fit", name, "--manager", "cudart"]):
                done = run(words, folder)
                said = (done.stdout + done.stderr).decode() if done else "it does not end"
                told = rf"{re.escape(name)}:\d+: 2\^64 bytes or more were asked for up to here: expected "
                if words[0] == "convert":  # the snapshot may run out of addresses first
                    told += "|line \\d+: no address is left for "
                if done is None or done.returncode != 4 or not re.search(told, said):
                    failures.append(f"emmctl {' '.join(words)}: exit {done and done.returncode}: {said[:300]}")
        small = lines([{"op": "memalloc", "id": i, "size": str(1 << 62)} for i in range(3)])
        (folder / "small.jsonl").write_text(small)
        if run(["convert", "small.jsonl", "small.emmb"], folder).returncode != 0 or run(["check", "small.emmb"], folder).returncode != 0:
            failures.append("three times 2^62 bytes are refused")


def main():
    too_much_is_refused()
    runs = every_command_ends()
    print(f"{runs} runs")
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
