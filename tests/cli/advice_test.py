#!/usr/bin/env python3
"""What `tune` and `explain` advise first: advice_test.py EMMCTL [--all | --every] FOLDER...

Of each recording in the folders, with the capacity that it tells and with two of ten others, each of which has its turn (--every: with all
ten): both commands advise the same (of a program of another framework `tune` alone advises);
what they advise serves the whole program in a replay with that capacity, and its driver calls take at most 3 % more than those of the
best; or both say that nothing serves it, and nothing does. Then the words of each default output are counted.
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import threading

WORDS, ALIKE, PLENTY, PAGE = 120, 1.03, 4 << 30, 2 << 20
SHARES = (1.3, 1.1, 1.05, 1.02, 1.0, 0.97, 0.95, 0.9, 0.85, 0.8)
SMALL = ("torch_oom.pickle.gz", "torch_mlp_stacks.pickle.gz")
RECORDINGS = ("*.pickle.gz", "torch_*.json.gz", "cupy_*.json.gz", "numba_*.jsonl.gz", "*.csv", "*.csv.gz", "*replay*.json", "*.replay.gz")


class Said(threading.local):
    """What this thread has to say of its recording."""

    lines, failures = [], 0


said = Said()


def say(line):
    said.lines.append(line)


def expect(holds, what):
    if not holds:
        said.failures += 1
        say(f"  FAILED: {what}")


def run(emmctl, *words):
    return subprocess.run([emmctl, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def asked(emmctl, command, trace, *options):
    done = run(emmctl, command, trace, "--json", "-", *options)
    return json.loads(done.stdout) if done.stdout.startswith("{") else None


def serves(emmctl, trace, advised, capacity, limited):
    """Replays the whole program as advised. A capacity that is a memory fraction is given as one, and so is one that the advice sets."""
    manager = advised["manager"]
    if manager != "pool":
        is_fraction = limited or "set_per_process_memory_fraction" in advised["how"]
        bound = f"limit={capacity}" if is_fraction else "limit=4TiB"
        manager += ("," if ":" in manager else ":") + bound
    elif limited:
        manager += f":max={capacity // (2 << 20) * (2 << 20)}"
    device = "sim:capacity=4TiB" if limited else f"sim:capacity={capacity // (2 << 20) * (2 << 20)}"
    told = json.loads(run(emmctl, "replay", trace, "--manager", manager, "--device", device, "--json", "-").stdout)
    return told["failures"] == 0 and told["outcomes"]["fails_fails"] == 0


def judge(emmctl, trace, *options):
    tuned, explained = asked(emmctl, "tune", trace, *options), asked(emmctl, "explain", trace, *options)
    what = f"{trace.name} {' '.join(map(str, options))}"
    if tuned is None:
        say(f"{what}: not judged")
        return None
    advice, capacity = tuned["advice"], tuned["capacity_bytes"]
    say(f"{what}: {advice['words']}")
    if explained is not None and "advice" in explained:
        expect(explained["advice"] == tuned["advice"], f"explain advises {explained['advice']}, tune {tuned['advice']}")
    else:
        # explain, when it is not asked about a capacity, advises on a program that has run out of memory.
        fits = explained is not None and not explained.get("failure_count")
        expect(not options and (capacity is None or fits) or "does not read PyTorch's settings" in advice["words"], "explain advises nothing")
    ranked = next(row for row in tuned["ranking"] if row["manager"] == advice["manager"])
    expect(advice["serves"] == ranked["served"], "the ranking says otherwise than the advice")
    if capacity is None:
        return tuned
    limited = tuned["capacity_of"] == "fraction"
    if advice["serves"]:
        expect(serves(emmctl, trace, advice, capacity, limited), f"{advice['manager']} fails with {capacity}")
        best = min(row["lost_ns"] for row in tuned["ranking"] if row["served"])
        expect(ranked["lost_ns"] <= ALIKE * best, f"{advice['manager']} loses {ranked['lost_ns']} ns, another {best}")
    else:
        expect(not any(row["served"] for row in tuned["ranking"]), "something serves it")
        today = next((row for row in tuned["ranking"] if row["today"]), tuned["ranking"][0])
        expect(not serves(emmctl, trace, today, capacity, limited), f"{today['manager']} serves it")
        # Nothing is to be pasted that does not serve the program then.
        is_device = tuned["capacity_of"] == "device"
        expect(not is_device or not advice["how"] or advice["smaller_batch"], f"{advice['how']} is advised, and does not serve it")
    return tuned


def count_words(emmctl, command, trace, *options):
    done = run(emmctl, command, trace, *options)
    words = len(done.stdout.split())
    say(f"{words:5}  {command} {trace.name} {' '.join(map(str, options))}")
    expect(0 < words <= WORDS, f"expected at most {WORDS} words:\n{done.stdout}")
    lines = done.stdout.splitlines()
    expect(any("--more shows " in line for line in lines), f"no line names --more:\n{done.stdout}")
    more = run(emmctl, command, trace, "--more", *options)
    expect(more.returncode == done.returncode and more.stdout != done.stdout, f"{command} --more")


def shares_of(number, how):
    """The shares of today's need that the recording with this number is asked about."""
    if how == "--every":
        return SHARES
    return (1.02, 0.9) if how is None else (SHARES[number % 5], SHARES[number % 5 + 5])


def judge_recording(emmctl, trace, shares):
    """Returns the lines to print and the number of failures."""
    said.lines, said.failures = [], 0
    tuned = judge(emmctl, trace)
    if tuned is None:
        return said.lines, said.failures
    today = next((row for row in tuned["ranking"] if row["today"]), tuned["ranking"][0])
    expect(today["fit_bytes"], f"{today['manager']} fits nowhere")
    capacities = [max(PAGE, int(share * (today["fit_bytes"] or PLENTY))) for share in shares]
    for capacity in capacities:
        judge(emmctl, trace, "--capacity", capacity)
    for command, *options in [("tune",), ("tune", "--capacity", capacities[-1]), ("explain", "--capacity", capacities[-1])]:
        count_words(emmctl, command, trace, *options)
    if tuned["capacity_bytes"]:
        count_words(emmctl, "explain", trace)
    return said.lines, said.failures


def main():
    emmctl, *folders = [word for word in sys.argv[1:] if not word.startswith("--")]
    how = next((word for word in sys.argv[1:] if word.startswith("--")), None)
    emmctl = pathlib.Path(emmctl).resolve()
    found = sorted(path for folder in folders for pattern in RECORDINGS for path in pathlib.Path(folder).rglob(pattern))
    traces = [trace for trace in found if how or trace.name in SMALL]
    failures = 0
    # tune itself uses several processors, most of the time.
    with concurrent.futures.ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)) // 2)) as pool:
        judged = [pool.submit(judge_recording, emmctl, trace, shares_of(number, how)) for number, trace in enumerate(traces)]
        for one in concurrent.futures.as_completed(judged):
            lines, failed = one.result()
            print("\n".join(lines), flush=True)
            failures += failed
    print(f"{len(traces)} recordings, {failures} failures")
    return 1 if failures or not traces else 0


sys.exit(main())
