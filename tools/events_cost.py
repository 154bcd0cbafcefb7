#!/usr/bin/env python3
"""What reading a trace takes as it grows: tools/events_cost.py EMMCTL [-o PICTURE.svg] [--folder F] [--upto N] [--had ROWS.json]

Makes compact traces of 10^5 events, 10^6 and so on, with 1,000 allocations live, and prints a table: for each command the
processor time of all threads for each event, and the most host memory. Traces that are in the folder already are taken as they
are; --had adds rows that were measured before, as --json writes them.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import tempfile

COMMANDS = {
    "check": "check {}",
    "inspect": "inspect {}",
    "replay, null": "replay {} --manager null --device sim:costs=none",
}
COLOURS = {"check": "#38761d", "inspect": "#0b5394", "replay, null": "#a64d00"}


def measured(command):
    """Seconds of processor time and bytes of the most host memory."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status != 0:
        raise SystemExit(f"{command}: status {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def picture(rows):
    """Seconds of processor time (line) and memory (dashes) over events, all on logarithmic scales."""
    width, height, left, right, top, bottom = 640, 340, 66, 76, 20, 46
    sizes = sorted({row["events"] for row in rows})
    low, high = sizes[0], max(sizes[-1], sizes[0] * 10)
    x = lambda events: left + (width - left - right) * math.log10(events / low) / math.log10(high / low)
    y = lambda part: height - bottom - (height - top - bottom) * part
    y_seconds = lambda seconds: y(math.log10(max(seconds, 0.01) / 0.01) / 5)
    y_memory = lambda size: y(math.log10(size / 2**20) / 5)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    for events in sizes:
        out += [f'<line x1="{x(events):.1f}" y1="{top}" x2="{x(events):.1f}" y2="{height - bottom}" stroke="#dddddd"/>',
                f'<text x="{x(events):.1f}" y="{height - bottom + 16}" text-anchor="middle">10<tspan dy="-5" font-size="9">'
                f'{round(math.log10(events))}</tspan></text>']
    for power in range(6):
        at = y(power / 5)
        out += [f'<line x1="{left}" y1="{at:.1f}" x2="{width - right}" y2="{at:.1f}" stroke="#dddddd"/>',
                f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{0.01 * 10**power:,g} s</text>',
                f'<text x="{width - right + 6}" y="{at + 4:.1f}">{10**power:,} MiB</text>']
    for at, (name, colour) in enumerate(COLOURS.items()):
        mine = sorted((row for row in rows if row["command"] == name), key=lambda row: row["events"])
        for value, dashes in ((lambda row: y_seconds(row["seconds"]), ""), (lambda row: y_memory(row["memory"]), ' stroke-dasharray="5 3"')):
            points = " ".join(f'{x(row["events"]):.1f},{value(row):.1f}' for row in mine)
            out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        out.append(f'<text x="{left + 8}" y="{top + 14 + 16 * at}" fill="{colour}">{name}</text>')
    out += [f'<text x="{(left + width - right) / 2:.0f}" y="{height - 8}" text-anchor="middle">events</text>',
            f'<text x="{left + 8}" y="{top + 14 + 16 * len(COLOURS)}">processor time; dashed: most host memory</text>', "</svg>"]
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("emmctl")
    parser.add_argument("-o", metavar="PICTURE.svg")
    parser.add_argument("--folder", type=pathlib.Path, help="where the traces are, or come")
    parser.add_argument("--upto", type=float, default=1e8, help="the most events")
    parser.add_argument("--had", type=pathlib.Path, help="rows of an earlier run")
    parser.add_argument("--json", type=pathlib.Path, help="writes the rows")
    options = parser.parse_args()
    rows = json.loads(options.had.read_text()) if options.had else []
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or pathlib.Path(made)
        for power in range(5, 12):
            events = 10**power
            if events > options.upto:
                break
            trace = folder / f"1e{power}.emmb"
            if not trace.exists():
                subprocess.run([options.emmctl, "generate", "log-uniform", trace, "--events", str(events)], check=True,
                               stderr=subprocess.DEVNULL)
            for name, command in COMMANDS.items():
                if any(row["events"] == events and row["command"] == name for row in rows):
                    continue
                seconds, memory = measured([options.emmctl, *command.format(trace).split()])
                rows.append({"events": events, "command": name, "seconds": seconds, "memory": memory})
    print("| events | " + " | ".join(f"`{name}`" for name in COMMANDS) + " |")
    print("| --- |" + " --- |" * len(COMMANDS))
    for events in sorted({row["events"] for row in rows}):
        cells = []
        for name in COMMANDS:
            found = [row for row in rows if row["events"] == events and row["command"] == name]
            cells.append(f'{found[0]["seconds"]:,.2f} s, {1e9 * found[0]["seconds"] / events:,.0f} ns, '
                         f'{found[0]["memory"] / 2**20:,.0f} MiB' if found else "")
        print(f"| {events:,} | " + " | ".join(cells) + " |")
    if options.json:
        options.json.write_text(json.dumps(rows))
    if options.o:
        pathlib.Path(options.o).write_text(picture(rows))


if __name__ == "__main__":
    main()
