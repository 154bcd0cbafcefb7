#!/usr/bin/env python3
"""Measures pages of emmctl report in Chromium: size, time to the first picture, frames while one drags and zooms.

    measure.py PAGE...
    measure.py --screenshot OUT.png|OUT.webp [--width N] [--window] [--dark] [--paper] [--do JAVASCRIPT] PAGE
"""
import argparse
import os

from browser import Browser


def drag(browser, frames=60):
    """Milliseconds of each frame while the mouse drags the picture to and fro."""
    # The mouse reaches only what the window shows.
    browser.run("document.getElementById('chart').scrollIntoView({block: 'center', behavior: 'instant'})")
    box = browser.run("(() => { const b = document.getElementById('chart').getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()")
    left, y = box[0] + box[2] / 2, box[1] + box[3] / 2
    browser.run("emmctl.state.chart.setWindow(emmctl.state.chart.end() * .2, emmctl.state.chart.end() * .8)")
    browser.run("""window.frames_ = []; window.on_ = true; (function frame(then) {
        requestAnimationFrame(now => { if (then) window.frames_.push(now - then); if (window.on_) frame(now); }); })(0)""")
    browser.run("emmctl.state.chart.frameTimes.length = 0")
    browser.mouse("mousePressed", left, y, button="left", buttons=1, clickCount=1)
    for i in range(frames):
        browser.mouse("mouseMoved", left + (i % 20 - 10) * 12, y, button="left", buttons=1)
    browser.mouse("mouseReleased", left, y, button="left", clickCount=1)
    browser.run("window.on_ = false")
    return browser.run("window.frames_"), browser.run("emmctl.state.chart.frameTimes")


def middle(numbers):
    return sorted(numbers)[len(numbers) // 2] if numbers else 0.0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pages", nargs="+")
    parser.add_argument("--screenshot")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--window", action="store_true", help="only what the window shows")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--paper", action="store_true", help="as it is printed")
    parser.add_argument("--do", default="")
    given = parser.parse_args()
    if missing := [page for page in given.pages if not os.path.isfile(page)]:
        parser.error(f"there is no page {missing[0]}")
    for page in given.pages:
        with Browser(given.width, 900, given.dark) as browser:
            before = browser.processor_seconds()
            browser.open(page)
            taken = browser.processor_seconds() - before
            if given.screenshot:
                if given.do:
                    browser.run(given.do)
                    browser.run("new Promise(done => setTimeout(done, 400))")
                if given.paper:
                    browser.run("dispatchEvent(new Event('beforeprint'))")
                    browser.look(given.width, 900, given.dark, paper=True)
                    browser.run("new Promise(done => setTimeout(done, 400))")
                browser.screenshot(given.screenshot, whole=not given.window)
                continue
            first = browser.run("emmctl.timings.preview || performance.now()") / 1000
            placed = browser.run("emmctl.timings.placed || 0") / 1000
            shown = browser.run("emmctl.timings.shown || performance.now()") / 1000
            if browser.run("!!emmctl.state.chart"):
                frames, drawing = drag(browser)
            else:
                frames, drawing = [], []
            print(f"{os.path.getsize(page) / 1e6:7.2f} MB, first picture after {first:.2f} s, every event after {shown:.2f} s, the address map after {placed:.2f} s (processor time {taken:.2f} s), "
                  f"a frame while dragging {middle(frames):.1f} ms (most {max(frames, default=0):.1f}), drawing {middle(drawing):.1f} ms  {page}")
            for complaint in browser.complaints:
                print("  ", complaint)


if __name__ == "__main__":
    main()
