#!/usr/bin/env python3
"""Holds the arrows of src/layers.txt: prints file:line of every include that goes against them."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Third parties have one home each.
HOMES = {
    "nlohmann/": {"src/format/json_reader.cpp"},
    "CLI/": {"src/cli/main.cpp"},
    "cuda.h": None,  # anywhere in src/driver/cuda
    "zlib.h": None,
    "zstd.h": None,
}


def arrows():
    allowed = {}
    for line in (ROOT / "src/layers.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            name, _, uses = line.partition(":")
            allowed[name] = set(uses.split()) | {name}
    return allowed


def layer_of(path):
    parts = path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "src" else parts[0]


def main():
    allowed = arrows()
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
            if match[1] == '"' and "/" in target and first in allowed and first not in allowed[layer]:
                print(f"{name}:{number}: error: {layer} may not include {target}")
                found += 1
            for prefix, homes in HOMES.items():
                if not target.startswith(prefix) or layer == "tests":
                    continue
                home = name in homes if homes else name.startswith(("src/driver/cuda/", "src/format/"))
                if not home:
                    print(f"{name}:{number}: error: {target} is included outside its home")
                    found += 1
    print(f"{len(files)} files, {found} wrong arrows")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
