"""Chromium without a window, spoken to in its DevTools protocol over a pipe. Needs only the standard library."""
import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time


class Browser:
    """One page. `requests` has the address of all that it asked for, `complaints` what it wrote to the console."""

    @staticmethod
    def find():
        return next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)

    def __init__(self, width=1280, height=1000, dark=False, scale=1):
        self.requests, self.complaints = [], []
        self._profile = tempfile.mkdtemp(prefix="emm-browser.")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()

        def place():
            # The protocol's pipe is file descriptors 3 and 4.
            a, b = os.dup(to_browser), os.dup(from_browser)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self._process = subprocess.Popen(
            [self.find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe", "--hide-scrollbars",
             f"--user-data-dir={self._profile}", "about:blank"],
            preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self._rest, self._next, self._session = b"", 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")
        self.look(width, height, dark, scale)

    def look(self, width, height, dark=False, scale=1, paper=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", media="print" if paper else "", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def _message(self):
        while b"\0" not in self._rest:
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._rest += piece
        message, self._rest = self._rest.split(b"\0", 1)
        message = json.loads(message)
        method, given = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = given["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(each.get("value", each.get("description"))) for each in given["args"]))
        elif method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.complaints.append(given["entry"]["text"])
        return message

    def call(self, method, **given):
        self._next += 1
        message = {"id": self._next, "method": method, "params": given}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._next:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def run(self, script):
        """The value of a JavaScript expression, awaited."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def open(self, path):
        """Opens a page of ours and waits until its picture is there. Returns the seconds that took."""
        began = time.monotonic()
        error = self.call("Page.navigate", url=pathlib.Path(path).resolve(strict=True).as_uri()).get("errorText")
        if error:
            raise RuntimeError(f"{path}: {error}")
        # Our programs are through before the document is complete.
        state = "window.emmctl && window.emmctl.ready ? 'ready' : location.protocol === 'about:' ? 'loading' : document.readyState"
        while (now := self.run(state)) != "ready":
            if now == "complete":
                raise RuntimeError(f"{path} is no page of emmctl report" + "".join(f"\n  {each}" for each in self.complaints))
            time.sleep(0.01)
        self.run("emmctl.ready")
        self.run("emmctl.placed")
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return time.monotonic() - began

    def processor_seconds(self):
        """What all processes of the browser have taken of the processors until now."""
        children, ticks = {}, {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # it has ended
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
            ticks[int(stat.parent.name)] = int(fields[11]) + int(fields[12])
        total, waiting = 0, [self._process.pid]
        while waiting:
            process = waiting.pop()
            total += ticks.get(process, 0)
            waiting += children.get(process, [])
        return total / os.sysconf("SC_CLK_TCK")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def screenshot(self, path, whole=True):
        size = self.run("({width: innerWidth, height: document.documentElement.scrollHeight})")
        clip = {"x": 0, "y": 0, "scale": 1, **size} if whole else None
        kind = {"format": "webp", "quality": 82} if str(path).endswith(".webp") else {"format": "png"}
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **kind, **({"clip": clip} if clip else {}))
        pathlib.Path(path).write_bytes(base64.b64decode(picture["data"]))

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._profile, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
