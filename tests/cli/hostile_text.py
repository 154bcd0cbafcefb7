#!/usr/bin/env python3
"""No byte that a terminal obeys comes from a file: every command, over recordings whose every string is hostile, and a
plugin whose words are.

    hostile_text.py EMMCTL PLUGIN
"""
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile

# Controls of seven and eight bits, ends of lines that begin a line of their own, marks of direction, no width.
HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\nFORGED: line\x00\x7f\x9b31m\u0085\u202e\u2066\u200b\u2028FORGED\ufeffx"
HIDDEN = [*range(0x20), *range(0x7f, 0xa0), *range(0x200b, 0x2010), *range(0x2028, 0x202f), *range(0x2060, 0x2070), 0xfeff]
NAME = "\x1b[31m\u202e\x07" + "\nFORGED: file"


def trace(fails):
    """In emmctl's own format, whose ids are plain words; frames, labels, marks and the header are not."""
    frames = [HOSTILE + ".py:3 " + HOSTILE, "/lib/python3/" + HOSTILE + ".py:1 f", "train.py:1 " + HOSTILE]
    out = [{"format": "emmctl-trace", "version": "1.0", "name": HOSTILE, "description": HOSTILE, "requires": ["streams"],
            "source": {"framework": HOSTILE, "tool": HOSTILE, "command": HOSTILE, "host": HOSTILE},
            "devices": [{"id": 0, "name": HOSTILE, "uuid": HOSTILE, "capacity": 64 << 20}]},
           {"op": "define", "kind": "site", "id": "here", "frames": frames},
           {"op": "memalloc", "id": "seg", "size": 32 << 20, "layer": "backing", "addr": "0x7f0000000000"}]
    for step in range(4):
        out.append({"op": "mark", "text": f"{HOSTILE} {step}", "phase": "begin"})
        for each in range(2):
            out.append({"op": "memalloc", "id": f"a{step}.{each}", "size": 1 << 20, "site": "here", "thread": f"t{each}",
                        "addr": hex(0x7f0000000000 + ((2 * step + each) << 20)), "label": HOSTILE})
        out.append({"op": "mark", "text": f"{HOSTILE} {step}", "phase": "end"})
    if fails:
        out.append({"op": "memalloc", "id": "oom", "size": 80 << 20, "site": "here", "label": HOSTILE, "result": "oom"})
    out.append({"op": "free", "id": "a0.0", "thread": "t1", "expect": "error"})
    return b"".join(json.dumps(line).encode() + b"\n" for line in out)


def snapshot():
    """Of PyTorch, with bytes that are no UTF-8."""
    mark = "INVALID!"
    frames = [{"filename": HOSTILE + mark, "line": 3, "name": HOSTILE + mark}]
    rows = [{"action": "segment_alloc", "addr": 1 << 40, "size": 2 << 20, "stream": 0, "time_us": 1, "frames": frames},
            {"action": "alloc", "addr": 1 << 40, "size": 1 << 20, "stream": 0, "time_us": 2, "frames": frames,
             "user_metadata": HOSTILE + mark},
            {"action": HOSTILE + mark, "addr": 1, "size": 1, "stream": 0, "time_us": 3},
            {"action": "oom", "device_free": 5, "size": 1 << 20, "stream": 0, "time_us": 4, "frames": frames}]
    out = pickle.dumps({"segments": [], "device_traces": [rows], "allocator_settings": {},
                        "external_annotations": [{"stage": "START", "name": HOSTILE + mark, "device": 0, "time_us": 2}]})
    return out.replace(mark.encode(), b"\xff\xc3(\x9b\xed\xa0\x80")


def rmm_legacy():
    raw = HOSTILE.replace("\n", "").replace("\r", "").replace("\x00", "").encode() + b"\xff\x9b"
    return (b"Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current Allocs,Start,End,Elapsed,Location\n"
            b"Alloc,0,0x10,0,1048576,0,0,1,0.1,0.2,0.1," + raw + b".py:7\n")


def is_bad(data, name):
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"no UTF-8: {error}"
    for at, char in enumerate(text):
        if char != "\n" and ord(char) in HIDDEN:
            return f"{char!r} in {text[max(0, at - 60):at + 20]!r}"
    forged = [line for line in text.split("\n") if line.startswith("FORGED")]
    return f"a line of a file as a line of its own: {forged[0]!r}" if forged else None


def commands(path):
    yield from (["inspect", path], ["inspect", path, "--all-frames", "--top", "50"], ["inspect", path, "--map", "5"],
                ["inspect", path, "--limit"], ["inspect", path, "--json", "-"], ["inspect", path, "--svg", "-"],
                ["explain", path], ["explain", path, "--all-frames"], ["explain", path, "--json", "-"],
                ["explain", path, "--capacity", "4MiB"], ["explain", path, "--event", "3"], ["check", path], ["check", path, "--json", "-"],
                ["convert", path, "-"], ["convert", path, "-", "--to", "rmm-csv"], ["convert", path, "-", "--to", "chrome-trace"],
                ["convert", path, "out" + NAME, "--json", "-"])
    for manager in ("pool", "cudart", "default"):
        for extra in ([], ["--all-frames"], ["--json", "-"], ["--log", "-", "--log-format", "rmm-legacy"],
                      ["--log", "-", "--log-format", "emm"], ["--memory-map", "-"], ["--stop-at", "9"], ["--repeat", "2"],
                      ["--adaptor", "tracking"], ["--fail-on", "leak"]):
            yield ["replay", path, "--manager", manager, "--device", "sim:capacity=4MiB", *extra]
    yield from (["ranks", path, path], ["ranks", path, "--json", "-"], ["diff", path, path], ["diff", path, path, "--json", "-"])
    yield from (["fit", path, "--manager", "pool"], ["fit", path, "--manager", "cudart", "--all-frames"],
                ["fit", path, "--manager", "pool", "--json", "-"],
                ["minimize", path, "--manager", "pool", "--capacity", "4MiB"],
                ["minimize", path, "--manager", "pool", "--capacity", "4GiB"],
                ["minimize", path, "--manager", "pool", "--capacity", "4MiB", "-o", "out" + NAME, "--json", "-"],
                ["compare", path, "--manager", "pool", "--manager", "cudart", "--device", "sim:capacity=4MiB"],
                ["compare", path, "--manager", "cudart", "--device", "sim:capacity=4MiB", "--json", "-"])


def mistakes():
    yield from ([HOSTILE.replace("\0", "")], ["inspect", "none" + NAME], ["replay", "a", "--manager", "x/" + NAME], ["fit", "a", "--manager", NAME],
                ["replay", "a", "--device", NAME], ["explain", "a", "--capacity", NAME], ["inspect", "a", "--" + NAME],
                ["inspect", "a", "--from", NAME], ["convert", "a", "b", "--to", NAME], ["generate", NAME, "x"], ["list", NAME],
                ["plugin", "new", NAME], ["conformance", "--manager", NAME], ["conformance", "--clause", NAME], ["adversary", "--manager", NAME],
                ["replay", "a", "--log-format", NAME], ["replay", "a", "--fault", NAME], ["replay", "a", "--adaptor", NAME])


def main():
    emmctl = str(pathlib.Path(sys.argv[1]).resolve())
    found, runs = [], 0
    sys.argv[2] = os.path.abspath(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        files = {"trace" + NAME: trace(False), "oom" + NAME: trace(True), "snapshot" + NAME: snapshot(), "legacy" + NAME: rmm_legacy()}
        for name, content in files.items():
            pathlib.Path(name).write_bytes(content)
        pathlib.Path("a").write_bytes(trace(True))

        def look(arguments, **more):
            nonlocal runs
            done = subprocess.run([emmctl, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=120, **more)
            runs += 1
            if done.returncode in (70, 134, 139) or done.returncode < 0:
                found.append(f"{arguments!r}: exit {done.returncode}: {done.stderr[-200:]!r}")
            for which, data in (("stdout", done.stdout), ("stderr", done.stderr)):
                if bad := is_bad(data, which):
                    found.append(f"{arguments!r}: {which}: {bad}")
            return done.returncode

        for path in files:
            loaded = look(["check", path])
            if loaded not in (0, 4):
                found.append(f"{path!r}: check ends with {loaded}: the file was to be read")
            for arguments in commands(path):
                look(arguments)
        for arguments in mistakes():
            look(arguments)
        listed = subprocess.run([emmctl, "list", "formats", "--json", "-"], capture_output=True, check=True).stdout
        for name in [row["format"] for row in json.loads(listed)["rows"] if row["read"] != "no"]:
            for path in files:
                look(["check", path, "--from", name])
                look(["inspect", path, "--from", name, "--partial"])
        plugin = sys.argv[2]
        for arguments in (["replay", "a"], ["replay", "a", "--json", "-"], ["replay", "a", "--on-oom", "stop"], ["fit", "a"],
                          ["minimize", "a", "--capacity", "4MiB"], ["compare", "a", "--device", "sim"], ["conformance"],
                          ["conformance", "--json", "-"], ["conformance", "--junit", "-"], ["conformance", "--tap", "-"]):
            look([*arguments, "--manager", plugin])
        look(["doctor"], env={**os.environ, "EMM_MEMORY_MANAGER": NAME})
    print(f"{runs} runs")
    for each in found[:40]:
        print(each)
    if len(found) > 40:
        print(f"... and {len(found) - 40} more")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
