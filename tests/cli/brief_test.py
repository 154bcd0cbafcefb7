#!/usr/bin/env python3
"""What a command answers by default is one breath: brief_test.py EMMCTL TRACES INPUTS [EXTRA_TRACES].

At most three sentences and one command to paste, then one table, then one line that names --more. The table below has a row for each
default output: the command, and what it is asked about. Prints the words of each.
"""
import glob
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

WORDS = 120

EMMCTL, TRACES, INPUTS = (pathlib.Path(p).resolve() for p in sys.argv[1:4])
EXTRA = pathlib.Path(sys.argv[4]) if len(sys.argv) > 4 else None

# The command, its arguments, and the exit codes that it may have.
OUTPUTS = [
    ("inspect", "training.jsonl", [0]),
    ("inspect", "oom_need.jsonl", [0]),
    ("inspect", "torch_oom.pickle.gz", [0]),
    ("inspect", "state.jsonl", [0]),
    ("inspect", "memory_stats.json", [0]),
    ("inspect", "TRACES/basics/host_memory.json", [0]),
    ("inspect", "TRACES/numba/numba_589.jsonl.gz", [0]),
    ("inspect", "oom_leak.jsonl", [0]),
    ("inspect", "clocked.jsonl", [0]),
    ("inspect", "cpp_frames.jsonl", [0]),
    ("inspect", "held.pickle", [0]),
    ("inspect", "profile.json", [0]),
    ("inspect", "timeline.json", [0]),
    ("explain", "oom.log", [0]),
    ("explain", "oom_bare.log", [0]),
    ("explain", "oom_others.jsonl", [0]),
    ("explain", "oom_waste.jsonl", [0]),
    ("explain", "oom_unknown.jsonl", [0]),
    ("explain", "oom_devices.jsonl", [0]),
    ("explain", "oom_leak.jsonl", [0]),
    ("explain", "training.jsonl --capacity 4MiB", [0]),
    ("explain", "torch_oom.pickle.gz --capacity 2.91GiB", [0]),
    ("explain", "torch_oom.pickle.gz --capacity 8GiB", [0]),
    ("explain", "torch_ties.jsonl --capacity 64MiB", [0]),
    ("explain", "bfc_dump.log", [0]),
    ("explain", "memory_summary.txt", [0]),
    ("explain", "memory_stats.json", [0]),
    ("explain", "deepspeed.log", [0]),
    ("explain", "leaks.txt", [0]),
    ("explain", "oom_need.jsonl", [0]),
    ("explain", "state.jsonl", [0]),
    ("explain", "torch_oom.pickle.gz", [0]),
    ("tune", "torch_oom.pickle.gz", [1]),
    ("tune", "torch_oom.pickle.gz --capacity 8GiB", [0]),
    ("tune", "torch_oom.pickle.gz --for 'fits 1GiB'", [1]),
    ("tune", "torch_two_devices.jsonl", [0]),
    ("tune", "torch_ties.jsonl", [0]),
    ("tune", "training.jsonl --capacity 64MiB", [0]),
    ("tune", "profile.json", [0]),
    ("ranks", "fleet/rank0.jsonl fleet/rank1.jsonl fleet/rank2.jsonl", [0, 4]),
    ("ranks", "spike", [0]),
    ("ranks", "many", [0]),
    ("ranks", "two_devices.jsonl", [0]),
    ("diff", "fleet/before.jsonl fleet/before.jsonl", [0]),
    ("diff", "fleet/before.jsonl fleet/leak.jsonl", [0]),
    ("diff", "fleet/before.jsonl fleet/batch.jsonl", [0]),
    ("diff", "training.jsonl slabs.jsonl", [0]),
    ("diff", "fleet/leak.jsonl fleet/before.jsonl", [0]),
    ("fit", "not_monotone.jsonl", [0]),
    ("fit", "slabs.jsonl --manager cudart --adaptor limiting:max=16MiB", [1]),
    ("fit", "torch_oom.pickle.gz --manager pytorch", [0]),
    ("fit", "training.jsonl --manager all", [0]),
    ("fit", "TRACES/numba/numba_675.jsonl.gz", [0]),
    ("fit", "fleet/leak.jsonl --manager pytorch --manager pool", [0]),
    ("compare", "training.jsonl --device sim", [0]),
    ("compare", "training.jsonl --device sim --manager all", [0]),
    ("compare", "TRACES/basics/out_of_memory.json --device sim:capacity=1GiB --manager cudart --manager default", [0, 1]),
    ("compare", "TRACES/basics/several_devices.json --device sim:devices=2", [0]),
    ("compare", "fleet/before.jsonl --device sim --manager pool --manager pool", [0]),
    ("compare", "training.jsonl slabs.jsonl --device sim --manager pool --manager cudart", [0]),
    ("compare", "training.jsonl --device sim --manager host-only --manager pool", [0]),
]
if EXTRA and EXTRA.is_dir():
    OUTPUTS += [("inspect", shlex.quote(path), [0]) for path in sorted(glob.glob(f"{EXTRA}/torch-settings/*_s1.pickle.gz"))[::20]]
    OUTPUTS += [("tune", shlex.quote(f"{EXTRA}/cupy/cupy_science_s1.json.gz"), [0]),
                ("diff", " ".join(shlex.quote(f"{EXTRA}/torch-ranks/ddp_rank{rank}.pickle.gz") for rank in (0, 1)), [0])]
    OUTPUTS += [("ranks", shlex.quote(f"{EXTRA}/torch-ranks"), [0, 4])]

failures = 0
seen = set()  # commands whose --more and whose command to paste were tried


def expect(holds, what, text):
    global failures
    if not holds:
        failures += 1
        print(f"  {what}\n" + "".join(f"    | {line}\n" for line in text.splitlines()))


def sentences(lines):
    """Each sentence begins a line, and a sentence that is wider than a terminal goes on in the next."""
    joined = " ".join(lines)
    return sum(1 for i, line in enumerate(lines) if i == 0 or lines[i - 1].rstrip().endswith((".", ":"))) if joined else 0


def judge(command, arguments, codes, folder):
    words = [word.replace("TRACES", str(TRACES)) for word in shlex.split(arguments)]
    done = subprocess.run([EMMCTL, command, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    text = done.stdout
    count = len(text.split())
    print(f"{count:5}  {command:8} {arguments}")
    expect(done.returncode in codes, f"exit code {done.returncode}: {done.stderr}", text)
    expect(0 < count <= WORDS, f"{count} words: expected at most {WORDS}", text)
    parts = text.rstrip("\n").split("\n\n")
    head = parts[0].split("\n")
    at = [i for i, line in enumerate(head) if line.startswith("Next: ")]
    expect(len(at) <= 1, "expected one command", text)
    answer = head[:at[0]] if at else head
    expect(1 <= sentences(answer) <= 3, f"{sentences(answer)} sentences: expected at most three", text)
    tables = [part for part in parts[1:] if part.startswith("  ")]
    expect(len(tables) <= 1, "expected one table", text)
    rest = parts[1 + len(tables):]
    # What differs in nothing has no more to show.
    expect(len(rest) == 1 and rest[0].startswith("--more shows ") or not rest and not tables, "expected a last line that names --more", text)
    first = command not in seen
    seen.add(command)
    if rest and first:
        more = subprocess.run([EMMCTL, command, *words, "--more"], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, timeout=120, check=False)
        expect(more.returncode == done.returncode, f"exit code {more.returncode} with --more", more.stdout)
        expect(more.stdout != text and "--more" not in more.stdout, "expected another answer with --more", more.stdout)
    if at and first and head[at[0]].startswith("Next: emmctl "):  # the command is whole
        shell = "\n".join(head[at[0]:]).removeprefix("Next: ")
        env = dict(os.environ, PATH=f"{EMMCTL.parent}:{os.environ['PATH']}")
        pasted = subprocess.run(["bash", "-c", shell], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        expect(pasted.returncode in (0, 1), f"'{shell}' exits with {pasted.returncode}: {pasted.stderr}", text)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "work"
        subprocess.run(["cp", "-r", INPUTS, folder], check=True)
        (folder / "many").mkdir()
        for rank in range(40):
            kept = 1_000_000 * (1 + rank % 7)
            lines = ['{"format":"emmctl-trace","version":"1.0"}']
            lines += [f'{{"op":"memalloc","id":{i},"size":{kept + i}}}' for i in range(1, 6)]
            (folder / f"many/a run of a long name, rank{rank}.jsonl").write_text("\n".join(lines) + "\n")
        for command, arguments, codes in OUTPUTS:
            judge(command, arguments, codes, folder)
    return 1 if failures else 0


sys.exit(main())
