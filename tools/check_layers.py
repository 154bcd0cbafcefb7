#!/usr/bin/env python3
"""Holds the arrows of src/layers.txt: prints file:line of every include that goes against them."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Third parties have one home each.
HOMES = {
    "nlohmann/": {"src/core/format/json_reader.cpp"},
    "CLI/": {"src/cli/main.cpp"},
    "cuda.h": None,  # anywhere in src/core/driver/cuda
    "zlib.h": None,
    "zstd.h": None,
}


def arrows():
    """The rooms that each room may include, its own among them, and the wing of each room."""
    allowed, wing_of, below = {}, {}, {}
    for line in (ROOT / "src/layers.txt").read_text().splitlines():
        name, _, uses = line.split("#")[0].strip().partition(":")
        if name.startswith("wing "):
            wing = name.split()[1]
            rooms, _, over = uses.partition("over")
            wing_of |= {room: wing for room in rooms.split()}
            below[wing] = set(over.split()) | {wing}
        elif name:
            allowed[name] = set(uses.split()) | {name}
    rooms = set(allowed)
    for wing, wings in below.items():  # whatever else a room says, it stays above what is below its wing
        reachable = {room for room in rooms if wing_of.get(room) in wings}
        for room in (room for room in wing_of if wing_of[room] == wing):
            allowed[room] &= reachable | {"managers"}
        allowed[f"{wing}/commands"] = reachable | {"managers", "cli", "commands"}
    allowed["cli"].add("commands")
    allowed["tests"] = rooms | {"commands"}
    return allowed, rooms | {"commands"}


def layer_of(path):
    """The room that a file is in: of src/core/trace/event.hpp it is trace, of src/core/commands/replay.cpp core/commands."""
    parts = path.relative_to(ROOT).parts
    if parts[0] != "src" or parts[1] == "cli":
        return parts[1] if parts[0] == "src" else parts[0]
    return f"{parts[1]}/commands" if parts[2] == "commands" else parts[2]


def main():
    allowed, rooms = arrows()
    found = 0
    files = [p for top in ("src", "managers", "tests") for p in (ROOT / top).rglob("*.[ch]pp")]
    for path in sorted(files):
        layer, name = layer_of(path), str(path.relative_to(ROOT))
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
            if not match:
                continue
            target = match[2]
            first = target.split("/")[0]
            wrong = first in rooms and first not in allowed[layer]
            if first == "commands" and layer.endswith("/commands"):  # of its own wing
                wrong = not (ROOT / "src" / layer.split("/")[0] / target).exists()
            if match[1] == '"' and "/" in target and wrong:
                print(f"{name}:{number}: error: {layer} may not include {target}")
                found += 1
            for prefix, homes in HOMES.items():
                if not target.startswith(prefix) or layer == "tests":
                    continue
                home = name in homes if homes else name.startswith(("src/core/driver/cuda/", "src/core/format/"))
                if not home:
                    print(f"{name}:{number}: error: {target} is included outside its home")
                    found += 1
    print(f"{len(files)} files, {found} wrong arrows")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
