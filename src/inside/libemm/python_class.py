"""An NBEP 7 class in a process of emmctl's: Numba makes the instance, and the slots of a plugin ask it.

python_class.cpp runs this text, with the address of its functions in FUNCTIONS and the program's path in PYTHON. Each
function answers with a CUresult. What went wrong is kept for each thread, with the traceback of the class's own lines.
"""
import contextlib
import ctypes
import gc
import importlib
import importlib.util
import inspect
import io
import itertools
import linecache
import marshal
import os
import pickle
import select
import subprocess
import sys
import threading
import types
import weakref

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_SUPPORTED, UNKNOWN = 0, 1, 2, 801, 999
HOST_PORTABLE, HOST_MAPPED, HOST_WRITE_COMBINED = 1, 2, 4
PIN_MAPPED = 2
ATTACH_GLOBAL = 1


def lead_to_standins(folder):
    """Python opens the stand-ins where it is told to open libcuda or libcudart by name, whatever the version."""
    names = {"libcuda": "libcuda.so.1", "libcudart": "libcudart.so.13"}
    make = ctypes.CDLL.__init__

    def led(self, name, *arguments, **options):
        found = names.get(os.path.basename(os.fspath(name)).split(".so")[0]) if name else None
        make(self, folder + found if found else name, *arguments, **options)
    ctypes.CDLL.__init__ = led


if os.environ.get("EMM_STANDIN_FOLDER"):
    lead_to_standins(os.environ["EMM_STANDIN_FOLDER"])
sys.executable = PYTHON
if not getattr(sys, "argv", None):
    sys.argv = [""]
sys.path.insert(0, "")
drv, no_numba = None, ""
try:
    import numba.cuda  # noqa: F401
    from numba.cuda.cudadrv import driver as drv
    if not hasattr(drv, "BaseCUDAMemoryManager"):
        drv, no_numba = None, "its Numba takes no memory managers: expected 0.49 or later, without NUMBA_ENABLE_CUDASIM"
except ImportError as error:
    no_numba = "%s has no Numba (%s): expected a Python with it; EMM_PYTHON names another" % (PYTHON, error)


class Said:
    """What each thread was told last. Not threading.local, which a thread of C's loses after each call."""

    def __init__(self):
        self.__dict__["_by_thread"] = {}

    def __getattr__(self, name):
        return self._by_thread.get((threading.get_ident(), name))

    def __setattr__(self, name, value):
        self._by_thread[threading.get_ident(), name] = value


said = Said()
managers, numbers, tokens = {}, itertools.count(1), itertools.count(1)
kept = []  # the functions, which the C side calls


keeps_stories = False
NUMBA = os.path.dirname(os.path.dirname(os.path.dirname(drv.__file__))) + os.sep if drv else "?"
PYTHONS_OWN = os.path.dirname(os.__file__) + os.sep
own_codes = {}


def is_own_file(name):
    """Whether it is the user's, and not of Python, of Numba or this text."""
    if name.startswith("<"):
        return False
    path = os.path.abspath(name)
    if path.startswith(NUMBA):
        return False
    return not path.startswith(PYTHONS_OWN) or "site-packages" in path or "dist-packages" in path


def note_line(frame, event, argument):
    if event == "line":
        said.running.append((frame.f_code, frame.f_lineno))
    return note_line


def note_call(frame, event, argument):
    return note_line if is_own_code(frame.f_code) else None


def begin_story(operation):
    said.traceback, said.running, said.operation = None, [], operation
    sys.settrace(note_call)


def end_story():
    sys.settrace(None)
    if said.running:
        said.ran, said.ran_in = said.running, said.operation


def shown(path):
    """A path as a person writes it from here."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def line_at(code, line):
    return "%s:%d: %s" % (shown(code.co_filename), line, linecache.getline(code.co_filename, line).strip())


def steps_of(error):
    """The code and the line of each frame that led to an exception. The traceback module looks at each file each time."""
    steps, at = [], error.__traceback__
    while at is not None:
        steps.append((at.tb_frame.f_code, at.tb_lineno))
        at = at.tb_next
    return steps


told_steps = {}


def told_step(step):
    if step not in told_steps:
        code, line = step
        told_steps[step] = "%s:%d in %s: %s" % (shown(code.co_filename), line, code.co_name,
                                                linecache.getline(code.co_filename, line).strip())
    return told_steps[step]


def is_own_code(code):
    own = own_codes.get(code)
    if own is None:
        own = own_codes[code] = is_own_file(code.co_filename)
    return own


def traceback_of(error):
    """The user's lines that led to an exception, or Numba's where there are none, then the exception."""
    steps = [step for step in steps_of(error) if not step[0].co_filename.startswith("<")]
    steps = [step for step in steps if is_own_code(step[0])] or steps
    return [told_step(step) for step in steps[-6:]] + ["%s: %s" % (type(error).__name__, error)]


def story_lines():
    most, lines = 8, []
    if said.traceback:
        return said.traceback
    for code, line in said.ran or ():
        text = line_at(code, line)
        if not lines or lines[-1] != text:
            lines.append(text)
    if not lines:
        return []
    cut = ["..."] if len(lines) > most else []
    return ["%s ran:" % said.ran_in] + cut + lines[-most:]


class Refused(Exception):
    """What is wrong with the user's choice, without a traceback."""


def words_of(error):
    """The traceback of the lines that are not ours, then the error, in one paragraph."""
    where = "; ".join([told_step(step) for step in steps_of(error) if is_own_code(step[0])][-3:])
    what = "%s: %s" % (type(error).__name__, error)
    return what + (" (%s)" % where if where else "")


cudart = []


def cudart_error():
    """What cudart last answered this thread, which a class that raises its own exception was told. 0: nothing."""
    try:
        if not cudart:
            cudart.append(ctypes.CDLL("libcudart.so.13"))
        return cudart[0].cudaGetLastError()
    except (OSError, AttributeError):
        return 0


def status_of(error):
    code = getattr(error, "code", None)
    if isinstance(error, drv.CudaAPIError) and code is not None:
        return int(code)
    if isinstance(error, MemoryError):
        return OUT_OF_MEMORY
    if isinstance(error, NotImplementedError):
        return NOT_SUPPORTED
    steps = steps_of(error)
    if steps and steps[-1][0].co_filename.startswith("<"):
        return UNKNOWN  # what the class gave is of no use: no driver call failed
    return cudart_error() or UNKNOWN


def asked(result, *arguments):
    """Makes a function of the C side's. An exception becomes a status and words."""
    def decorate(function):
        def call(*given):
            raised.pop(threading.get_ident(), None)
            if keeps_stories:
                begin_story(function.__name__)
            try:
                answer = function(*given)
            except Refused as error:
                said.words, answer = str(error), INVALID_VALUE
            except BaseException as error:  # noqa: B902: also SystemExit, which must not end the process
                said.words, answer = words_of(error), status_of(error) if drv else UNKNOWN
                said.traceback = traceback_of(error) if keeps_stories else None
            error = raised.pop(threading.get_ident(), None)
            if error is not None:  # raised by a finalizer, from which Python lets nothing out
                said.words, answer = words_of(error), status_of(error)
                said.traceback = traceback_of(error) if keeps_stories else None
            if keeps_stories:
                end_story()
            return (answer or SUCCESS) if result is not None else None
        made = ctypes.CFUNCTYPE(result, *arguments)(call)
        kept.append(made)
        return function
    return decorate


raised = {}  # what a finalizer raised, by thread


def unraisable(what):
    raised[threading.get_ident()] = what.exc_value


sys.unraisablehook = unraisable
U32, U64, TEXT, BYTES, ANSWER = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p
STATUS, COUNT = ctypes.c_int32, ctypes.c_size_t


def numbers_at(address, count):
    return (U64 * count).from_address(address)


def module_of(spec):
    """The module and the class's name, or None, that MODULE[:CLASS] or FILE.py[:CLASS] names."""
    at = spec.rfind(".py")
    if at >= 0 and spec[at + 3:at + 4] in ("", ":"):
        path, name = spec[:at + 3], spec[at + 4:]
        if not os.path.exists(path):
            raise Refused("no such file")
        folder, file = os.path.split(os.path.abspath(path))
        if folder not in sys.path:
            sys.path.insert(0, folder)
        module_name = file[:-3]
        if module_name in sys.modules:
            return sys.modules[module_name], name
        found = importlib.util.spec_from_file_location(module_name, path)
        module = importlib.util.module_from_spec(found)
        sys.modules[module_name] = module
        try:
            found.loader.exec_module(module)
        except BaseException:
            del sys.modules[module_name]
            raise
        return module, name
    module, _, name = spec.partition(":")
    return importlib.import_module(module), name


found_under = {}  # the module and the name, by class


def class_of(spec):
    base = drv.BaseCUDAMemoryManager
    try:
        module, name = module_of(spec)
    except Refused:
        raise
    except BaseException as error:
        raise Refused("it cannot be imported: %s" % words_of(error))
    own = [each for each in vars(module).values()
           if isinstance(each, type) and issubclass(each, base) and each.__module__ == module.__name__]
    if name:
        if "=" in name:
            raise Refused("%s: a class takes no options" % name)
        found = getattr(module, name, None)
        if found is None:
            there = ", ".join(sorted({each.__name__ for each in own})[:3])
            raise Refused("%s has no class %s%s" % (module.__name__, name, ", but " + there if there else ""))
    else:
        name = "_numba_memory_manager"
        found = getattr(module, name, None)
        if found is None:
            own = [each for each in own if not any(each is not other and issubclass(other, each) for other in own)]
            if len(own) != 1:
                raise Refused("%s has no _numba_memory_manager and %d classes that are memory managers%s: expected one, "
                              "or its name after a colon"
                              % (module.__name__, len(own), "".join(" " + each.__name__ for each in own)))
            found = own[0]
            name = next(key for key, each in vars(module).items() if each is found)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise Refused("%s is no subclass of Numba's BaseCUDAMemoryManager" % getattr(found, "__name__", found))
    found_under[found] = module.__name__, name
    return found


class Judged:
    """One manager that Numba made, in a context of its own, and the memory that it handed out."""

    def __init__(self, kind, device):
        self.memory, self.deferrals = {}, []
        if device is None:
            self.manager = kind(context=None)  # as set_memory_manager() makes it, which may not touch CUDA
            return
        drv._memory_manager = kind
        self.device = drv.driver.get_device(device)
        handle = primary_handle(self.device)
        self.context = drv.Context(self.device, handle)
        self.device.primary_context = self.context  # the one that cuda.current_context() gives
        self.manager = self.context.memory_manager

    def keep(self, memory, device_address, host_address, answer):
        token = next(tokens)
        self.memory[token] = memory
        numbers_at(answer, 3)[:] = token, device_address or 0, host_address or 0


handles = {}


def primary_handle(device):
    if device.id not in handles:
        if getattr(drv, "USE_NV_BINDING", hasattr(drv, "binding")):
            handles[device.id] = drv.driver.cuDevicePrimaryCtxRetain(device.id)
        else:
            handle = drv.drvapi.cu_context()
            drv.driver.cuDevicePrimaryCtxRetain(ctypes.byref(handle), device.id)
            handles[device.id] = handle
    return handles[device.id]


def value(pointer):
    pointer = getattr(pointer, "value", pointer)
    return int(pointer) if pointer is not None else 0


def device_address(memory):
    return value(drv.device_pointer(memory))


def host_address(memory):
    return value(memory.host_pointer)


def sized(memory, size):
    if memory.size != size:
        raise ValueError("memory of %r bytes was given for a request of %d" % (memory.size, size))


@asked(STATUS, TEXT, ctypes.c_int32, U32, ANSWER)
def create(spec, device, probe, answer):
    if drv is None:
        raise Refused(no_numba)
    kind = class_of(spec.decode())
    try:
        made = Judged(kind, None if probe else device)
    except TypeError as error:
        # an abstract method that is missing, or an __init__ with other parameters
        raise Refused("Numba makes it as %s(context=context): %s" % (kind.__name__, words_of(error)))
    number = next(numbers)
    managers[number] = made
    numbers_at(answer, 1)[0] = number


@asked(None, U64)
def destroy(number):
    made = managers.pop(number)
    made.memory.clear()
    if getattr(made, "context", None) is not None:
        made.manager.reset()  # as Numba does where a context ends
        if made.device.primary_context is made.context:
            made.device.primary_context = None
    del made
    gc.collect(1)  # a context and its manager are a cycle, and its end is not to be that of another operation


def put(words, buffer, size):
    words = words.encode(errors="replace")
    if size > 0:
        part = words[:size - 1] + b"\0"
        ctypes.memmove(buffer, part, len(part))
    return len(words)


@ctypes.CFUNCTYPE(COUNT, ANSWER, COUNT)
def last_error(buffer, size):
    return put(said.words or "", buffer, size)


kept.append(last_error)


@asked(STATUS, U64)
def initialize(number):
    managers[number].manager.initialize()


@asked(STATUS, U64, U64, ANSWER)
def memalloc(number, size, answer):
    made = managers[number]
    memory = made.context.memalloc(size)
    sized(memory, size)
    made.keep(memory, device_address(memory), 0, answer)


@asked(STATUS, U64, U64)
def free(number, token):
    memory = managers[number].memory.pop(token, None)
    if memory is None:
        return
    alive = weakref.ref(memory)
    del memory
    if alive() is not None:
        gc.collect()  # a cycle holds it


@asked(STATUS, U64, U64, U32, ANSWER)
def memhostalloc(number, size, flags, answer):
    made = managers[number]
    memory = made.context.memhostalloc(size, bool(flags & HOST_MAPPED), bool(flags & HOST_PORTABLE),
                                       bool(flags & HOST_WRITE_COMBINED))
    sized(memory, size)
    made.keep(memory, device_address(memory) if flags & HOST_MAPPED else 0, host_address(memory), answer)


@asked(STATUS, U64, BYTES, U64, U32, ANSWER)
def mempin(number, pointer, size, flags, answer):
    made = managers[number]
    if flags & ~PIN_MAPPED:
        raise NotImplementedError("mempin() of Numba's takes no other flag than mapped")
    binding = getattr(drv, "USE_NV_BINDING", hasattr(drv, "binding"))
    owner = (ctypes.c_char * size).from_address(pointer or 0) if size else object()
    memory = made.context.mempin(owner, pointer if binding else ctypes.c_void_p(pointer), size, bool(flags & PIN_MAPPED))
    sized(memory, size)
    made.keep(memory, device_address(memory) if flags & PIN_MAPPED else 0, host_address(memory), answer)


@asked(STATUS, U64, U64, U32, ANSWER)
def memallocmanaged(number, size, attach, answer):
    made = managers[number]
    if not hasattr(made.manager, "memallocmanaged"):
        raise NotImplementedError("the class has no memallocmanaged")
    memory = made.manager.memallocmanaged(size, attach == ATTACH_GLOBAL)
    sized(memory, size)
    address = device_address(memory)
    made.keep(memory, address, address, answer)


class Handle(ctypes.Structure):
    _fields_ = [("struct_size", COUNT), ("bytes", ctypes.c_ubyte * 64), ("offset", U64), ("domain", ctypes.c_int32),
                ("bus", ctypes.c_int32), ("device", ctypes.c_int32)]


@asked(STATUS, U64, U64, U64, ANSWER)
def get_ipc_handle(number, pointer, size, answer):
    made = managers[number]
    for memory in made.memory.values():
        begin = device_address(memory) if hasattr(memory, "device_pointer") else 0
        if begin and begin <= pointer and pointer + size <= begin + memory.size:
            break
    else:
        raise drv.CudaAPIError(INVALID_VALUE, "no memory of this manager is there")
    part = memory if (pointer, size) == (begin, memory.size) else memory.view(pointer - begin, pointer - begin + size)
    made_handle = made.context.get_ipc_handle(part)
    handle = Handle.from_address(answer)
    content = made_handle.handle
    content = bytes(content.reserved) if hasattr(content, "reserved") else bytes(content)
    handle.bytes[:] = content.ljust(64, b"\0")[:64]
    handle.offset = made_handle.offset


@asked(STATUS, U64, ANSWER)
def get_memory_info(number, answer):
    info = managers[number].context.get_memory_info()
    numbers_at(answer, 2)[:] = value(info.free), value(info.total)


@asked(None, U64)
def reset(number):
    """After a reset a program drops its arrays. A class that frees at the end of its pointers alone frees here."""
    made = managers[number]
    made.manager.reset()
    for token in list(made.memory):
        made.memory.pop(token, None)


@asked(None, U64)
def defer_cleanup(number):
    guard = managers[number].manager.defer_cleanup()
    guard.__enter__()
    managers[number].deferrals.append(guard)


@asked(None, U64)
def end_defer_cleanup(number):
    deferrals = managers[number].deferrals
    if deferrals:
        deferrals.pop().__exit__(None, None, None)


@asked(STATUS, U64)
def interface_version(number):
    version = managers[number].manager.interface_version
    return version if type(version) is int else 0


def queues_of(manager):
    """Numba's queues of frees that a manager has, itself or in the managers that it delegates to."""
    found, left, seen = [], [manager], []
    while left:
        each = left.pop()
        seen.append(each)
        for thing in vars(each).values():
            if isinstance(thing, drv._PendingDeallocs):
                found.append(thing)
            elif isinstance(thing, drv.BaseCUDAMemoryManager) and not any(thing is other for other in seen):
                left.append(thing)
    return found


@asked(STATUS, U64)
def flush(number):
    """What Numba does where memory is short, for a class with Numba's queue of frees."""
    queues = queues_of(managers[number].manager)
    if not queues:
        return NOT_SUPPORTED
    for queue in queues:
        queue.clear()


@ctypes.CFUNCTYPE(COUNT, ANSWER, COUNT)
def story(buffer, size):
    return put("\n".join(story_lines()), buffer, size)


@ctypes.CFUNCTYPE(None)
def keep_stories():
    """From here on the lines of the class that an operation runs are kept, which takes twice the time."""
    global keeps_stories
    keeps_stories = True


kept += [story, keep_stories]
