#!/usr/bin/env python3
"""Whole programs on simulated devices: `emmctl run --device sim` and `emmctl record --device sim`.

The programs are linked to libraries of the shape of CUDA's, found by an RPATH, whose functions abort. So each line of these
tests also shows that the loader was led past them.
"""
import argparse
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
for name in ("emmctl", "client", "old-client", "client11", "fake"):
    parser.add_argument("--" + name, required=True)
parser.add_argument("--properties")
options = parser.parse_args()
failures = 0
folder = tempfile.TemporaryDirectory(prefix="emm-program-")
environment = {name: value for name, value in os.environ.items() if not name.startswith(("EMM_", "LD_"))}
environment["TMPDIR"] = folder.name


def emmctl(*words, **more):
    done = subprocess.run([options.emmctl, *words], cwd=folder.name, env={**environment, **more}, text=True, capture_output=True)
    left = glob.glob(folder.name + "/emmctl-sim-*")
    expect(left, [], "a folder is left by %s" % " ".join(words))
    return done


def run(device, *program, extra=(), **more):
    return emmctl("run", "--device", device, *extra, "--", *program, **more)


def expect(found, wanted, what):
    global failures
    if found != wanted:
        failures += 1
        print("FAILED: %s\n  found  %r\n  wanted %r" % (what, found, wanted))


def has(done, words, code=0):
    text = done.stdout + done.stderr
    expect(done.returncode, code, "the exit code, where it says: " + text)
    for one in words:
        expect(one in text, True, "%r in what it says: %s" % (one, text))


def test_fits_or_not():
    has(run("sim:capacity=64MiB", options.client, "take", "40"),
        ["it fits: at most 40.00 MiB (41,943,040 bytes) of the 64.00 MiB of the simulated NVIDIA H200; 24.00 MiB are left"])
    # The smallest capacity at which it passes, and a page less.
    has(run("sim:capacity=40MiB", options.client, "take", "40"), ["0 B are left"])
    has(run("sim:capacity=38MiB", options.client, "take", "40"),
        ["malloc of 40 MiB: CUDA_ERROR_OUT_OF_MEMORY", "it does not fit as it is", "refused 1 request for want of memory",
         "the first was of 40.00 MiB (41,943,040 bytes), when the process held 0 B of 38.00 MiB"], 1)
    has(emmctl("run", "--device", "sim", "--capacity", "38MiB", "--", options.client, "take", "40"), ["CUDA_ERROR_OUT_OF_MEMORY"], 1)
    # A program that gives back what it keeps goes on; what was refused is said.
    has(run("sim:capacity=60MiB", options.client, "retry", "40"), ["refused 1 request", "the process held 40.00 MiB of 60.00 MiB"])
    # The card's own size.
    has(run("sim:gpu=t4", options.client, "take", "14000"), ["it fits", "of the simulated Tesla T4"])
    has(run("sim:gpu=t4", options.client, "take", "16000"), ["CUDA_ERROR_OUT_OF_MEMORY", "a context takes memory of a real card, which is not counted here"], 1)
    has(run("sim:gpu=h200", options.client, "take", "16000"), ["526.81 MiB of 139.80 GiB are never free"])


def test_an_engine_that_takes_the_rest():
    """What it asks for fits: free memory is what the card has less its context and what the process holds."""
    for device, context in (("sim:gpu=l4", 0), ("sim:capacity=24GiB", 0), ("sim", 552402944), ("sim:gpu=t4", 0)):
        done = run(device, options.client, "serves", "100")
        has(done, ["blocks of", "it fits"])
        blocks, whole, free = (int(number) for number in re.findall(r"(\d+) blocks of (\d+), then (\d+) free", done.stdout)[0])
        others = whole - free - (100 << 20) - (blocks << 21)
        expect(blocks, (whole // 10 * 9 - (300 << 20) - others) >> 21, device + ": blocks, as the engine counts them")
        expect((others, whole - free <= whole), (context or others, True), device + ": what others have")


def test_what_libraries_take():
    """As measured on an H200: streams, handles of cuBLAS, PyTorch's first kernel. Of other cards it is not known."""
    measured = ["kernel 0", "streams 0", "streams 2", "streams 14", "streams 54", "streams again 0", "handle 68", "handle 64",
                "both ended -128", "PyTorch's kernel 92"]
    said = ["at most 204.00 MiB", "at its peak, 202.00 MiB of it were CUDA's libraries', streams' and PyTorch's kernels', as measured on an H200"]
    done = run("sim", options.client, "libraries", "2")
    expect(done.stdout.splitlines(), measured, "what each step takes")
    has(done, [*said, "526.81 MiB of 139.80 GiB are never free"])
    has(run("sim:gpu=h200,capacity=204MiB", options.client, "libraries", "2"),
        [*said, "0 B are left", "an H200's takes 526.81 MiB\n"])
    for device in ("sim:gpu=l4", "sim:capacity=24GiB"):
        done = run(device, options.client, "libraries", "2")
        expect(done.stdout.splitlines(), [line.rsplit(" ", 1)[0] + " 0" for line in measured], device)
        has(done, ["what CUDA's libraries and PyTorch's kernels take is not counted; in most trainings on an H200 it was 224.00 MiB"])
    has(run("sim", options.client, "libraries", "700"), ["at most 868.00 MiB", "at its peak, 166.00 MiB of it were CUDA's libraries'"])
    # What lacks is refused as on a card, and the answer says so.
    has(run("sim:gpu=h200,capacity=100MiB", options.client, "libraries", "2"),
        ["cublasCreate: 3", "it does not fit as it is", "the first was of 68.00 MiB (71,303,168 bytes) by a library of CUDA's"], 1)
    has(run("sim:gpu=h200,capacity=90MiB", options.client, "kernel", "1"), ["launch 2,", "the first was of 92.00 MiB"])
    for device, program, wanted in (("sim", ("kernel", "1"), 92 << 20), ("sim:gpu=t4", ("take", "1"), None)):
        said = run(device, options.client, *program, extra=("--json", "-")).stdout
        expect(json.loads(said[said.index("{"):])["devices"][0]["libraries_bytes"], wanted, device + ": libraries_bytes")


def test_processes_devices_threads():
    has(run("sim:devices=2,capacity=64MiB", options.client, "devices", "10"),
        ["2 devices", "of device 0, a simulated NVIDIA H200", "at most 12.00 MiB (12,582,912 bytes) of the 64.00 MiB of device 1"])
    has(run("sim:capacity=64MiB", "sh", "-c", "%s take 10 && %s take 60" % (options.client, options.client)),
        ["2 processes took 70.00 MiB", "depends on when the peaks are"])
    has(run("sim:capacity=64MiB", options.client, "threads", "2"), ["it fits: at most", "of the 64.00 MiB"])
    # CUDA refuses the child of a process that has started it.
    has(run("sim:capacity=64MiB", options.client, "fork"), ["in the child: CUDA_ERROR_NOT_INITIALIZED", "it fits: at most 2.00 MiB"])
    # A program that is killed has reported.
    has(run("sim:capacity=64MiB", options.client, "kill", "40"), ["it fits: at most 40.00 MiB"], 128 + 9)
    has(run("sim", "true"), ["nothing is known of its memory"])


def test_content_and_kernels():
    has(run("sim:gpu=l4", options.client, "content"), ["read 42, fresh 0, of a large one 0", "2.00 MiB were copied to the device"])
    has(run("sim:gpu=l4", options.client, "kernel"), ["launch 0, 58 multiprocessors", "1 kernel was skipped"])


def test_properties():
    if options.properties:
        has(run("sim:gpu=h100", options.properties), ["NVIDIA H100 80GB HBM3 has", "0 wrong, behind it ee"])
        has(run("sim:gpu=t4", options.properties), ["Tesla T4 has", "0 wrong, behind it ee"])


def test_static_cudart():
    has(run("sim", options.client, "tables"), ["has a cudart that is linked in statically", "cannot run without a GPU"], 3)


def test_cudnn():
    """Switched off, its own functions fail, and the answer says so where a program called them."""
    asks = ("import ctypes, sys; c = ctypes.CDLL(sys.argv[1]); print('version', c.cudnnGetVersion()); h = ctypes.c_void_p()\n"
            "if len(sys.argv) > 2: print('create', c.cudnnCreate(ctypes.byref(h)))")
    library = options.fake + "/libcudnn.so.9"
    off = ("--cudnn-workspace", "off")
    has(run("sim", sys.executable, "-c", asks, library, "create", extra=off),
        ["version 91002", "create 1", "cuDNN is switched off, and the program called it"])
    expect("cuDNN" in run("sim", sys.executable, "-c", asks, library, extra=off).stderr, False, "what is said of a library that is only loaded")
    expect("cuDNN" in run("sim", sys.executable, "-c", asks, library).stderr, False, "what is said of a library that is only loaded")


def test_cudnn_with_a_workspace():
    """Where a size is given it is stood in for, and a convolution's plan takes that much, which the program asks its allocator for."""
    program = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "program/cudnn_program.py"), options.fake + "/libcudnn.so.9"]
    has(run("sim:capacity=64MiB", *program, extra=("--cudnn-workspace", "24MiB")),
        ["version 91002", "workspace 25165824 of 1 engine", "0 wrong", "it fits: at most 24.00 MiB",
         "each of cuDNN's plans was taken to have a workspace of 24.00 MiB, as --cudnn-workspace says", "not stood in for, and so refused: cudnnCreateRNNDescriptor"])
    has(run("sim:capacity=64MiB", *program, extra=("--cudnn-workspace", "none")), ["workspace 0 of 1 engine", "0 wrong"])
    # Of 16 bits with its channels first, of 64 to 64 of 56x56: copies of x, y and w.
    wanted = 2 * (2 * 32 * 64 * 56 * 56 + 64 * 64 * 9)
    has(run("sim:capacity=64MiB", *program),
        ["workspace %d of 1 engine" % wanted, "0 wrong", "the workspaces of cuDNN's convolutions are those of a rule that was fitted on an H200"])
    has(run("sim:capacity=16MiB", *program, extra=("--cudnn-workspace", "24MiB")), ["it does not fit as it is"], 1)
    has(run("sim", "true", extra=("--cudnn-workspace", "much")), ["--cudnn-workspace much: expected fitted, none, off, or a size as 64MiB"], 2)


def test_compiled_kernels_stay_here():
    """A run on a card must not find kernels that were chosen without one."""
    own = os.path.join(folder.name, "own")
    script = 'for each in "$TORCHINDUCTOR_CACHE_DIR" "$TRITON_CACHE_DIR"; do mkdir -p "$each/x" && touch "$each/x/kernel" && echo "$each"; done'
    places = run("sim", "sh", "-c", script, TORCHINDUCTOR_CACHE_DIR=own, TRITON_CACHE_DIR=own).stdout.split()
    expect(len(places), 2, "folders for compiled kernels")
    expect([place for place in places if place.startswith(own) or os.path.exists(place)], [], "kernels that are left")
    expect(os.path.exists(own), False, "the program's own folder was written")


def test_growth():
    """What is made and ended leaves nothing: 10^6 of each were tried by hand."""
    has(run("sim:capacity=64MiB", options.client, "growth", "20000"), ["no growth"])
    # Content is kept to a bound, and what is freed makes room.
    has(run("sim", options.client, "much", EMM_STANDIN_CONTENT=str(16 << 20)), ["first x, last 0, later x", "31.00 MiB were copied to the device in pieces above 1 MiB, or when 1 GiB was kept"])


def test_waiting():
    """A loop that waits for a kernel is ended and said; the bound is 10^6 reads, and less here."""
    found = run("sim", options.client, "poll", EMM_STANDIN_READS="1000")
    has(found, ["read the same 4 bytes of the device again and again", "it fits: at most 2.00 MiB"], 3)
    has(run("sim", options.client, "reads", EMM_STANDIN_READS="1000"), ["it fits"])


def test_libraries():
    found = run("sim", options.client, "blas")
    has(found, ["version 130000, its stream 1, wonder 0", "2 functions have no answer of their own, and got a stand-in's in 4 calls"])
    found = run("sim", options.client, "blas", extra=["--explain-stubs"])
    has(found, ["cublasSgemm_v2      3", "cublasWonder        1", "libcublas.so.12"])
    # A full path in a dlopen is led, too.
    has(run("sim", options.client, "path", options.fake + "/libcublas.so.12"), ["wonder 0"])
    for name in ("libcublas-0a1b2c3d.so.12", "libcublas.0a1b2c3d.so.12"):  # as wheels are packed
        shutil.copy(options.fake + "/libcublas.so.12", folder.name + "/" + name)
        has(run("sim", options.client, "path", folder.name + "/" + name), ["wonder 0"])
    # Nothing of the real ones is loaded.
    maps = run("sim", options.client, "maps").stdout.split()
    expect([path for path in maps if not path.startswith(folder.name) and "/standin/libcuda.so" not in path], [], "what is loaded")
    expect(any("libcublas" in path for path in maps), True, "a library that stands in for cuBLAS in %s" % maps)
    # Older CUDA: the versions of its symbols, its structures, its per-thread streams, its unknown functions.
    has(run("sim:gpu=a100-40g", options.old_client),
        ["version 12000, NVIDIA A100-SXM4-40GB, 42298834944 bytes, sm_80, 108 multiprocessors, opt-in 166912, after it ee",
         "of type 2, after it ee", "malloc 0, wonder 0, stream 0"])
    has(run("sim:gpu=a100-40g", options.old_client, extra=["--explain-stubs"]), ["cudaWonderOfOld"])
    has(run("sim:gpu=v100", options.client11), ["version 11000, Tesla V100-SXM2-16GB", "sm_70, 80 multiprocessors, opt-in 98304", "of type 2, after it ee", "malloc 0, wonder 0, stream 0"])
    for client in (options.old_client, options.client11):
        expect("no version information" in run("sim", client).stderr, False, "the loader misses no version")
    # Handles that have ended leave nothing.
    has(run("sim", options.client, "handles", "100000"), ["less than 1 MiB more: 1"])


def test_driver():
    """Each function that cuda.h declares is there, for programs that are bound as they are loaded; those that nothing answers are counted."""
    asks = ("import ctypes, sys; c = ctypes.CDLL('libcuda.so.1', mode=2); c.cuInit(0)\n"
            "print(c.cuTensorMapEncodeTiled(None), c.cuArrayCreate_v2(None, None), c.cuInit(1), hasattr(c, 'cuMemAlloc_v2'), hasattr(c, 'cuWonder'))\n"
            "print(ctypes.CDLL('/usr/lib/x86_64-linux-gnu/libcuda.so.1').cuInit(0))")
    has(run("sim", sys.executable, "-c", asks, extra=["--explain-stubs"]), ["0 801 1 True False", "cuTensorMapEncodeTiled      1", "not stood in for, and so refused: cuArrayCreate_v2"])
    # And nothing that C++ leaves visible in the library behind it.
    has(run("sim", "sh", "-c", "nm -D --defined-only $EMM_STANDIN_FOLDER/libcuda.so.1 | grep -c ' _Z'"), ["0\n"], 1)
    # NVML belongs to the driver, too.
    asks = ("import ctypes; n = ctypes.CDLL('libnvidia-ml.so.1'); count = ctypes.c_uint(); name = ctypes.create_string_buffer(64)\n"
            "device = ctypes.c_void_p(); memory = (ctypes.c_ulonglong * 3)()\n"
            "n.nvmlInit_v2(); n.nvmlDeviceGetCount_v2(ctypes.byref(count)); n.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(device))\n"
            "n.nvmlDeviceGetName(device, name, 64); n.nvmlDeviceGetMemoryInfo(device, memory); print(count.value, name.value, memory[0])")
    has(run("sim:gpu=a100-40g,devices=2", sys.executable, "-c", asks), ["2 b'NVIDIA A100-SXM4-40GB' 42298834944"])


def test_visible_devices():
    """As the driver reads CUDA_VISIBLE_DEVICES; NVML does not read it."""
    asks = ("import ctypes; c = ctypes.CDLL('libcuda.so.1'); n = ctypes.CDLL('libnvidia-ml.so.1'); all_ = ctypes.c_uint(); count = ctypes.c_int(-1)\n"
            "n.nvmlInit_v2(); n.nvmlDeviceGetCount_v2(ctypes.byref(all_)); code = c.cuInit(0); c.cuDeviceGetCount(ctypes.byref(count)); buses = []\n"
            "for i in range(count.value):\n"
            "  bus = ctypes.c_int(); c.cuDeviceGetAttribute(ctypes.byref(bus), 33, i); buses.append(bus.value - 1)\n"
            "print(code, buses, 'of', all_.value)")
    def seen(words):
        sets = [] if words is None else ["env", "CUDA_VISIBLE_DEVICES=" + words]
        return run("sim:devices=4", *sets, sys.executable, "-c", asks).stdout.strip()
    uuid = "GPU-656d6d63-746c-0000-0000-0000000000"
    for words, wanted in ((None, [0, 1, 2, 3]), ("2", [2]), ("3,1", [3, 1]), (" 1 , 0 ", [1, 0]), ("0,-1,1", [0]), ("1,9,2", [1]), ("0x", [0]),
                          ("1," + uuid + "01", [1]), (uuid + "03," + uuid + "01", [2, 0]), (uuid + "02,1", [1])):
        expect(seen(words), "0 %s of 4" % wanted, "CUDA_VISIBLE_DEVICES=%s" % words)
    for words in ("", "-1", "0,1,0", "none", "NoDevFiles", "GPU-65", uuid + "09"):
        expect(seen(words), "100 [] of 4", "CUDA_VISIBLE_DEVICES=%s" % words)
    # What emmctl inherits was meant for this machine's cards: where it names no simulated device, the program sees all.
    for words, wanted in (("2,1", "[2, 1]"), (uuid + "03", "[2]"), ("", "[0, 1, 2, 3]"), ("-1", "[0, 1, 2, 3]"), ("7,0", "[0, 1, 2, 3]"),
                          ("GPU-0f1e2d3c-0000-0000-0000-000000000000", "[0, 1, 2, 3]")):
        found = run("sim:devices=4", sys.executable, "-c", asks, CUDA_VISIBLE_DEVICES=words)
        expect(found.stdout.strip(), "0 %s of 4" % wanted, "inherited CUDA_VISIBLE_DEVICES=%s" % words)
        expect("names no simulated device; the program sees all 4" in found.stderr, wanted == "[0, 1, 2, 3]", "said of %s" % words)
    # A rank of its own device: its memory counts on that device, and each process's number is 0.
    found = run("sim:devices=2,capacity=64MiB", "sh", "-c", "CUDA_VISIBLE_DEVICES=1 %s devices 10; CUDA_VISIBLE_DEVICES=0 %s devices 20" % (options.client, options.client))
    has(found, ["1 devices", "at most 20.00 MiB (20,971,520 bytes) of the 64.00 MiB of device 0", "at most 10.00 MiB (10,485,760 bytes) of the 64.00 MiB of device 1"])
    # The child of a process that asked only NVML may use CUDA; that of one that used CUDA may not.
    forks = ("import ctypes, os, sys; n = ctypes.CDLL('libnvidia-ml.so.1'); n.nvmlInit_v2(); c = ctypes.CDLL('libcuda.so.1'); p = ctypes.c_uint64(); x = ctypes.c_void_p()\n"
             "def use(mib): return [c.cuInit(0), c.cuDevicePrimaryCtxRetain(ctypes.byref(x), 0), c.cuCtxSetCurrent(x), c.cuMemAlloc_v2(ctypes.byref(p), mib << 20)]\n"
             "if os.fork() == 0: print('first', use(8), flush=True); os._exit(0)\n"
             "os.wait(); print('itself', use(4), flush=True)\n"
             "if os.fork() == 0: print('second', use(2)[0], flush=True); os._exit(0)\n"
             "os.wait()")
    has(run("sim:capacity=64MiB", sys.executable, "-c", forks), ["first [0, 0, 0, 0]", "itself [0, 0, 0, 0]", "second 3", "it fits: at most 12.00 MiB"])


def test_profile():
    """What a card's driver answers goes to a machine without one; here a simulated card's does."""
    first, second = folder.name + "/l4.txt", folder.name + "/again.txt"
    has(run("sim:gpu=l4", options.emmctl, "doctor", "--profile", first), [])
    with open(first) as file:
        text = file.read()
    for line in ("device NVIDIA L4", "attribute 16 58", "attribute 75 8", "attribute 76 9"):
        expect(line + "\n" in text, True, "%r in %s" % (line, text))
    has(run("sim:profile=l4.txt", options.emmctl, "doctor", "--profile", second), [])
    has(run("sim", "env", "CUDA_VISIBLE_DEVICES=", options.emmctl, "doctor", "--profile", "-"), ["no CUDA driver (libcuda.so.1 has a cuInit that answered 100)"], 5)
    with open(second) as file:
        expect(file.read(), text, "the profile of a card of a profile")
    # Another card than those of the table: its answers are the file's, and its context counts.
    with open(first, "w") as file:
        file.write("# somebody's\ndevice Somebody's card\ntotal 10737418240\ncontext 1073741824\nattribute 16 7\nattribute 39 1536\nattribute 75 8\nattribute 103 1\n")
    asks = ("import ctypes; c = ctypes.CDLL('libcuda.so.1'); c.cuInit(0); name = ctypes.create_string_buffer(64); c.cuDeviceGetName(name, 64, 0); v = ctypes.c_int()\n"
            "print(name.value, [c.cuDeviceGetAttribute(ctypes.byref(v), i, 0) or v.value for i in (16, 39, 75, 76, 103, 33)])")
    has(run("sim:profile=l4.txt", sys.executable, "-c", asks), ["b\"Somebody's card\" [7, 1536, 8, 0, 0, 1]"])
    has(run("sim:profile=l4.txt", options.client, "take", "9000"),
        ["of the 9.00 GiB of the simulated Somebody's card", "1.00 GiB of 10.00 GiB are never free: the context, as measured on the card of the profile"])
    has(run("sim:profile=l4.txt,capacity=1GiB", options.client, "take", "1000"), ["it fits"])
    has(run("sim:profile=l4.txt,gpu=l4", "true"), ["options 'gpu' and 'profile': expected one of them"], 2)
    has(run("sim:profile=nowhere.txt", "true"), ["nowhere.txt: No such file or directory"], 2)
    with open(second, "a") as file:
        file.write("attribute many 3\n")
    has(run("sim:profile=again.txt", "true"), ["attribute many 3': expected a line of emmctl doctor --profile"], 4)


def test_numba():
    if subprocess.run([sys.executable, "-c", "import numba"], capture_output=True).returncode != 0:
        print("skipped: there is no Numba")
        return
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program", "numba_program.py")
    # Numba asks a second time, after it gave back what it kept.
    has(run("sim:gpu=l4", sys.executable, "-W", "ignore", program),
        ["NVIDIA L4 (8, 9) 23653777408", "refused with 2", "refused 2 requests", "when the process held 34.00 MiB of 22.03 GiB"])
    kernels = program.replace("numba_program", "numba_kernels")
    has(run("sim:gpu=l4", sys.executable, "-W", "ignore", kernels, CUDA_HOME=options.fake + "/toolkit"),
        ["sum 0.0 first [0. 0. 0.] bins 0", "kernels were skipped", "it fits: at most 1"])


# As much of PyTorch as emmctl's package asks for when it is imported.
TORCH = {
    "__init__.py": """
import types
class Tensor:
    def __torch_dispatch__(): pass
    def register_hook(self, hook): self.hook = hook
class BackwardCFunction:
    def apply(self): print("in a function's backward", len(_python_dispatch.modes))
class Engine:
    def run_backward(self, tensor):
        print("in a backward pass", len(_python_dispatch.modes))
        tensor.hook()
        BackwardCFunction().apply()
    def queue_callback(self): return "queued"
from torch.utils import _python_dispatch
autograd = types.SimpleNamespace(Variable=types.SimpleNamespace(_execution_engine=Engine()), function=types.SimpleNamespace(BackwardCFunction=BackwardCFunction))
class Generator:
    def manual_seed(self, seed): return self
    def get_state(self): return None
version = types.SimpleNamespace(cuda="13.0")
class Cudnn:
    enabled = True
    def version(self): return 91900
backends = types.SimpleNamespace(cudnn=Cudnn(), cuda=types.SimpleNamespace())
_C = types.SimpleNamespace(_get_cudnn_enabled=lambda: backends.cudnn.enabled, _set_cudnn_enabled=lambda on: setattr(backends.cudnn, "enabled", on))
_VF = types.SimpleNamespace(lstm=lambda *given: print("an LSTM, cudnn", backends.cudnn.enabled))
cuda = types.SimpleNamespace(is_initialized=lambda: True, device_count=lambda: 1, max_memory_reserved=lambda device: 4 << 20, max_memory_allocated=lambda device: 3 << 20)
def compile(function): return function
""",
    "utils/__init__.py": "",
    "utils/_python_dispatch.py": """
modes = []
class TorchDispatchMode:
    def __enter__(self): modes.append(self); return self
    def __exit__(self, *_): modes.pop()
def _get_current_dispatch_mode(): return modes[-1] if modes else None
_pop_mode, _push_mode = modes.pop, modes.append
""",
    "utils/checkpoint.py": """
class _CheckpointFrame:
    def __init__(self, recompute_fn, early_stop): self.recompute_fn = recompute_fn
""",
    "multiprocessing/__init__.py": "",
    "multiprocessing/reductions.py": "class StorageWeakRef: pass",
}
ASKS_TORCH = """
import ctypes, os, sys, threading, torch
from torch.utils import _python_dispatch
mode = _python_dispatch.modes[0]
print("cudnn", torch.backends.cudnn.enabled, "modes", len(_python_dispatch.modes), "plain", torch.version.cuda)
thread = threading.Thread(target=lambda: print("of a thread", len(_python_dispatch.modes))); thread.start(); thread.join()
class OnDevice: is_cuda = True
torch._VF.lstm(OnDevice())
print("and then", torch.backends.cudnn.enabled)
leaf, engine = torch.Tensor(), torch.autograd.Variable._execution_engine
import torch.utils.checkpoint
again = torch.utils.checkpoint._CheckpointFrame(lambda: print("computed again", len(_python_dispatch.modes)), True).recompute_fn
leaf.register_hook(lambda: (print("in a hook", len(_python_dispatch.modes)), again()))
engine.run_backward(leaf)
print("after it", len(_python_dispatch.modes), engine.queue_callback())
cuda = ctypes.CDLL("libcuda.so.1")
context, memory, read = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_int()
cuda.cuInit(0); cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); cuda.cuCtxSetCurrent(context)
cuda.cuMemAlloc_v2(ctypes.byref(memory), 4096)
def ask():
    cuda.cuMemcpyDtoH_v2(ctypes.byref(read), memory, 4)
    return read.value
from emmctl import _under_sim
answer = _under_sim._answerer()
answer([7, 8])
print("read", ask(), ask(), ask())
answer([7]); answer([])
print("read", ask())
child = os.fork()
if child == 0:
    print("in a child", len(_python_dispatch.modes), flush=True)
    sys.exit(0)
os.waitpid(child, 0)
if "convolve" in sys.argv: _under_sim._notes.fact("cudnn")
if "benchmark" in sys.argv: _under_sim._notes.fact("benchmark")
_under_sim._notes.place("size.assumed", "moe.py:31", "nonzero", 256, 0, 1024)
if "compile" in sys.argv: torch.compile(len)
if "endless" in sys.argv:
    _under_sim._notes.fact("endless", "moe.py:40")
    _under_sim._leave()
"""


# A rank whose other one does not come, and that says where it waits.
ASKS_RANKS = """
import ctypes, sys, torch
from emmctl import _under_sim
class Id(ctypes.Structure): _fields_ = [("bytes", ctypes.c_char * 128)]
_under_sim._Ranks(torch, ("/nowhere",)).begin(0)
nccl, comm, one = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p(), Id()
nccl.ncclGetUniqueId(ctypes.byref(one))
nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int]
nccl.ncclCommInitRank(ctypes.byref(comm), 2, one, 0)
"""


def test_torch():
    for path, text in TORCH.items():
        where = os.path.join(folder.name, "torch", path)
        os.makedirs(os.path.dirname(where), exist_ok=True)
        with open(where, "w") as file:
            file.write(text)
    package = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/python/emmctl")
    more = {"PYTHONPATH": folder.name, "EMM_PYTHON_PACKAGE": package, "PYTHONDONTWRITEBYTECODE": "1"}
    found = run("sim:gpu=l4", sys.executable, "-c", ASKS_TORCH, "convolve", **more)
    has(found, ["in a backward pass 0\nin a hook 1\ncomputed again 1\nin a function's backward 1\nafter it 1 queued",
                "cudnn True modes 1", "of a thread 2", "read 7 8 0\nread 0", "in a child 0",
                "an LSTM, cudnn False\nand then True", "PyTorch's own LSTM took the place of cuDNN's, which is not stood in for",
                "PyTorch on device 0: at most 4.00 MiB (4,194,304 bytes) reserved, of which 3.00 MiB (3,145,728 bytes) allocated at most",
                "1 line takes a size from values that are not known here, and got one of --unknown-sizes uniform:",
                "moe.py:31  nonzero        1  256  0 to 1024", "the same with --unknown-sizes all"])
    expect(found.stderr.count("PyTorch on device 0"), 1, "a forked child reports nothing")
    off = run("sim:gpu=l4", sys.executable, "-c", ASKS_TORCH, "convolve", extra=["--cudnn-workspace", "off"], **more)
    has(off, ["cudnn False modes 1", "cuDNN was switched off: convolutions are PyTorch's own"])
    expect("took the place of cuDNN's" in off.stderr, False, "said of what the user switched off")
    expect("torch.compile was called" in found.stderr, False, "nothing was compiled")
    has(run("sim:gpu=l4", sys.executable, "-c", ASKS_TORCH, "benchmark", extra=["--json", "timed.json"], **more),
        ["at most 2.00 MiB (2,097,152 bytes) of the 22.03 GiB of the simulated NVIDIA L4 were counted", "torch.backends.cudnn.benchmark was on"])
    with open(folder.name + "/timed.json") as file:
        answer = json.load(file)
    expect((answer["fits"], "benchmark" in answer["cut"]), (None, True), "whether it fits, of plans that are timed")
    has(run("sim:gpu=l4", sys.executable, "-c", ASKS_TORCH, "benchmark", extra=["--cudnn-workspace", "8MiB"], **more), ["it fits: at most"])
    has(run("sim:gpu=l4", sys.executable, "-c", ASKS_TORCH, "endless", **more),
        ["the loop at moe.py:40 waits for a value that is not known here, and was ended"], 3)
    has(run("sim:gpu=l4", sys.executable, "-c", ASKS_TORCH, "compile", extra=["--unknown-sizes", "0.25"], **more),
        ["torch.compile was called"])
    has(run("sim", sys.executable, "-c", ASKS_RANKS, options.fake + "/libnccl.so.2", EMM_STANDIN_STUCK="0.3", **more),
        ["CommInitRank of ranks 0 and 1  rank 1  <string>:9"], 3)
    # Recorded as well, it is followed as well.
    has(emmctl("record", "--device", "sim:gpu=l4", "-o", folder.name + "/torch.emmb", "--", sys.executable, "-c", ASKS_TORCH, **more),
        ["cudnn True modes 1", "moe.py:31"])


def test_faults():
    has(run("sim:capacity=64MiB", options.client, "take", "10", extra=["--fault", "mem_alloc:1"]), ["CUDA_ERROR_OUT_OF_MEMORY"], 1)


def test_record():
    trace = folder.name + "/run.jsonl"
    has(emmctl("record", "--device", "sim:capacity=64MiB", "-o", trace, "--", options.client, "retry", "40"),
        ["at most 40.00 MiB live", "1 refused", "it does not fit as it is", "next: emmctl explain"])
    has(emmctl("explain", trace), ["a request of 40.0 MiB"])
    has(emmctl("replay", trace, "--manager", "recorded", "--device", "sim"), [])


def test_what_goes_on():
    # A daemon that begins with the device after emmctl's end has it until its own.
    go, ended = folder.name + "/go", folder.name + "/ended"
    daemon = "(while ! test -e %s; do sleep 0.05; done; %s take 40; echo $? > %s.part; mv %s.part %s) </dev/null >/dev/null 2>&1 & exit 6" % (
        go, options.client, ended, ended, ended)
    for words in (("run",), ("run", "--fault", "mem_alloc:9999"), ("record", "-o", folder.name + "/daemon.jsonl"),
                  ("record", "--level", "request", "-o", folder.name + "/daemon.jsonl")):
        done = subprocess.run([options.emmctl, *words, "--device", "sim", "--", "sh", "-c", daemon], cwd=folder.name, env=environment, text=True,
                              capture_output=True)
        has(done, [" on; " + folder.name + "/emmctl-sim-"], 6)
        with open(go, "w"):
            pass
        until = time.monotonic() + 60
        left = True
        while (left or not os.path.exists(ended)) and time.monotonic() < until:
            time.sleep(0.05)
            left = glob.glob(folder.name + "/emmctl-sim-*")
        expect(left, [], "a folder is left by a daemon")
        with open(ended) as file:
            expect(file.read(), "0\n", "how the daemon ended under %s" % " ".join(words))
        os.unlink(go)
        os.unlink(ended)


def test_killed():
    # After kill -9 the folder stays while the program uses it. The next emmctl removes it.
    number = folder.name + "/number"
    killed = subprocess.Popen([options.emmctl, "run", "--device", "sim", "--", "sh", "-c", "echo $$ > number.part; mv number.part number; exec sleep 1000"],
                              cwd=folder.name, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def left():
        subprocess.run([options.emmctl, "--version"], env=environment, stdout=subprocess.DEVNULL, check=True)
        return len(glob.glob(folder.name + "/emmctl-sim-*"))

    while not os.path.exists(number) and killed.poll() is None:
        time.sleep(0.01)
    killed.kill()
    killed.wait()
    expect(left(), 1, "folders of a program that goes on")
    with open(number) as file:
        os.kill(int(file.read()), signal.SIGKILL)
    until = time.monotonic() + 60
    while left() and time.monotonic() < until:
        time.sleep(0.05)
    expect(left(), 0, "folders that kill -9 left")


def test_words():
    has(emmctl("run", "--device", "cuda", "--", "true"), ["--device cuda: expected sim, or sim:gpu=NAME"], 2)
    has(emmctl("record", "-o", "x.emmb", "--capacity", "1GiB", "--", "true"), ["--capacity 1GiB: expected --device sim besides"], 2)
    has(run("sim:gpu=rtx9999", "true"), ["option 'gpu' is rtx9999: expected one of h200, h100"], 2)
    has(emmctl("run", "--explain-stubs", "--capacity", "1GiB", "--", "true"), ["--explain-stubs: expected --device sim"], 2)
    has(emmctl("run", "--device", "sim:capacity=1GiB", "--capacity", "1GiB", "--", "true"), ["expected one of them"], 2)
    has(run("sim", "/nowhere/at/all"), ["expected a program that can be run"], 2)
    has(emmctl("run", "--unknown-sizes", "all", "--capacity", "1GiB", "--", "true"), ["--unknown-sizes all: expected --device sim"], 2)
    has(run("sim", "true", extra=["--unknown-sizes", "many"]), ["--unknown-sizes many: expected uniform, all, none, or a share from 0 to 1"], 2)
    has(run("sim", "true", extra=["--unknown-sizes", "1.5"]), ["expected uniform"], 2)
    has(emmctl("list", "gpus"), ["rtx4090", "10.0"])


for name, test in sorted(globals().items()):
    if name.startswith("test_"):
        test()
sys.exit(1 if failures else 0)
