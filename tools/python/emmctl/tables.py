"""Traces and replays as tables, for notebooks.

    trace = emmctl.load("run.jsonl")            # any recording that emmctl reads
    trace.allocations["size"].sum()             # columns are NumPy's, where there is NumPy
    pandas.DataFrame(trace.events)              # a table is a dict of columns
    run = emmctl.replay(trace, manager="pool")  # on the simulated device
    run.summary["peak_reserved_bytes"], run.log["reserved_bytes"].max()
    run                                         # the page, in a notebook
    emmctl.ask("explain", trace)                # the JSON of any command

Everything is asked of the program emmctl. docs/json.md tells what its answers hold.
"""
import csv
import html
import json
import os
import shutil
import subprocess
import tempfile

from emmctl._library import program

try:
    import numpy
except ImportError:
    numpy = None


class CommandError(RuntimeError):
    """A command of emmctl that gave no answer. `code` is its exit code, `words` is what it said."""

    def __init__(self, command, code, words):
        super().__init__("emmctl %s exits with %d: %s" % (command, code, words.strip()))
        self.code = code
        self.words = words


class Table(dict):
    """Columns by name, all of one length; NumPy arrays where there is NumPy, else lists.

    A number that a row does not have is 0, a text is "". `rows` counts the rows; to_pandas() gives a DataFrame, to_numpy()
    a structured array.
    """

    def __init__(self, columns):
        super().__init__(columns)
        self.rows = len(next(iter(self.values()))) if self else 0

    def to_pandas(self):
        import pandas
        return pandas.DataFrame(dict(self))

    def to_numpy(self):
        if numpy is None:
            raise ImportError("a structured array needs NumPy")
        out = numpy.empty(self.rows, dtype=[(name, column.dtype) for name, column in self.items()])
        for name, column in self.items():
            out[name] = column
        return out

    def __repr__(self):
        return "<Table of %d rows: %s>" % (self.rows, ", ".join(self))

    def _repr_html_(self):
        shown = min(self.rows, 10)
        head = "".join("<th>%s</th>" % html.escape(name) for name in self)
        body = "".join("<tr>%s</tr>" % "".join("<td>%s</td>" % html.escape(str(column[row])) for column in self.values())
                       for row in range(shown))
        return "<table><tr>%s</tr>%s</table><p>%d of %d rows</p>" % (head, body, shown, self.rows)


class Page:
    """The page of `emmctl report`: shown in a notebook; `text` is its HTML."""

    def __init__(self, text, height=720):
        self.text = text
        self.height = height

    def save(self, path):
        with open(os.fspath(path), "w", encoding="utf-8") as file:
            file.write(self.text)

    def _repr_html_(self):
        return ('<iframe sandbox="allow-scripts" style="width:100%%;height:%dpx;border:0" srcdoc="%s"></iframe>'
                % (self.height, html.escape(self.text, quote=True)))


def _options(options):
    """Options of Python as words: capacity="5GiB" is --capacity 5GiB, verify=True is --verify, a list repeats."""
    words = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                words.append(option)
            elif one is not None and one is not False:
                words += [option, os.fspath(one) if hasattr(one, "__fspath__") else str(one)]
    return words


def _run(command, arguments, answers=(0,)):
    words = [str(getattr(one, "path", one)) for one in arguments]
    done = subprocess.run([program(), command] + words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode not in answers:
        raise CommandError(command, done.returncode, done.stderr.decode("utf-8", "replace"))
    return done


def ask(command, *arguments, **options):
    """What a command of emmctl writes with --json: ask("tune", "oom.pickle", capacity="22GiB")."""
    with tempfile.TemporaryDirectory(prefix="emmctl-") as folder:
        out = os.path.join(folder, "answer.json")
        done = _run(command, list(arguments) + _options(options) + ["--json", out], answers=(0, 1, 3))
        if not os.path.exists(out):
            raise CommandError(command, done.returncode, done.stderr.decode("utf-8", "replace"))
        with open(out, encoding="utf-8") as file:
            return json.load(file)


def report(*inputs, **options):
    """The page of traces, of recordings and of what commands wrote with --json; shown in a notebook."""
    return Page(_run("report", list(inputs) + _options(options) + ["-o", "-"]).stdout.decode("utf-8"))


def _column(values):
    if numpy is None:
        return values
    if values and isinstance(values[0], str):
        return numpy.array(values, dtype=object)
    for kind in (numpy.int64, numpy.uint64, object):  # a trace may ask for 2^63 bytes
        try:
            return numpy.array(values, dtype=kind)
        except OverflowError:
            pass


def _table(names, rows):
    columns = list(zip(*rows)) if rows else [[] for _ in names]
    return Table((name, _column(list(column))) for name, column in zip(names, columns))


def _number(value):
    """A number of a trace, which is text where it is large or an address."""
    return int(value, 0) if isinstance(value, str) else int(value)


class Trace:
    """A trace: its `header`, its `events` and its `allocations` as tables. The path is `path`."""

    def __init__(self, path, header, events, allocations):
        self.path = path
        self.header = header
        self.events = events
        self.allocations = allocations

    def page(self, **options):
        return report(self, **options)

    def __repr__(self):
        return "<Trace %s: %d events, %d allocations>" % (self.path, self.events.rows, self.allocations.rows)

    def _repr_html_(self):
        return self.page()._repr_html_()


EVENT_COLUMNS = ["event", "op", "layer", "id", "size", "device", "thread", "stream", "time_ns", "call_site", "live_bytes"]
ALLOCATION_COLUMNS = ["id", "size", "op", "device", "thread", "stream", "call_site", "event", "end_event", "time_ns", "end_time_ns"]
_GIVES = ("memalloc", "memallocmanaged", "memhostalloc", "mempin")
_HOST = ("memhostalloc", "mempin")


def _is_served(row, defaults):
    """Did the request succeed when it was recorded; else, is it expected to?"""
    for said in (row.get("result"), row.get("expect", defaults.get("expect"))):
        outcome = said.get("outcome") if isinstance(said, dict) else said
        if outcome is not None:
            return outcome in ("ok", "any")
    return True


def load(path, format=None, partial=False):
    """A recording in any format of `emmctl list formats`.

    `events` has a row for each operation. `live_bytes` is what is live after it, of device memory on all devices.
    `allocations` has a row for each request that was served; `end_event` and `end_time_ns` are -1 where it was not freed.
    """
    path = os.fspath(path)
    done = _run("convert", [path, "-"] + _options({"from": format, "partial": partial}))
    header, sites = {}, {}
    events, allocations, open_at, live = [], [], {}, 0
    for number, line in enumerate(done.stdout.decode("utf-8").splitlines()):
        row = json.loads(line)
        if number == 0:
            header = row
            continue
        op, event = row["op"], number - 1
        defaults = header.get("defaults", {})
        name, layer = str(row.get("id", "")), row.get("layer", "")
        thread, stream = str(row.get("thread", defaults.get("thread", 0))), str(row.get("stream", "legacy"))
        device, time_ns = _number(row.get("device", defaults.get("device", 0))), _number(row.get("time_ns", 0))
        size = _number(row.get("size", 0))
        if op == "define" and row.get("kind") == "site":
            frames = row.get("frames", [])
            sites[name] = frames[0] if frames else ""
        site = sites.get(str(row.get("site", "")), "")
        context = (device, row.get("context", defaults.get("context")))
        if op in _GIVES and layer != "backing" and _is_served(row, defaults):
            open_at[name] = len(allocations), context
            allocations.append([name, size, op, device, thread, stream, site, event, -1, time_ns, -1])
            live += 0 if op in _HOST else size
        ends = []
        if op == "free" and layer != "backing" and name in open_at:
            ends = [name]
        elif op == "reset":
            ends = [one for one, (_, where) in open_at.items() if where == context]
        for one in ends:
            ended = allocations[open_at.pop(one)[0]]
            ended[8], ended[10] = event, time_ns
            live -= 0 if ended[2] in _HOST else ended[1]
            if op == "free":
                size, device, site = ended[1], ended[3], site or ended[6]
        events.append([event, op, layer, name, size, device, thread, stream, time_ns, site, live])
    return Trace(path, header, _table(EVENT_COLUMNS, events), _table(ALLOCATION_COLUMNS, allocations))


class Replay:
    """What became of a trace on a manager: the `summary` (emmctl.replay/1), and the `log`, a row for each operation."""

    def __init__(self, trace, options, summary, log):
        self.trace = trace
        self.options = options
        self.summary = summary
        self.log = log

    @property
    def served(self):
        return self.summary["failures"] == 0

    def page(self):
        return report(self.trace, **{name: self.options[name] for name in ("manager", "device", "capacity") if name in self.options})

    def __repr__(self):
        return "<Replay of %s on %s: %d failures, peak reserved %d bytes>" % (
            self.summary["trace"], self.summary["manager"], self.summary["failures"], self.summary["peak_reserved_bytes"])

    def _repr_html_(self):
        return self.page()._repr_html_()


def replay(trace, manager="pool", device="sim", **options):
    """Replays a trace, a path or what load() gave, as `emmctl replay` does; options are that command's.

    A replay that finds a failure is an answer; CommandError is raised where there is none.
    """
    options = dict(options, manager=manager, device=device)
    folder = tempfile.mkdtemp(prefix="emmctl-")
    try:
        out, log = os.path.join(folder, "summary.json"), os.path.join(folder, "log.csv")
        words = [getattr(trace, "path", trace)] + _options(options) + ["--json", out, "--log", log, "--log-format", "emm"]
        done = _run("replay", words, answers=(0, 1, 3))
        if not os.path.exists(out):
            raise CommandError("replay", done.returncode, done.stderr.decode("utf-8", "replace"))
        with open(out, encoding="utf-8") as file:
            summary = json.load(file)
        return Replay(trace, options, summary, _read_log(folder))
    finally:
        shutil.rmtree(folder)


_NUMBERS = {"seq", "line", "repeat", "late", "size", "device", "begin_ns", "end_ns", "live_bytes", "live_count", "reserved_bytes",
            "free_bytes", "total_bytes"}


def _read_log(folder):
    """The rows of all devices; each has a log of its own where there are several."""
    names, rows = [], []
    for name in sorted(os.listdir(folder)):
        if not name.startswith("log"):
            continue
        with open(os.path.join(folder, name), newline="", encoding="utf-8") as file:
            lines = csv.reader(file)
            names = next(lines)
            numbers = [column in _NUMBERS for column in names]
            for line in lines:
                rows.append([(int(word) if word else 0) if number else word for word, number in zip(line, numbers)])
    at = names.index("seq") if names else 0
    rows.sort(key=lambda row: row[at])
    return _table(names, rows)
