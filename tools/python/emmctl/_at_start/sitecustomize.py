"""Python imports this before the program, under `emmctl record --level request` and where a program runs without a GPU. It waits
for Numba, CuPy and PyTorch, and records what they are asked for; without a GPU it follows PyTorch's values. A program that
imports none of them pays nothing."""
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _module(name, path, folder=None):
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=folder and [folder])
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _package():
    """This package, where the program has not imported one."""
    if "emmctl" not in sys.modules:
        folder = os.path.dirname(_HERE)
        _module("emmctl", os.path.join(folder, "__init__.py"), folder)


# Modules whose classes launch kernels.
_LAUNCHERS = {"triton.runtime.jit": "JITFunction", "torch._inductor.runtime.triton_heuristics": "CachingAutotuner"}


def _framework(name):
    """`name` was imported."""
    if name == "torch" and os.environ.get("EMM_STANDIN_VALUES"):
        try:
            _package()
            from emmctl import _under_sim
            _under_sim.torch_imported()
            for launcher in _LAUNCHERS.keys() & sys.modules.keys():  # imported before PyTorch
                _under_sim.kernels_imported(launcher, _LAUNCHERS[launcher])
        except Exception as error:  # the program is not to suffer
            sys.stderr.write("emmctl: --device sim: PyTorch's values are not followed: %s: %s\n" % (type(error).__name__, error))
    if name in _LAUNCHERS:
        if "emmctl" in sys.modules and os.environ.get("EMM_STANDIN_VALUES"):
            from emmctl import _under_sim
            _under_sim.kernels_imported(name, _LAUNCHERS[name])
        return
    if not os.environ.get("EMM_RECORD_REQUESTS"):
        return
    try:
        _package()
        from emmctl import _under_record
        _under_record.imported(name)
    except Exception as error:  # the program is not to suffer
        sys.stderr.write("emmctl record: %s is not recorded: %s: %s\n" % (name, type(error).__name__, error))
        _leave_sign(name)


def _leave_sign(name):
    """Tells `emmctl record --require-trace`."""
    folder = os.path.dirname(os.environ["EMM_RECORD_REQUESTS"])
    try:
        os.close(os.open(os.path.join(folder, "%d.%s.unrecorded" % (os.getpid(), name)), os.O_WRONLY | os.O_CREAT, 0o666))
    except OSError:
        pass


class _Loader:
    """A module's loader, which tells when the module is whole."""

    def __init__(self, loader, framework):
        self._loader, self._framework = loader, framework

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _framework(self._framework)


class _Waiting:
    """Finds the modules of the frameworks as everybody does, and hears of their import."""

    def __init__(self):
        self._modules = {"numba.cuda.cudadrv.driver": "numba", "cupy": "cupy", "torch": "torch", **{name: name for name in _LAUNCHERS}}

    def find_spec(self, name, path=None, target=None):
        framework = self._modules.pop(name, None)
        if framework is None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, framework)
                return spec
        self._modules[name] = framework
        return None


def _next():
    """The sitecustomize that Python would have found without this one."""
    elsewhere = [place for place in sys.path if os.path.abspath(place or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if os.environ.get("EMM_RECORD_REQUESTS") or os.environ.get("EMM_STANDIN_VALUES"):
    sys.meta_path.insert(0, _Waiting())
sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != _HERE]
_next()
