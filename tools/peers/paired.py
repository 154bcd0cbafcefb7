"""Two builds of pool_bench by turns: what `run --bin BEFORE --bin AFTER` measures, judges and prints.

Each round runs both builds on each trace, one right after the other, in the other order than in the round before, so that
a slow minute of the machine falls on both. The ratio of a round is after over before. Their centre is the Hodges-Lehmann
estimate and their interval that of Wilcoxon's signed-rank test, both of the ratios' logarithms: exact for any noise that
does to one build what it does to the other, which turns ensure, and little moved by a few rounds that went wrong.
"""
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

NOT_HERE = 3  # a peer's exit code
LEVEL = 0.95
LEAST_ROUNDS = 6  # of five rounds even the widest interval covers less than 95 %


def signed_rank_tail(count, level):
    """How many Walsh averages lie outside of the interval at each end: the largest k with P(W < k) <= (1 - level) / 2."""
    ways = [1]  # ways[w]: subsets of the ranks so far whose sum is w
    for rank in range(1, count + 1):
        longer = ways + [0] * rank
        for total, each in enumerate(ways):
            longer[total + rank] += each
        ways = longer
    tail, below = 0, 0
    while below + ways[tail] <= (1 - level) / 2 * 2 ** count:
        below += ways[tail]
        tail += 1
    return tail


def interval(ratios, level=LEVEL):
    """(estimate, low, high) of the ratios' centre."""
    tail = signed_rank_tail(len(ratios), level)
    if tail == 0:
        raise ValueError(f"{len(ratios)} rounds: an interval at {level:.0%} needs {LEAST_ROUNDS}")
    logs = [math.log(ratio) for ratio in ratios]
    walsh = sorted((logs[i] + logs[j]) / 2 for i in range(len(logs)) for j in range(i, len(logs)))
    middle = (walsh[(len(walsh) - 1) // 2] + walsh[len(walsh) // 2]) / 2
    return math.exp(middle), math.exp(walsh[tail - 1]), math.exp(walsh[-tail])


def judged(row, slower):
    """What is wrong with a row; nothing where the second build is as good as the first. A trace with refused requests is
    not judged by its time: a refusal takes as long as the search for a way out of it."""
    words = []
    if row["failed"][0] or row["failed"][1]:
        pass
    elif "instructions" in row:
        ratio = row["instructions"]["ratio"]
        if ratio > slower:
            words.append(f"{ratio:.3f} x the instructions, above {slower:g}")
    elif row["low"] > slower:
        words.append(f"slower: all of the interval is above {slower:g}")
    if row["reserved_bytes"][1] > row["reserved_bytes"][0]:
        words.append("reserves more")
    if row["failed"][1] > row["failed"][0]:
        words.append("refuses more")
    return words


def markdown(rows, how, found, command, arguments):
    """The table as text."""
    which = "quickest pass" if arguments.quickest else "median pass"
    out = [f"Measured {found['date']} on {found['device']}, {found['processors']} processors of {found['processor']}.", "",
           f"    {command}", "",
           *[f"- {name}: {path}" for name, path in zip(("before", "after"), arguments.bin)], "",
           f"Time of a warm request in each process's {which}, the least of all rounds; after over before with its {LEVEL:.0%} interval "
           f"over {rows[0]['rounds'] if rows else 0} rounds" + (f"; instructions of a warm request as {how} counts them" if how else "") + ".",
           "", "| trace | manager | before, ns | after, ns | after/before | interval |" + (
               " instructions before | after | after/before |" if how else "") + " most reserved | |",
           "| --- | --- | --- | --- | --- | --- |" + (" --- | --- | --- |" if how else "") + " --- | --- |"]
    for row in rows:
        held = row["reserved_bytes"]
        reserved = "the same" if held[0] == held[1] else f"{held[0]:,} B, then {held[1]:,} B"
        cells = [row["trace"], row["manager"], *(f"{ns:.1f}" for ns in row["ns"]), f"{row['ratio']:.3f}",
                 f"{row['low']:.3f} to {row['high']:.3f}"]
        if how:
            cells += [*(f"{each:.1f}" for each in row["instructions"]["each"]), f"{row['instructions']['ratio']:.3f}"]
        refused = f"refused {row['failed'][0]}, then {row['failed'][1]}" if any(row["failed"]) else ""
        cells += [reserved, "; ".join(filter(None, [refused, *row["wrong"]])) or "ok"]
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


def compared(before, after, slower, instructions=None):
    """A row of the table, from what the two builds printed, a line of JSON for each round."""
    estimate, low, high = interval([b["ns"] / a["ns"] for a, b in zip(before, after)])
    one = after[0]
    row = {"trace": one["trace"], "manager": one["peer"], "requests": one["requests"], "rounds": len(after),
           "ns": [min(line["ns"] for line in lines) for lines in (before, after)],
           "ratio": estimate, "low": low, "high": high, "level": LEVEL,
           "rounds_ns": [[line["ns"] for line in lines] for lines in (before, after)],
           "reserved_bytes": [max(line["held"] for line in lines) for lines in (before, after)],
           "failed": [max(line["failed"] for line in lines) for lines in (before, after)]}
    if instructions:
        row["instructions"] = {"each": instructions, "ratio": instructions[1] / instructions[0]}
    row["wrong"] = judged(row, slower)
    return row


def counter():
    """How instructions are counted here: "perf", else "valgrind"; None where neither can."""
    if shutil.which("perf"):
        probe = subprocess.run(["perf", "stat", "-x,", "-e", "instructions:u", "true"], capture_output=True, text=True)
        if re.search(r"^\d+,[^,]*,instructions:u", probe.stderr, re.M):
            return "perf"
    return "valgrind" if shutil.which("valgrind") else None


def instructions_of(how, command):
    """Instructions of one process in user mode."""
    with tempfile.TemporaryDirectory() as scratch:
        log = os.path.join(scratch, "count")
        front = {"perf": ["perf", "stat", "-x,", "-e", "instructions:u", "-o", log],
                 "valgrind": ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null",
                              f"--log-file={log}"]}[how]
        subprocess.run([*front, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(log) as file:
            found = re.search({"perf": r"^(\d+),[^,]*,instructions:u", "valgrind": r"I\s+refs:\s+([\d,]+)"}[how], file.read(), re.M)
    return int(found[1].replace(",", ""))


def instructions_a_request(how, command, requests):
    """Of a warm request: what more passes over the trace add, so that the program's start is not in it. A start differs by
    some 10,000 instructions from the next, which so many requests make less than 1 in 1,000 of."""
    more = max(3, math.ceil(200_000 / requests))
    few, many = (instructions_of(how, [*command, "--latency", "0", "--warm", str(passes)]) for passes in (2, 2 + more))
    return (many - few) / (more * requests)


def ours(arguments):
    """Each manager with each door that it is called through."""
    return [(spec, door) for spec in arguments.ours for door in arguments.door]


def named(spec, door):
    return {"c++": spec, "plugin": f"{spec}, C table", "torch": f"{spec}, PyTorch's door"}[door]


def differing(arguments):
    return (["--differ", arguments.differ] if arguments.differ else []) + (
        ["--kernel", str(arguments.kernel)] if arguments.kernel is not None else [])


def measure(arguments, lists, results, end, clock):
    """Rows of the table. `results` receives every line that a build printed."""
    how = counter() if arguments.instructions else None
    if arguments.instructions and how is None:
        print("peers: instructions are not counted: neither perf counts them here nor is valgrind installed", file=sys.stderr)
    commands = [[[program, "--manager", spec, *(["--door", door] if door != "c++" else []), "--device", arguments.device,
                  *differing(arguments), "--name", named(spec, door)] for program in arguments.bin]
                for spec, door in ours(arguments)]
    found = {}
    for number in range(arguments.rounds):
        for path in lists:
            for pair in commands:
                if clock() > end:
                    print(f"peers: stopped after {number} of {arguments.rounds} rounds: {arguments.minutes:g} minutes are over",
                          file=sys.stderr)
                    break
                lines = [None, None]
                for which in (0, 1) if number % 2 == 0 else (1, 0):
                    lines[which] = one_run(pair[which], path, arguments)
                    results.append(lines[which] | {"build": which, "round": number})
                for which in (0, 1):
                    found.setdefault((path, pair[0][-1]), ([], []))[which].append(lines[which])
    rows = []
    for path in lists:
        for pair in commands:
            before, after = found.get((path, pair[0][-1]), ([], []))
            if len(after) < LEAST_ROUNDS:
                raise SystemExit(f"peers: {len(after)} rounds were made of {path}: an interval at {LEVEL:.0%} needs {LEAST_ROUNDS}")
            counts = [instructions_a_request(how, [*command, path], after[0]["requests"]) for command in pair] if how else None
            rows.append(compared(before, after, arguments.slower, counts))
    return rows, how


def one_run(command, path, arguments):
    """What a build printed of one list of requests. Ends the program with 5 where there is no device."""
    try:
        done = subprocess.run([*command, "--warm", str(arguments.warm), "--latency", "0", path], capture_output=True, text=True,
                              timeout=arguments.limit)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"peers: {command[0]} has not ended after {arguments.limit:g} s (--limit)") from None
    if done.returncode == NOT_HERE:
        print(f"peers: {done.stderr.strip()}", file=sys.stderr)
        raise SystemExit(5)
    if done.returncode != 0 or not done.stdout.strip():
        raise SystemExit(f"peers: {command[0]} ends with {done.returncode}: {done.stderr.strip() or 'no words'}")
    line = json.loads(done.stdout.splitlines()[0])
    line["ns"] = min(line["warm_passes_ns"]) if arguments.quickest else line["warm_ns"]
    line["held"] = max(line.get("reserved_first_bytes", 0), line.get("reserved_warm_bytes", 0))
    return line
