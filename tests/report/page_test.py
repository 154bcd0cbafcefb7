#!/usr/bin/env python3
"""The page of emmctl report in a browser: it opens, zooms, drags and answers the keyboard; the numbers under the cursor are
those of the trace and of `emmctl inspect`; nothing is asked of a network, and nothing is complained of.

    page_test.py EMMCTL SOURCE_FOLDER
"""
import gzip
import json
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile

from browser import Browser
from measure import drag, middle

EMMCTL, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
GPT2 = SOURCE / "traces/torch/torch_gpt2_train_varlen.jsonl.gz"
failures = []


def expect(true, words):
    if not true:
        failures.append(words)
        print("FAILED", words)


def expect_same(saw, wanted, words):
    expect(saw == wanted, f"{words}: saw {saw}, expected {wanted}")


def emmctl(*arguments):
    done = subprocess.run([EMMCTL, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
    if done.returncode not in (0, 1, 3):
        raise RuntimeError(f"emmctl {arguments}: {done.stderr.decode()}")
    return done.stdout


def live_by_event(path):
    """Live and reserved bytes after each event, by a few lines that know nothing of the program."""
    live, reserved, sizes, after = 0, 0, {}, []
    with gzip.open(path, "rt") as lines:
        next(lines)
        for line in lines:
            event = json.loads(line)
            if event["op"] in ("define", "end"):
                continue
            backing = event.get("layer") == "backing"
            change = 0
            if event["op"] == "memalloc" and event.get("result", "ok") == "ok":
                sizes[event["id"]] = (backing, event["size"])
                change = event["size"]
            elif event["op"] == "free" and event["id"] in sizes and sizes[event["id"]][0] == backing:
                change = -sizes.pop(event["id"])[1]
            if backing:
                reserved += change
            else:
                live += change
            after.append((live, reserved))
    return after


def number(text):
    return int(text.replace(",", ""))


def quiet(browser, page):
    # A telephone's width: tables scroll by themselves, and the page does not.
    browser.look(400, 900)
    browser.run("new Promise(done => setTimeout(done, 300))")
    wide = browser.run("""[document.documentElement.scrollWidth - document.documentElement.clientWidth,
        ...[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, #flame, pre, svg, #tip, #map-tip') && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
           .map(e => `${e.tagName} ${e.id} ${e.className}`).slice(0, 3)]""")
    expect_same(wide, [0], f"pixels of {page} beyond a width of 400")
    expect_same([url for url in browser.requests if not url.startswith("file:") and url != "about:blank"], [], "requests")
    expect_same(len([url for url in browser.requests if url.startswith("file:")]), 1, "files that were opened")
    expect_same(browser.complaints, [], f"complaints of {page}")


def check_gap(browser, trace, event):
    """What is reserved beyond what is live, by cause, call site and device, is what inspect says of the trace that is shown."""
    told = json.loads(emmctl("inspect", trace, "--gap", event, "--json", "-"))["gap"]
    expect_same(sum(part["bytes"] for part in told["parts"]), told["reserved_bytes"] - told["live_bytes"], f"the sum of inspect's causes after event {event} of {trace}")
    saw = browser.run(f"""emmctl.state.gap.parts({event}, null).map(part => [emmctl.state.gap.causes[part.cause], part.device,
        part.site < 0 || emmctl.state.events.siteNames[part.site].startsWith('(no') ? '' : emmctl.state.events.siteNames[part.site], part.bytes])""")
    wanted = [[part["cause"], part["device"], part["site"] or "", part["bytes"]] for part in told["parts"]]
    # Sites whose names are cut alike are one here.
    sums = lambda parts: sorted({(cause, device, site[:60]): sum(each[3] for each in parts if (each[0], each[1], each[2][:60]) == (cause, device, site[:60])) for cause, device, site, _ in parts}.items())
    expect_same(sums(saw), sums(wanted), f"the parts of the gap after event {event} of {trace}")
    for device in {part["device"] for part in told["parts"]}:
        expect_same(browser.run(f"emmctl.state.gap.sums({event}, {device}).reduce((a, b) => a + b, 0)"), sum(part["bytes"] for part in told["parts"] if part["device"] == device),
                    f"the gap of device {device} after event {event} of {trace}")


def check_gap_of_sites_and_devices(folder):
    """Two devices, call sites, blocks larger than their requests, one that waits, a segment that is free in part."""
    trace, page = folder / "gap.jsonl", folder / "gap.html"
    lines = [{"format": "emmctl-trace", "version": "1.0", "devices": [{"id": 0}, {"id": 1}]},
             *({"op": "define", "kind": "site", "id": i, "frames": [f"model.py:{i} layer{i}"]} for i in (1, 2, 3))]
    for device in (0, 1):
        base, on = 0x10000000 * (device + 1), {"device": device}
        lines += [{"op": "memalloc", "layer": "backing", "id": f"s{device}", "size": 1 << 20, "addr": hex(base), "site": 1, **on},
                  {"op": "memalloc", "layer": "backing", "id": f"r{device}", "size": 1 << 21, "addr": hex(base + (1 << 20)), "site": 2, **on},
                  {"op": "memalloc", "id": f"a{device}", "size": 1000 + device, "granted": 1024, "addr": hex(base), "site": 2, **on},
                  # One that reaches from the first segment into the second.
                  {"op": "memalloc", "id": f"b{device}", "size": 5000, "granted": 8192, "addr": hex(base + (1 << 20) - 4096), "site": 3, **on},
                  {"op": "memalloc", "id": f"c{device}", "size": 4096, "addr": hex(base + 8192), "site": 3, **on}, {"op": "free", "id": f"c{device}", **on}]
    lines.append({"op": "free", "id": "c0", "layer": "backing"})
    trace.write_text("\n".join(map(json.dumps, lines)) + "\n")
    emmctl("report", trace, "-o", page)
    with Browser() as browser:
        browser.open(page)
        for event in (3, 5, 11, 12):
            check_gap(browser, trace, event)
        browser.run("setCursor(11)")
        browser.run("new Promise(done => setTimeout(done, 100))")
        rows = browser.run("[...document.querySelectorAll('#gap-table tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))")
        expect_same(browser.run("[...document.querySelectorAll('#gap-table th')].map(head => head.textContent)"), ["Cause", "Device", "Asked for by", "Beyond", "Bytes", "Blocks"], "the head of the table of the gap")
        expect(["rounding", "1", "model.py:3 layer3", "3.12 KiB", "3,192", "1"] in rows, f"the rounding of device 1: {rows}")
        browser.run("(() => { const s = document.getElementById('device'); s.value = '1'; s.dispatchEvent(new Event('change')); })()")
        browser.run("new Promise(done => setTimeout(done, 100))")
        expect_same(browser.run("document.querySelector('#gap-table tbody tr').cells[3].textContent"), f"{(3 << 20) - 1001 - 5000:,}", "the gap of one device")
        quiet(browser, page)


def check_categories(folder):
    """A profile's categories are stacked, sum to what is live at every event, and have the figures of inspect."""
    trace, page = folder / "memory.raw.json", folder / "categories.html"
    parameter, optimizer, activation, gradient = 0, 1, 4, 5
    rows = [[-1, 1, 4 << 20, parameter] for _ in range(3)]
    for step in range(4):
        rows += [[1000 * step + i, 2, i << 20, activation] for i in range(1, 6)]
        for i in range(5, 0, -1):
            rows += [[1000 * step + 200 - i, 2, 4 << 20, gradient], [1000 * step + 210 - i, 4, -(i << 20), activation]]
        if step == 0:
            rows += [[400, 2, 8 << 20, optimizer]]
        # Two gradients get a new version, as temporary memory.
        rows += [[1000 * step + 500, 3, -(4 << 20), gradient], [1000 * step + 500, 3, 4 << 20, 3], [1000 * step + 600, 4, -(4 << 20), 3]]
        rows += [[1000 * step + 700, 4, -(4 << 20), gradient] for _ in range(4)]
    trace.write_text(json.dumps(rows))
    emmctl("report", trace, "-o", page)
    inspected = json.loads(emmctl("inspect", trace, "--json", "-"))
    with Browser() as browser:
        browser.open(page)
        expect_same(browser.run("document.getElementById('stack').value"), "category", "what is stacked of a profile")
        wrong = browser.run("""(() => { const {groups, liveSteps, events} = emmctl.state; for (let e = events.momentOf(0); e < events.count; ++e)
            if (groups.at(e).reduce((a, b) => a + b, 0) !== liveSteps.at(e)) return [e, [...groups.at(e)], liveSteps.at(e)]; return null; })()""")
        expect_same(wrong, None, "first event whose categories are not what is live")
        saw = browser.run("emmctl.state.categories.curves.map(({name, steps}) => [name, steps.at(emmctl.state.peak), steps.at(emmctl.state.events.count - 1)]).sort()")
        wanted = sorted([each[key] for key in ("name", "at_peak_bytes", "live_at_end_bytes")] for each in inspected["categories"])
        expect_same(saw, wanted, "the categories")
        expect_same(browser.run("document.querySelectorAll('#category-table tbody tr').length"), len(wanted), "rows of the table of categories")
        peaks = {each["name"]: each["peak_live_bytes"] for each in inspected["categories"]}
        expect_same(peaks["temporary"], 4 << 20, "bytes that went to another category are counted there")
        quiet(browser, page)
    other = folder / "plain.html"
    emmctl("report", SOURCE / "traces/basics/pool_reuse.json", "-o", other)
    with Browser() as browser:
        browser.open(other)
        expect_same(browser.run("document.getElementById('categories').hidden"), True, "a trace without categories has no table of them")


def check_inactive(folder):
    """What of a state's inactive memory is returnable, and what is stuck, by pool and stream, and the largest request."""
    state, page, mebi = folder / "state.pickle", folder / "state.html", 1 << 20
    block = lambda at, size, used: {"address": at, "size": size * mebi, "requested_size": size * mebi if used else 0,
                                    "state": "active_allocated" if used else "inactive", "frames": []}
    segment = lambda at, stream, *blocks: {"device": 0, "address": at, "total_size": sum(each["size"] for each in blocks), "stream": stream, "segment_type": "large",
                                           "segment_pool_id": (0, 0), "is_expandable": False, "blocks": list(blocks), "frames": []}
    base = 0x7f0000000000
    state.write_bytes(pickle.dumps({"segments": [segment(base, 0, block(base, 100, False)), segment(base + 128 * mebi, 7, block(base + 128 * mebi, 50, True), block(base + 178 * mebi, 50, False))],
                                    "device_traces": [[]], "allocator_settings": {}}))
    emmctl("report", state, "--capacity", "300MiB", "-o", page)
    with Browser() as browser:
        browser.open(page)
        rows = browser.run("[...document.querySelectorAll('#inactive tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))")
        expect_same(rows, [["large pool", "default", "100.00 MiB", "0 B"], ["large pool", "7", "0 B", "50.00 MiB"], ["All", "", "100.00 MiB", "50.00 MiB"]], "what is inactive")
        # Prose flows; only columns keep their lines.
        prose = browser.run("[...document.querySelectorAll('#failure p.prose')].map(each => each.textContent).join(' ')")
        expect("The manager held" in prose and " bytes)" not in prose, f"what was held is told in prose: {prose}")
        expect_same(browser.run("document.querySelectorAll('#failure pre').length"), 0, "printed columns beside the page's own tables")
        expect("the largest request that would be served is 200.00 MiB." in browser.run("document.getElementById('inactive').innerText"), "the largest request")
        expect_same(browser.run("document.querySelector('#failure h2').textContent"), "What was held", "the head of a state, in which nothing is known to have failed")
        quiet(browser, page)


def check_training(folder):
    page = folder / "gpt2.html"
    emmctl("report", GPT2, "--manager", "pool", "--manager", "default", "-o", page)
    after = live_by_event(GPT2)
    inspected = json.loads(emmctl("inspect", GPT2, "--json", "-", "--top", "1000"))
    with Browser() as browser:
        browser.open(page)
        expect_same(browser.run("emmctl.state.events.count"), len(after), "events")
        # Every event, live and reserved.
        wrong = browser.run("""(wanted => { const {liveSteps, lines} = emmctl.state; for (let e = 0; e < wanted.length; ++e)
            if (liveSteps.at(e) !== wanted[e][0] || lines[0].steps.at(e) !== wanted[e][1]) return [e, liveSteps.at(e), lines[0].steps.at(e)];
            return null; })(""" + json.dumps(after) + ")")
        expect_same(wrong, None, "first event whose curves are wrong")
        peak = inspected["peak_live"]
        expect_same(browser.run("emmctl.state.peak"), peak["event"], "the event of the peak")
        expect_same(browser.run("emmctl.state.cursor"), peak["event"], "the cursor at the beginning")
        rows = dict(browser.run("[...document.querySelectorAll('#readout tr')].filter(row => row.cells.length > 1).map(row => [row.cells[0].textContent, row.cells[1].querySelector('small').textContent])"))
        expect_same(number(rows["live"]), peak["bytes"], "live beside the picture")
        # The stack's parts sum to what is live, and each is what inspect says of its sizes.
        expect_same(browser.run("emmctl.state.groups.at(emmctl.state.peak).reduce((a, b) => a + b, 0)"), peak["bytes"], "the sum of the areas")
        table = browser.run("[...document.querySelectorAll('#live-table tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))")
        expect_same((number(table[0][2]), number(table[0][3])), (peak["bytes"], peak["count"]), "what is live in all")
        expect_same([(number(row[0].split()[0]), number(row[3]), number(row[2])) for row in table[1:]],
                    [(size["size"], size["count"], size["bytes"]) for size in inspected["at_peak"]["by_size"]], "what is live, by size")
        for manager in ("pool", "default"):
            replayed = json.loads(emmctl("replay", GPT2, "--device", "sim", "--manager", manager, "--json", "-"))
            saw = browser.run(f"emmctl.state.lines.find(line => line.name === 'reserved by {manager}').steps.over(0, emmctl.state.events.count).max")
            expect_same(saw, replayed["peak_reserved_bytes"], f"peak reserved by {manager}")
        # Under the mouse: the event and its exact numbers. The mouse reaches only what the window shows.
        browser.run("document.getElementById('chart').scrollIntoView({block: 'center', behavior: 'instant'})")
        box = browser.run("(() => { const b = document.getElementById('chart').getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()")
        for share in (0.2, 0.37, 0.5, 0.81, 0.97):
            browser.mouse("mouseMoved", box[0] + box[2] * share, box[1] + box[3] / 2)
            words = browser.run("document.getElementById('tip').textContent")
            found = re.match(r"after event ([\d,]+).*\nlive .* \(([\d,]+) bytes\)\nreserved, as recorded .* \(([\d,]+) bytes\)", words)
            expect(found, f"the words under the mouse: {words}")
            if found:
                expect_same((number(found[2]), number(found[3])), after[number(found[1])], f"under the mouse at event {found[1]}")
        # The wheel zooms, dragging moves, a click sets the cursor, keys step.
        browser.mouse("mouseWheel", box[0] + box[2] / 2, box[1] + box[3] / 2, deltaX=0, deltaY=-600)
        browser.run("new Promise(requestAnimationFrame)")
        zoomed = browser.run("emmctl.state.chart.window")
        expect(0 < zoomed[0] and zoomed[1] < len(after), f"the wheel zooms in: {zoomed}")
        browser.mouse("mousePressed", box[0] + 400, box[1] + 100, button="left", buttons=1, clickCount=1)
        browser.mouse("mouseMoved", box[0] + 300, box[1] + 100, button="left", buttons=1)
        browser.mouse("mouseReleased", box[0] + 300, box[1] + 100, button="left", clickCount=1)
        moved = browser.run("emmctl.state.chart.window")
        expect(moved[0] > zoomed[0] and abs((moved[1] - moved[0]) - (zoomed[1] - zoomed[0])) < 1, f"dragging moves: {zoomed} to {moved}")
        browser.mouse("mousePressed", box[0] + 350, box[1] + 100, button="left", buttons=1, clickCount=1)
        browser.mouse("mouseReleased", box[0] + 350, box[1] + 100, button="left", clickCount=1)
        cursor = browser.run("emmctl.state.cursor")
        expect(moved[0] <= cursor <= moved[1], f"a click sets the cursor: {cursor} in {moved}")
        browser.run("document.getElementById('chart').focus()")
        for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
            browser.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        expect_same(browser.run("emmctl.state.cursor"), cursor + 1, "the cursor after Right, Right, Left")
        # The map, held against inspect's.
        browser.run("new Promise(done => setTimeout(done, 100))")
        for event in (1000, len(after) // 2, peak["event"], len(after) - 1):
            wanted = json.loads(emmctl("inspect", GPT2, "--map", event, "--json", "-"))["map"]
            saw = browser.run(f"(emmctl.state.map.show({event}, null, 'recorded', emmctl.state.groups), emmctl.state.map.totals)")
            expect_same([saw["size"], saw["used"], saw["pending"], saw["free"], saw["largest"]],
                        [wanted[name] for name in ("bytes", "used_bytes", "pending_bytes", "free_bytes", "largest_free_bytes")], f"the map of event {event}")
        # What is reserved beyond what is live is a sum of causes, at every event; they are those of inspect.
        wrong = browser.run("""(() => { const {gap, liveSteps, lines, events} = emmctl.state; for (let e = 0; e < events.count; ++e) {
            const sums = gap.sums(e, null); if (!sums || sums.reduce((a, b) => a + b, 0) !== lines[0].steps.at(e) - liveSteps.at(e)) return [e, sums]; }
            return null; })()""")
        expect_same(wrong, None, "first event whose causes do not add up")
        for event in (1000, peak["event"]):
            check_gap(browser, GPT2, event)
        # What a replayed manager held is where it was mapped first, and in all as much as it reserved.
        for event in (500, 1000, len(after) // 2, peak["event"], len(after) - 1):
            saw = browser.run(f"(emmctl.state.map.show({event}, null, 0, emmctl.state.groups), [emmctl.state.map.totals.size, emmctl.state.map.totals.used])")
            wanted = browser.run(f"[emmctl.state.lines.find(line => line.name === 'reserved by pool').steps.at({event}), emmctl.state.liveSteps.at({event})]")
            expect_same(saw, wanted, f"what the pool held after event {event}, and what was live")
        browser.run("(emmctl.state.map.show(emmctl.state.peak, null, 'recorded', emmctl.state.groups), document.getElementById('map-canvas').scrollIntoView())")
        box = browser.run("(() => { const b = document.getElementById('map-canvas').getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()")
        browser.mouse("mouseMoved", box[0] + box[2] / 3, box[1] + 6)
        expect("requested" in browser.run("document.getElementById('map-tip').textContent"), "the map has words for a block")
        for axis, stack in (("time", "life"), ("time", "stream"), ("event", "size")):
            browser.run(f"for (const [id, value] of [['axis', '{axis}'], ['stack', '{stack}']]) {{ const s = document.getElementById(id); s.value = value; s.dispatchEvent(new Event('change')); }}")
            browser.run("new Promise(requestAnimationFrame)")
            expect_same(browser.run("emmctl.state.groups.at(emmctl.state.peak).reduce((a, b) => a + b, 0)"), peak["bytes"], f"the sum of the areas by {stack}")
        browser.run("scrollTo(0, 0)")
        _, drawing = drag(browser)
        expect(drawing and middle(drawing) < 100, f"drawing takes {middle(drawing):.0f} ms a frame")
        for width, dark in ((1280, True), (400, False)):
            browser.look(width, 900, dark)
            browser.run("new Promise(done => setTimeout(done, 300))")
            expect(browser.run("document.documentElement.scrollWidth <= innerWidth"), f"the page is wider than {width} pixels")
        quiet(browser, page)


def check_expandable(folder):
    """Addresses that nothing is mapped to, and memory that waits for another stream, are told apart from what is free."""
    trace, page = folder / "expandable.jsonl", folder / "expandable.html"
    mebi = 1 << 20
    segment = lambda name, at: {"op": "memalloc", "layer": "backing", "kind": "physical", "id": name, "size": 2 * mebi, "addr": hex(0x302000000 + at * mebi)}
    block = lambda number, at, size: {"op": "memalloc", "id": number, "size": size, "addr": hex(0x302000000 + at * mebi)}
    events = [segment("s1", 0), segment("s2", 2), segment("s3", 6), block(1, 0, mebi), block(2, 2, mebi), block(3, 6, mebi // 2),
              {"op": "free", "id": 2}, {"op": "free", "id": 2, "layer": "backing"}]
    trace.write_text("\n".join(json.dumps(each) for each in [{"format": "emmctl-trace", "version": "1.0"}, *events]) + "\n")
    emmctl("report", trace, "-o", page)
    with Browser() as browser:
        browser.open(page)
        for event, pending in ((5, 0), (6, mebi), (7, 0)):
            wanted = json.loads(emmctl("inspect", trace, "--map", event, "--json", "-"))["map"]
            saw = browser.run(f"(emmctl.state.map.show({event}, null, 'recorded', emmctl.state.groups), emmctl.state.map.totals)")
            expect_same([saw["size"], saw["used"], saw["pending"], saw["free"], saw["largest"]],
                        [wanted[name] for name in ("bytes", "used_bytes", "pending_bytes", "free_bytes", "largest_free_bytes")], f"the map of event {event}")
            expect_same((saw["size"], saw["pending"], saw["regions"]), (6 * mebi, pending, 1), f"the segments of event {event}")
        browser.run("setCursor(6)")
        browser.run("new Promise(done => setTimeout(done, 100))")
        expect_same(browser.run("[...document.querySelectorAll('#map-legend .swatch')].map(e => e.className.slice(7)).filter(Boolean)"), ["waiting", "unmapped"], "stripes in the legend")
        expect_same(browser.run("emmctl.state.map.pieces.map(({piece}) => piece.kind + (piece.pending ? ' waits' : ''))"),
                    ["block", "free", "block waits", "free", "unmapped", "block", "free"], "the pieces")
        # With the keyboard: each piece, the segments, the largest free piece.
        browser.run("document.getElementById('map-picture').focus()")
        said = []
        for key in ("ArrowRight", "ArrowRight", "ArrowRight", "m", "Home", "End", "ArrowLeft", "ArrowLeft"):
            browser.call("Input.dispatchKeyEvent", type="keyDown", key=key)
            said.append(browser.run("document.getElementById('map-tip').textContent.split('\\n')[1]"))
        expect_same(said, [f"0x{0x302000000 + int(at * mebi):x}, {size}" for at, size in (
            (0, "1.00 MiB (1,048,576 bytes)"), (1, "1.00 MiB (1,048,576 bytes)"), (2, "1.00 MiB (1,048,576 bytes)"), (6.5, "1.50 MiB (1,572,864 bytes)"),
            (0, "1.00 MiB (1,048,576 bytes)"), (6.5, "1.50 MiB (1,572,864 bytes)"), (6, "512.00 KiB (524,288 bytes)"), (4, "2.00 MiB (2,097,152 bytes)"))], "what the keys lead to")
        expect_same(browser.run("document.querySelectorAll('.map-chosen').length > 0"), True, "the chosen piece is marked")
        browser.call("Input.dispatchKeyEvent", type="keyDown", key="Escape")
        expect_same(browser.run("[document.querySelectorAll('.map-chosen').length, document.getElementById('map-tip').hidden]"), [0, True], "Escape leaves")
        # On paper the colours are those of day.
        browser.look(1280, 900, True)
        colours = browser.run("""(() => { const here = () => getComputedStyle(document.documentElement).getPropertyValue('--text').trim(), night = here();
            dispatchEvent(new Event('beforeprint')); const paper = here(); dispatchEvent(new Event('afterprint')); return [night, paper, here()]; })()""")
        expect_same(colours, ["#e9ebee", "#1c2024", "#e9ebee"], "the text's colour at night, on paper, and after that")
        browser.look(1280, 900)
        quiet(browser, page)


def check_tables(browser):
    """No column is empty, bars have their numbers, and each setting stands in one table."""
    empty = browser.run("""[...document.querySelectorAll('main table')].filter(table => table.tBodies.length && table.rows.length > 1).flatMap(table =>
        [...table.rows[0].cells].map((head, i) => [head.textContent, [...table.tBodies[0].rows].every(row => !row.cells[i] || !row.cells[i].innerHTML)])
          .filter(([, none], i) => none && i).map(([name]) => name))""")
    expect_same(empty, [], "columns that are empty")
    expect_same(browser.run("[...document.querySelectorAll('.track')].filter(bar => !/[0-9]/.test(bar.textContent)).length"), 0, "bars without a number")
    twice = browser.run("""(() => { const seen = new Map();
        for (const table of document.querySelectorAll('#failure table, .result.tune table')) for (const code of new Set([...table.querySelectorAll('code')].map(each => each.textContent)))
          seen.set(code, (seen.get(code) || 0) + 1);
        return [...seen].filter(([, count]) => count > 1).map(([code]) => code); })()""")
    expect_same(twice, [], "settings that stand in several tables")


def check_state_marks_and_scales(folder):
    """A state has no curve; marks that would bury it are one with their number; each trace has its own scale; the map draws each segment."""
    state, many, small, page, mebi = folder / "still.jsonl", folder / "many.jsonl", folder / "small.jsonl", folder / "scales.html", 1 << 20
    state.write_bytes((SOURCE / "tests/golden/inputs/state.jsonl").read_bytes())
    lines = [{"format": "emmctl-trace", "version": "1.0"}]
    for i in range(300):
        lines.append({"op": "memalloc", "id": f"s{i}", "size": 2 * mebi, "layer": "backing", "addr": hex(0x302000000 + 8 * mebi * i)})
        lines.append({"op": "memalloc", "id": i, "size": mebi, "addr": hex(0x302000000 + 8 * mebi * i)})
        lines.append({"op": "memalloc", "id": f"r{i}", "size": 9 << 40, "result": "oom"})
    many.write_text("\n".join(map(json.dumps, lines)) + "\n")
    small.write_text("\n".join(map(json.dumps, [lines[0], {"op": "memalloc", "id": 1, "size": 4096}, {"op": "free", "id": 1}])) + "\n")
    emmctl("report", state, many, small, "-o", page)
    with Browser() as browser:
        browser.open(page)
        for which, shown in ((0, False), (1, True)):
            browser.run(f"chooseTrace({which})")
            browser.run("emmctl.state.chart && emmctl.placed")
            expect_same(browser.run("document.querySelector('.picture').getBoundingClientRect().height > 50"), shown, f"the curve of trace {which}")
            expect_same(browser.run("[...document.querySelectorAll('.slider')].some(each => each.offsetHeight > 0)"), shown, f"sliders of trace {which}")
        browser.look(400, 900)
        browser.run("new Promise(done => setTimeout(done, 300))")
        clusters = browser.run("(emmctl.state.chart.drawOver(), emmctl.state.chart.clusters.map(each => [each.at, each.count]))")
        expect_same(sum(count for _, count in clusters), 300, "marks in the clusters")
        expect(all(b[0] - a[0] >= 28 for a, b in zip(clusters, clusters[1:])), f"the clusters lie apart: {clusters}")
        browser.run("setCursor(899)")
        browser.run("new Promise(done => setTimeout(done, 300))")
        expect_same(browser.run("[emmctl.state.map.drawn, emmctl.state.map.totals.regions]"), [300, 300], "segments that are drawn")
        # The small trace's curve reaches as high as the large one's.
        tops = browser.run("""[...document.querySelectorAll('#compare figure')].map(figure => Math.min(...(figure.querySelector('path[style*=c0]').getAttribute('d').match(/[ML][0-9.]+ [0-9.]+/g)).map(point => Number(point.split(' ')[1]))))""")
        expect(tops and max(tops) < 60, f"the tops of the curves, of 110 pixels: {tops}")
        quiet(browser, page)


def check_what_stays(folder):
    """A segment that is unmapped in part: with the row that says so, and not an event later, the rest is there."""
    trace, page, mebi = folder / "part.jsonl", folder / "part.html", 1 << 20
    held = {"layer": "backing", "kind": "physical", "addr": hex(0x302000000)}
    lines = [{"format": "emmctl-trace", "version": "1.0"}, {"op": "memalloc", "id": "s1", "size": 6 * mebi, **held}, {"op": "memalloc", "id": 1, "size": mebi, "addr": held["addr"]},
             {"op": "free", "id": "s1", "layer": "backing"}, {"op": "memalloc", "id": "s2", "size": 2 * mebi, "x-no_row": True, **held}, {"op": "free", "id": 1}]
    trace.write_text("\n".join(map(json.dumps, lines)) + "\n")
    emmctl("report", trace, "-o", page)
    with Browser() as browser:
        browser.open(page)
        for event, size, used in ((1, 6, 1), (2, 2, 1), (3, 2, 1), (4, 2, 0)):
            told = json.loads(emmctl("inspect", trace, "--map", event, "--gap", event, "--json", "-"))
            expect_same([told["map"]["bytes"], told["map"]["used_bytes"]], [size * mebi, used * mebi], f"inspect's map of event {event}")
            expect_same(told["gap"]["reserved_bytes"], size * mebi, f"what inspect says is reserved after event {event}")
            saw = browser.run(f"(emmctl.state.map.show({event}, null, 'recorded', emmctl.state.groups), [emmctl.state.map.totals.size, emmctl.state.map.totals.used, emmctl.state.lines[0].steps.at({event})])")
            expect_same(saw, [size * mebi, used * mebi, size * mebi], f"the page's map of event {event}, and what is reserved")
            check_gap(browser, trace, event)


def check_failure_and_results(folder):
    oom, page = SOURCE / "tests/golden/inputs/torch_oom.pickle.gz", folder / "oom.html"
    emmctl("compare", GPT2, "--device", "sim", "--manager", "pool", "--manager", "cudart", "--json", folder / "compare.json")
    emmctl("replay", GPT2, "--device", "sim:capacity=5GiB", "--manager", "pool", "--json", folder / "replay.json")
    emmctl("conformance", "--manager", "cudart", "--json", folder / "conformance.json")
    emmctl("report", oom, folder / "compare.json", folder / "replay.json", folder / "conformance.json", "-o", page)
    explained = json.loads(emmctl("explain", oom, "--json", "-"))
    with Browser() as browser:
        browser.open(page)
        words = browser.run("document.getElementById('failure').innerText")
        for failure in explained["failures"]:
            expect(re.sub(r" \([0-9,]+ bytes\)", "", failure["words"]) in words, f"the words on event {failure['event']}")
        expect_same(browser.run("emmctl.state.marks.map(mark => mark.event)"), [failure["event"] for failure in explained["failures"]], "failures in the picture")
        limit = browser.run("emmctl.state.levels.find(level => level.name.startsWith('the limit that refused')).bytes")
        expect(f"at least {limit / (1 << 30):.2f} GiB ({limit:,} bytes)" in explained["failures"][-1]["words"], f"the limit that was found: {limit}")
        expect_same(browser.run("[...document.querySelectorAll('.result h2')].map(head => head.textContent.split(' ')[0])"), ["Compare", "Tune", "Replay", "Conformance"], "results")
        check_tables(browser)
        # No setting serves what this program was refused: the remedies are a smaller batch and more memory.
        expect(all(part in words for part in ("What would have helped", "requests 1/8 smaller", "Whole program fits into", "Why the manager held more")), f"the failure has remedies: {words}")
        # What explain and tune advise first is the first thing to do, and can be copied.
        advice, first = explained["advice"], browser.run("document.querySelector('.to-do li').innerText")
        expect(re.sub(r" \([0-9,]+ bytes\)", "", advice["words"]) in first, f"the first advice: {first}")
        pasted = browser.run("(one => [one.querySelector('code').textContent, one.querySelector('button').textContent])(document.querySelector('.pasted'))")
        expect(pasted[0].startswith(("PYTORCH_", "import ", "unset ", "torch.")) and pasted[1] == "Copy", f"what is to be pasted: {pasted}")
        copied = browser.run("(async () => { const button = document.querySelector('.pasted button'); button.click(); "
                             "await new Promise(done => setTimeout(done, 300)); return button.textContent; })()")
        expect(copied in ("Copied", "Not copied"), f"the button says {copied}")
        # What to do stands above all else, on the first screen of a telephone as well.
        for width, height in ((1280, 900), (400, 800)):
            browser.look(width, height)
            browser.run("scrollTo(0, 0)")
            seen = browser.run("(box => [box.top, box.bottom, innerHeight])(document.querySelector('.to-do').getBoundingClientRect())")
            expect(seen[1] < seen[2], f"what to do ends at pixel {seen[1]:.0f} of {seen[2]}")
        browser.look(1280, 1000)
        expect("failed" in browser.run("document.querySelector('.result.replay').innerText"), "the failure of the replay")
        compared = json.loads((folder / "compare.json").read_text())
        rows = browser.run("[...document.querySelectorAll('.result.compare tbody tr')].map(row => row.cells[0].textContent)")
        expect_same(rows, [compared["recorded"]["manager"], *(each["manager"] for each in compared["managers"])], "rows of the comparison")
        expect("[object" not in browser.run("document.body.innerText"), "words that are an object's name")
        judged = json.loads((folder / "conformance.json").read_text())
        expect_same(browser.run("document.querySelectorAll('.result.conformance tbody tr').length"), len(judged["clauses"]), "clauses")
        quiet(browser, page)


# Looks at a trace in every way; what is not as `inspect` and `replay` have it.
EVERY_WAY = """(async which => {
  const trace = about.traces[which], wrong = [];
  await chooseTrace(which);
  if (!trace.events) return wrong;
  const peak = trace.inspect.peak_live, backing = trace.inspect.backing;
  const same = (saw, wanted, words) => { if (saw !== wanted) wrong.push(`${words}: saw ${saw}, expected ${wanted}`); };
  same(state.liveSteps.at(peak.event), peak.bytes, 'live at the peak');
  if (peak.bytes) same(state.peak, peak.event, 'the event of the peak');
  if (backing) same(state.lines[0].steps.at(backing.peak_reserved.event), backing.peak_reserved.bytes, 'reserved at its peak');
  for (const manager of trace.managers)
    same(state.lines.find(line => line.name === `reserved by ${manager.name}`).steps.over(0, trace.events).max, manager.summary.peak_reserved_bytes, manager.name);
  for (const by of ['site', 'size', 'stream', 'life']) {
    state.stack = by;
    setCurves();
    same(state.groups.at(peak.event).reduce((a, b) => a + b, 0), peak.bytes, `the sum by ${by}`);
  }
  for (const {device} of trace.devices) {
    const of = trace.inspect.peak_live_by_device[device];
    state.device = device;
    setCurves();
    if (of) same(state.liveSteps.at(of.event), of.bytes, `live at the peak of device ${device}`);
  }
  state.device = null;
  if (trace.devices.length > 1) {
    state.stack = 'device';
    setCurves();
    same(state.groups.at(peak.event).length, trace.devices.length, 'areas of devices');
    same(state.groups.at(peak.event).reduce((a, b) => a + b, 0), peak.bytes, 'the sum by device');
  }
  if (state.events.time) state.chart.setAxis('time');
  setCurves();
  setCursor(0);
  setCursor(trace.events - 1);
  await new Promise(requestAnimationFrame);
  return wrong;
})"""


def check_results_of_a_trace(folder):
    """What other commands wrote of a trace is drawn in its picture; a trace of the same name elsewhere has a name of its own."""
    page, again = folder / "one.html", folder / "again"
    again.mkdir()
    (again / GPT2.name).write_bytes(GPT2.read_bytes())
    emmctl("replay", GPT2, "--device", "sim:capacity=5GiB", "--manager", "pool", "--json", folder / "of.json")
    emmctl("compare", GPT2, "--device", "sim", "--capacity", "5GiB", "--capacity", "8GiB", "--manager", "pool", "--json", folder / "set.json")
    emmctl("report", GPT2, again / GPT2.name, folder / "of.json", folder / "set.json", "-o", page)
    failure = json.loads((folder / "of.json").read_text())["first_failure"]
    with Browser() as browser:
        browser.open(page)
        expect_same(browser.run("emmctl.state.marks.map(mark => mark.event)"), [failure["event"]] * 2, "the failures of the replay and of the comparison are marked")
        expect("capacity in the replays" in browser.run("emmctl.state.levels.map(level => level.name)"), "the capacity of the replay is drawn")
        expect("pool failed" in browser.run("document.getElementById('failure').innerText"), "the failure is told")
        expect_same(browser.run("[...document.getElementById('trace').options].map(option => option.textContent)"), [f"torch/{GPT2.name}", f"again/{GPT2.name}"], "names of the traces")
        # No line is drawn in pieces that begin their dashes anew.
        expect_same(browser.run("""(() => { const {chart} = emmctl.state, saw = []; const real = CanvasRenderingContext2D.prototype.setLineDash;
            CanvasRenderingContext2D.prototype.setLineDash = function(dash) { if (dash.length) saw.push(dash.join()); real.call(this, dash); };
            chart.draw(); CanvasRenderingContext2D.prototype.setLineDash = real; return saw.includes('8,4'); })()"""), True, "the capacity is dashed")
        expect("torch 2.11.0+cu130" in browser.run("document.getElementById('origin').innerText"), "the framework's version")
        quiet(browser, page)


def check_every_trace(folder):
    empty = folder / "empty.jsonl"
    empty.write_text('{"format":"emmctl-trace","version":"1.0"}\n')
    hostile = folder / "hostile.jsonl"
    hostile.write_text('{"format":"emmctl-trace","version":"1.0"}\n'
                       '{"op":"define","kind":"site","id":1,"frames":["</script><img src=x onerror=alert(1)>.py:1 <b>"]}\n'
                       '{"op":"memalloc","id":1,"size":5,"site":1}\n')
    traces = [empty, hostile, *sorted((SOURCE / "tests/golden/inputs").glob("*.jsonl")), *sorted((SOURCE / "traces/basics").glob("*.json*")),
              *sorted((SOURCE / "traces/examples").glob("*.json*")), *sorted((SOURCE / "traces/numba").glob("*.json*"))[:6]]
    read = [trace for trace in traces if not subprocess.run([EMMCTL, "report", trace, "-o", "/dev/null"], stderr=subprocess.DEVNULL, check=False).returncode]
    expect(len(read) > 12, f"{len(read)} traces are read")
    page = folder / "every.html"
    emmctl("report", *read, "--manager", "pool", "-o", page)
    with Browser() as browser:
        browser.open(page)
        for which, trace in enumerate(read):
            expect_same(browser.run(f"{EVERY_WAY}({which})"), [], trace)
        quiet(browser, page)


def main():
    if not Browser.find():
        print("skipped: there is no Chromium")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        check_training(pathlib.Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        check_categories(pathlib.Path(folder))
        check_inactive(pathlib.Path(folder))
        check_failure_and_results(pathlib.Path(folder))
        check_expandable(pathlib.Path(folder))
        check_gap_of_sites_and_devices(pathlib.Path(folder))
        check_what_stays(pathlib.Path(folder))
        check_state_marks_and_scales(pathlib.Path(folder))
        check_results_of_a_trace(pathlib.Path(folder))
        check_every_trace(pathlib.Path(folder))
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
