#!/usr/bin/env python3
"""Recordings of real ranks: the tightest and the reason, in the first two lines: real_ranks.py EMMCTL EXTRA_TRACES"""
import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "none") / "torch-ranks"
EXPECTED = {
    # Uneven stages of 2, 4, 4 and 9 layers.
    "pipe": (r"Rank 3 is the tightest: its device held 6\.06 GiB at most, 1\.88 GiB more than rank 1",
             r"2\.23 GiB more live .* the most is .* functional\.py:\d+ relu: 53 of 16\.00 MiB against 23", r"Ranks 1, 2 make the same requests to the end"),
    # Rank 2 has the long sequences.
    "ddp": (r"Rank 2 is the tightest: its device held 5\.28 GiB at most, 742\.00 MiB more than rank 1",
            r"433\.69 MiB more live .* in as many allocations .* which are larger", r"part, make \d+ requests alike"),
}
if not FOLDER.is_dir():
    print(f"skipped: no {FOLDER}")
    sys.exit(77)
for name, (first, second, later) in EXPECTED.items():
    done = subprocess.run([sys.argv[1], "ranks", "--more", f"{FOLDER}/{name}_rank*"], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    for pattern, text in ((first, lines[0]), (second, lines[1]), (later, "\n".join(lines[2:]))):
        if not re.search(pattern, text):
            sys.exit(f"{name}: expected {pattern}, not: {text}")
    same = subprocess.run([sys.argv[1], "diff", FOLDER / f"{name}_rank1.pickle.gz", FOLDER / f"{name}_rank1.pickle.gz"],
                          capture_output=True, text=True, check=True)
    if not same.stdout.startswith("Nothing differs"):
        sys.exit(f"{name}: a run differs from itself: {same.stdout}")
print(f"{len(EXPECTED)} sets of ranks")
