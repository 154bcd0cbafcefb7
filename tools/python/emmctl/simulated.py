"""Does a function fit on a card? It runs in a process of its own on a simulated device, and needs no GPU.

    import emmctl.simulated

    answer = emmctl.simulated.run(train, gpu="rtx4090")
    answer.fits, answer.peak_bytes, answer.value        # True, 19_931_332_608, what train() returned
    print(answer)                                       # what `emmctl run --device sim` says

The function is anybody's: of a module, of a test, of a notebook's cell. The process imports its module, or, of a notebook's
function, what that names: modules, functions and classes of the notebook, and values that can be pickled. Arguments and the
value that is returned are pickled; one that cannot be is None. emmctl.pytest has the same as a fixture.
"""
import inspect
import json
import os
import pickle
import subprocess
import sys
import tempfile
import textwrap
import traceback
import types

from emmctl._library import program


class Answer:
    """What `emmctl run --device sim` found. `fits` is None where it cannot be told; `error` is the traceback with which the
    function ended, else None; `report` is the whole answer (emmctl.run/1), and `words` what was said."""

    def __init__(self, report, words, value, error):
        self.report, self.words, self.value, self.error = report, words, value, error

    fits = property(lambda self: self.report["fits"])
    peak_bytes = property(lambda self: max([device["peak_bytes"] for device in self.report["devices"]], default=0),
                          doc="The most that the function's process held of a device at a time.")
    total_bytes = property(lambda self: max([device["total_bytes"] for device in self.report["devices"]], default=0))
    places = property(lambda self: self.report["places"], doc="The lines that got a value which is not known without a GPU.")

    def __bool__(self):
        """Does it fit, and did the function end well?"""
        return bool(self.fits) and self.error is None

    def __str__(self):
        return self.words.rstrip() + ("\n" + self.error if self.error else "")

    __repr__ = __str__


class Failed(RuntimeError):
    """The function could not be run."""


def _device(gpu, capacity, devices, profile):
    options = [("gpu", gpu), ("profile", profile and os.path.abspath(profile)), ("capacity", capacity), ("devices", devices)]
    given = ",".join("%s=%s" % (name, value) for name, value in options if value is not None)
    return "sim:" + given if given else "sim"


_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from emmctl import simulated; sys.exit(simulated._main(*sys.argv[2:]))"


def run(function, *arguments, gpu=None, capacity=None, devices=None, profile=None, unknown_sizes=None, timeout=None, check=False):
    """Calls `function(*arguments)` in a process without a GPU. The card is one of `emmctl list gpus`, or of a `profile` that
    `emmctl doctor --profile` wrote; without one it is an H200. Returns an Answer. With `check`, an error of the function's is
    raised as Failed, but for one that came of too little memory."""
    with tempfile.TemporaryDirectory(prefix="emmctl-") as folder:
        asked, done, out = (os.path.join(folder, name) for name in ("asked", "done", "answer.json"))
        with open(asked, "wb") as file:
            pickle.dump({"path": sys.path, "function": _described(function), "arguments": pickle.dumps(arguments)}, file)
        command = [program(), "run", "--device", _device(gpu, capacity, devices, profile), "--json", out]
        if unknown_sizes is not None:
            command += ["--unknown-sizes", str(unknown_sizes)]
        command += ["--", sys.executable, "-c", _CHILD, os.path.dirname(os.path.dirname(os.path.abspath(__file__))), asked, done]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout)
        words = ended.stdout.decode("utf-8", "replace").replace("emmctl: wrote %s\n" % out, "")
        if not os.path.exists(out):
            raise Failed(words.strip())
        with open(out, encoding="utf-8") as file:
            report = json.load(file)
        value = error = None
        if os.path.exists(done):
            with open(done, "rb") as file:
                value, error = pickle.load(file)
        elif not report["endless"] and not report["waiting"]:
            error = "the process ended with %d" % report["exit_code"]
        answer = Answer(report, words, value, error)
        if check and error is not None and answer.fits is not False:
            raise Failed(str(answer))
        return answer


def _described(function):
    """How the process finds the function."""
    module = sys.modules.get(function.__module__)
    path = getattr(module, "__file__", None)
    if "<locals>" not in function.__qualname__ and path is not None:
        return {"name": function.__module__, "file": os.path.abspath(path), "of": function.__qualname__}
    return {"of": function.__name__, **_copied(function)}


def _copied(function):
    """A notebook's or a local function: its source, and what that names."""
    modules, sources, values = {}, {}, {}

    def take(one):
        sources[one.__name__] = None  # its place, before what it names
        try:
            sources[one.__name__] = textwrap.dedent(inspect.getsource(one))
        except (OSError, TypeError):
            raise Failed("%s: its source is not known; put it into a file" % one.__name__) from None
        codes = [one.__code__] if inspect.isfunction(one) else [f.__code__ for f in vars(one).values() if inspect.isfunction(f)]
        known = dict(inspect.getclosurevars(one).nonlocals) if inspect.isfunction(one) else {}
        space = one.__globals__ if inspect.isfunction(one) else vars(sys.modules[one.__module__])
        names = set(known)
        while codes:
            code = codes.pop()
            names.update(code.co_names)
            codes += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
        names.update(base.__name__ for base in getattr(one, "__bases__", ()))
        for name in sorted(names):
            if name in sources or name in modules or name in values or (name not in known and name not in space):
                continue
            value = known[name] if name in known else space[name]
            if isinstance(value, types.ModuleType):
                modules[name] = value.__name__
            elif (inspect.isfunction(value) or inspect.isclass(value)) and value.__module__ == function.__module__:
                take(value)
            else:
                try:
                    values[name] = pickle.dumps(value)
                except Exception as error:
                    raise Failed("%s names %s, which cannot be pickled: %s" % (one.__name__, name, error)) from None
    take(function)
    return {"modules": modules, "sources": list(reversed(list(sources.values()))), "values": values}


# In the process without a GPU

def _found(described):
    if "file" not in described:
        space = {"__name__": "__main__"}
        for name, module in described["modules"].items():
            __import__(module)
            space[name] = sys.modules[module]
        for name, value in described["values"].items():
            space[name] = pickle.loads(value)
        for source in described["sources"]:
            exec(compile(source, "<notebook>", "exec"), space)
        return space[described["of"]]
    import importlib
    import importlib.util
    name = described["name"]
    try:
        module = importlib.import_module(name)
        if os.path.abspath(getattr(module, "__file__", "")) != described["file"]:
            raise ImportError
    except ImportError:  # a script, or a test's file in no folder of sys.path
        name = "emmctl_asked" if name == "__main__" else name
        spec = importlib.util.spec_from_file_location(name, described["file"])
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    found = module
    for part in described["of"].split("."):
        found = getattr(found, part)
    return found


def _main(asked, done):
    with open(asked, "rb") as file:
        given = pickle.load(file)
    sys.path[:] = given["path"]
    value = error = None
    try:
        value = _found(given["function"])(*pickle.loads(given["arguments"]))
    except BaseException:
        error = traceback.format_exc()
    try:
        pickle.dumps(value)
    except Exception:
        value = None
    with open(done, "wb") as file:
        pickle.dump((value, error), file)
    return 0 if error is None else 1

