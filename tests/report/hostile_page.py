#!/usr/bin/env python3
"""Text of every kind of input on the page of emmctl report: no script of it runs, no request leaves the page, none of it is
markup, and no mark of direction in it reorders what stands beside.

    hostile_page.py EMMCTL SOURCE_FOLDER PLUGIN all|few
"""
import json
import os
import pathlib
import pickle
import shutil
import sys
import tempfile

from browser import Browser
from page_test import EVERY_WAY, emmctl, expect, expect_same, failures

SCRIPTS = ["</script><script>ran(1)</script>", "<img src=x onerror=ran(2)>", "\"><svg onload=ran(3)>", "'-ran(4)-'", "${ran(5)}",
           "<!--<script>ran(6)//", "</title></style><script>ran(7)</script>", "&lt;img src=x onerror=ran(8)&gt;",
           "<a href=\"javascript:ran(9)\">x</a>", "<iframe srcdoc=\"<script>parent.ran(10)</script>\"></iframe>", "javascript:ran(11)",
           "<link rel=stylesheet href=http://127.0.0.1:9/x>", "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
           "<base href=http://127.0.0.1:9/>", "\\u003cimg src=x onerror=ran(12)>", "]]><x-hostile onclick=ran(13)>"]
HIDDEN = "\u202e\u2066\u2028\u2029\u200b\ufeff"
HOSTILE = HIDDEN + " ".join(SCRIPTS)
LONG = "<img src=x onerror=ran(14)>" * 40000 + HOSTILE  # more than a megabyte
FILE = "a\"><img src=x onerror=ran(15)>'\u202e"  # a file's name has no slash
CLICKS_MOST = 60


def trace(text, frame=None):
    frames = [frame] if frame else [f"{text}.py:3 {text}", "train.py:1 " + text]
    lines = [{"format": "emmctl-trace", "version": "1.0", "name": text, "description": text, "source": {"framework": text, "tool": text, "command": text, "host": text},
              "devices": [{"id": 0, "name": text, "uuid": text, "capacity": 64 << 20}, {"id": 1, "name": text, "capacity": 64 << 20}]},
             {"op": "define", "kind": "site", "id": 1, "frames": frames}, {"op": "define", "kind": "thread", "id": 1, "name": text},
             {"op": "memalloc", "layer": "backing", "id": "s", "size": 32 << 20, "addr": "0x7f0000000000", "site": 1},
             {"op": "mark", "text": text, "phase": "begin"}]
    for i in range(6):
        lines.append({"op": "memalloc", "id": f"m{i}", "size": 1 << 20, "device": i % 2, "site": 1, "label": text, "addr": hex(0x7f0000000000 + (i << 20))})
    lines += [{"op": "mark", "text": text, "phase": "end"}, {"op": "memalloc", "id": "oom", "size": 80 << 20, "site": 1, "label": text, "result": "oom"},
              {"op": "free", "id": "m0"}]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def snapshot(text):
    frames = [{"filename": text, "line": 3, "name": text}]
    rows = [{"action": "segment_alloc", "addr": 1 << 40, "size": 2 << 20, "stream": 0, "time_us": 1, "frames": frames},
            {"action": "alloc", "addr": 1 << 40, "size": 1 << 20, "stream": 0, "time_us": 2, "frames": frames, "user_metadata": text, "compile_context": text},
            {"action": text, "addr": 1, "size": 1, "stream": 0, "time_us": 3},
            {"action": "oom", "device_free": 5, "size": 1 << 20, "stream": 0, "time_us": 4, "frames": frames}]
    return pickle.dumps({"segments": [], "device_traces": [rows], "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": text},
                         "external_annotations": [{"stage": "START", "name": text, "device": 0, "time_us": 2}]})


def recordings(text):
    """A file of each format that carries text, by its name."""
    line = "".join(c for c in text if c not in "\n\r\u2028\u2029").replace(",", ";")
    legacy = ("Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current Allocs,Start,End,Elapsed,Location\n"
              f"Alloc,0,0x10,0,1048576,0,0,1,0.1,0.2,0.1,{line}.py:7\nFree,0,0x10,0,1048576,0,0,0,0.3,0.4,0.1,{line}.py:9\n")
    quoted = line.replace('"', '""')
    yield "trace.jsonl", trace(text)
    yield "snapshot.pickle", snapshot(text)
    yield "legacy.csv", legacy.encode()
    yield "rmm.csv", f'Thread,Time,Action,Pointer,Size,Stream\n"{quoted}",10:00:00.000001,allocate,0x10,1024,"{quoted}"\n'.encode()
    yield "dsa.csv", f'id,lower,upper,size\n"{quoted}",0,3,1024\nb,1,4,512\n'.encode()
    yield "ops.txt", f"a {line.replace(' ', '_')} 1024\na b 512\nf b\n".encode()
    yield "events.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in (["alloc", 16, 1024, 0, 1], ["free_completed", 16, 1024, text, 2]))
    yield "cupy.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in (["alloc", 16, 1024, text], ["free", 16, 1024, text]))
    yield "profile.json", json.dumps({"traceEvents": [{"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1 + i, "s": "t", "args":
        {"Total Reserved": 2 << 20, "Total Allocated": 1 << 20, "Bytes": size, "Addr": 16, "Device Id": 0, "Device Type": 1, "Ev Idx": i, "why": text}}
        for i, size in enumerate((1 << 20, -(1 << 20)))] + [{"ph": "X", "name": text, "cat": text, "pid": text, "tid": 1, "ts": 0, "dur": 9}], "deviceProperties": [{"id": 0, "name": text}]}).encode()


def with_hostile_words(value, text):
    if isinstance(value, dict):
        return {key: each if key == "schema" else with_hostile_words(each, text) for key, each in value.items()}
    if isinstance(value, list):
        return [with_hostile_words(each, text) for each in value]
    return text if isinstance(value, str) else value


def results(folder):
    """What the commands write with --json, by command."""
    source = folder / "plain.jsonl"
    source.write_bytes(trace("plain"))
    for words in (["replay", "--manager", "pool", "--device", "sim"], ["compare", "--manager", "pool", "--manager", "cudart", "--device", "sim"], ["fit", "--manager", "pool"],
                  ["inspect"], ["explain"], ["check"], ["minimize", "--manager", "pool", "--capacity", "4MiB"]):
        out = folder / "result.json"
        emmctl(words[0], source, *words[1:], "--json", out)
        yield words[0], json.loads(out.read_text())
    for words in (["diff", source, source], ["ranks", source, source], ["conformance", "--manager", "default", "--clause", "INI-2"]):
        out = folder / "result.json"
        emmctl(*words, "--json", out)
        yield words[0], json.loads(out.read_text())


def look(browser, page):
    """Opens the page, looks at each trace in every way, and presses what can be pressed."""
    browser.requests.clear()
    browser.open(page)
    traces = browser.run("about.traces.length")
    for which in range(traces):
        browser.run(f"{EVERY_WAY}({which})")
    browser.run(f"""(async () => {{ for (const each of [...document.querySelectorAll('button, summary, th, #flame *, [tabindex], a[href]')].slice(0, {CLICKS_MOST})) {{
        each.dispatchEvent(new MouseEvent('mousemove', {{bubbles: true}})); each.click(); }} await new Promise(done => setTimeout(done, 100)); }})()""")
    expect_same(browser.run("__ran"), [], f"what ran on {page.name}")
    expect_same([url for url in browser.requests if not url.startswith("file:") and url != "about:blank"], [], f"requests of {page.name}")
    expect_same(browser.run("""[...document.querySelectorAll('img, iframe, object, embed, base, link, x-hostile, meta[http-equiv=refresh], [onerror], [onload], [onclick], [srcdoc], main script, main style')]
        .map(each => each.outerHTML.slice(0, 80)).slice(0, 3)"""), [], f"markup on {page.name}")
    expect_same(browser.run("[...document.querySelectorAll('[href], [src], [action]')].map(each => each.getAttribute('href') || each.getAttribute('src') || each.getAttribute('action')).filter(to => !/^(#|data:|https:[/][/])/.test(to)).slice(0, 3)"),
                [], f"addresses on {page.name}")
    expect_same(browser.run("[...document.documentElement.innerText + document.title].filter(c => /[\\u202a-\\u202e\\u2066-\\u2069\\u2028\\u2029\\u200b\\ufeff]/.test(c)).length"), 0,
                f"marks of direction and of no width on {page.name}")


def main():
    if not Browser.find():
        print("skipped: there is no Chromium")
        return 77
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        pages, page = [], lambda name: pages.append(folder / f"{name}.html") or pages[-1]
        plugin = folder / f"{FILE}.so"
        shutil.copy(sys.argv[3], plugin)
        read = []
        for name, content in recordings(HOSTILE):
            path = folder / (FILE + name)
            path.write_bytes(content)
            # Some formats carry numbers only, and are refused with text.
            if not os.spawnl(os.P_WAIT, sys.argv[1], sys.argv[1], "report", str(path), "-o", os.devnull):
                read.append(path)
        expect(len(read) > 3, f"{len(read)} recordings are read")
        emmctl("report", *read, "--title", HOSTILE, "-o", page("recordings"))
        emmctl("report", read[0], "--manager", plugin, "--manager", "pool", "--tune", "-o", page("managers"))
        if sys.argv[4] == "all":
            (folder / "long.jsonl").write_bytes(trace("short", f"{LONG}.py:3 f"))
            emmctl("report", folder / "long.jsonl", "--title", LONG[-100000:], "-o", page("long"))
            written = []
            for name, result in results(folder):
                written.append(folder / f"{FILE}{name}.json")
                written[-1].write_text(json.dumps(with_hostile_words(result, HOSTILE)))
            emmctl("report", *written, "-o", page("results"))
            emmctl("sweep", "-o", folder / f"{FILE}sweep", "--trace", folder / "plain.jsonl", "--manager", f"no{HOSTILE.replace('/', '')}", "--manager", "pool", "--tries", "1")
            emmctl("report", folder / f"{FILE}sweep", "-o", page("sweep"))
        with Browser() as browser:
            browser.call("Page.addScriptToEvaluateOnNewDocument", source="window.__ran = []; window.ran = n => __ran.push(n);")
            browser.open(pages[0])
            expect_same(browser.run("ran(0), __ran"), [0], "what this test would see")
            for each in pages:
                look(browser, each)
    print(f"{len(pages)} pages, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
