#!/usr/bin/env python3
"""What `emmctl ranks` takes from 1 to 256 recordings: tools/ranks_cost.py EMMCTL [-o PICTURE.svg] [--model]

Makes four snapshots of 100,000 rows, links them under as many names as there are ranks, and prints a table: processor time of
all threads and the most host memory. --model adds what many cores would do: the recordings are read side by side, each by one
core; then one thread compares the ranks. How much is of which is counted in instructions, which other work on the machine does
not change.
"""
import argparse
import math
import os
import pathlib
import subprocess
import tempfile

RANKS = [1, 4, 16, 64, 256]
GENERATE = "generate generational {} --to torch --events 40000 --stacks 300 --depth 20 --own-stacks --seed {}"


def measured(command):
    """Seconds of processor time and bytes of the most host memory."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status != 0:
        raise SystemExit(f"{command}: status {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def instructions(command):
    """In user space, by valgrind."""
    with tempfile.TemporaryDirectory() as made:
        out = pathlib.Path(made) / "out"
        subprocess.run(["valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={out}", *command],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return next(int(line.split()[1]) for line in out.read_text().splitlines() if line.startswith("summary:"))


def picture(rows):
    """Seconds of processor time (line) and memory (dashes) over ranks, both on logarithmic scales."""
    width, height, left, right, top, bottom = 660, 300, 60, 84, 20, 46
    x = lambda ranks: left + (width - left - right) * math.log2(ranks) / 8
    y = lambda value, low, high: height - bottom - (height - top - bottom) * math.log10(value / low) / math.log10(high / low)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    for ranks in RANKS:
        out += [f'<line x1="{x(ranks):.1f}" y1="{top}" x2="{x(ranks):.1f}" y2="{height - bottom}" stroke="#dddddd"/>',
                f'<text x="{x(ranks):.1f}" y="{height - bottom + 16}" text-anchor="middle">{ranks}</text>']
    for seconds in (0.1, 1, 10, 100):
        at = y(seconds, 0.1, 100)
        out += [f'<line x1="{left}" y1="{at:.1f}" x2="{width - right}" y2="{at:.1f}" stroke="#dddddd"/>',
                f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end" fill="#0b5394">{seconds:g} s</text>',
                f'<text x="{width - right + 6}" y="{at + 4:.1f}" fill="#a64d00">{seconds * 100:,.0f} MiB</text>']
    for column, low, high, colour, dashes in ((1, 0.1, 100, "#0b5394", ""), (2, 10, 10000, "#a64d00", ' stroke-dasharray="5 3"')):
        points = " ".join(f"{x(row[0]):.1f},{y(row[column], low, high):.1f}" for row in rows)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        out += [f'<circle cx="{x(row[0]):.1f}" cy="{y(row[column], low, high):.1f}" r="3" fill="{colour}"/>' for row in rows]
    out += [f'<text x="{(left + width - right) / 2:.0f}" y="{height - 8}" text-anchor="middle">ranks of 100,000 rows each</text>',
            f'<text x="{left + 8}" y="{top + 14}" fill="#0b5394">processor time</text>',
            f'<text x="{left + 8}" y="{top + 30}" fill="#a64d00">most host memory (dashed)</text>', "</svg>"]
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("emmctl", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path)
    parser.add_argument("--model", action="store_true", help="also the model of many cores; wants valgrind")
    options = parser.parse_args()
    emmctl = options.emmctl.resolve()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        for seed in range(1, 5):
            subprocess.run([emmctl, *GENERATE.format(folder / f"made{seed}.pickle", seed).split()], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rows = []
        print("| ranks | processor time | a rank | most host memory |\n| --- | --- | --- | --- |")
        for ranks in RANKS:
            run = folder / f"of{ranks}"
            run.mkdir()
            for rank in range(ranks):
                os.link(folder / f"made{rank % 4 + 1}.pickle", run / f"rank{rank}.pickle")
            seconds, memory = measured([emmctl, "ranks", run, "--jobs", "2"])
            rows.append((ranks, seconds, memory / 2 ** 20))
            print(f"| {ranks} | {seconds:.2f} s | {seconds / ranks:.3f} s | {memory / 2 ** 20:.0f} MiB |", flush=True)
        if options.output:
            options.output.write_text(picture(rows))
        if not options.model:
            return
        begin = instructions([emmctl, "--version"])
        one, some = (instructions([emmctl, "ranks", folder / f"of{ranks}", "--jobs", "1"]) for ranks in (1, 4))
        reading = one - begin
        comparing = (some - begin - 4 * reading) / 4
        print(f"\nOf a rank: {reading / 1e6:,.0f} M instructions to read it, {comparing / 1e6:,.1f} M to compare it.")
        second = (rows[-1][1] - rows[0][1]) / (RANKS[-1] - 1) / (reading + comparing)  # an instruction
        print("A model: the recordings are read side by side, then one thread compares.\n\n| ranks | cores | reading | comparing |\n"
              "| --- | --- | --- | --- |")
        for ranks, cores in ((256, 2), (256, 256), (1000, 1000), (10000, 1000)):
            print(f"| {ranks} | {cores} | {-(-ranks // cores) * reading * second:.2f} s | {ranks * comparing * second:.2f} s |")


if __name__ == "__main__":
    main()
