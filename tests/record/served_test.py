#!/usr/bin/python3
"""Programs whose memory a manager of emmctl's serves: `emmctl run --manager`, on the simulated device.

    served_test.py CASE --emmctl PROGRAM --client PROGRAM --program PROGRAM --standin FOLDER

Exit 0: as it must be; 1: not; 77: the case cannot run here.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent

# What the programs of these tests begin with.
START = """
import ctypes, os, sys
driver = ctypes.CDLL("libcuda.so.1")
Word, Size = ctypes.c_uint64, ctypes.c_size_t
def call(name, *words):
    return getattr(driver, name)(*[Word(word) if isinstance(word, int) and word >= 1 << 31 else word for word in words])
def given(name, *words, kind=Word):
    out = kind()
    code = call(name, ctypes.byref(out), *words)
    return out.value if code == 0 else -code
def begin(device=0):
    global context
    assert call("cuInit", 0) == 0
    context = given("cuDevicePrimaryCtxRetain", device)
    assert call("cuCtxSetCurrent", Word(context)) == 0
def take(size): return given("cuMemAlloc_v2", Size(size))
def give(ptr): return call("cuMemFree_v2", Word(ptr))
def take_on(stream, size): return given("cuMemAllocAsync", Size(size), Word(stream))
def give_on(stream, ptr): return call("cuMemFreeAsync", Word(ptr), Word(stream))
def stream(flags=1): return given("cuStreamCreate", flags)
def is_done(on): return call("cuStreamQuery", Word(on)) == 0
def work(on, ptr, size): assert call("cuMemsetD8Async", Word(ptr), 1, Size(size), Word(on)) == 0
def info():
    free, total = Size(), Size()
    assert call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value, total.value
def span(ptr):
    base, size = Word(), Size()
    code = call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), Word(ptr))
    return (base.value, size.value) if code == 0 else code
def attribute(which, ptr): return given("cuPointerGetAttribute", which, Word(ptr))
MiB = 1 << 20
"""


class Bench:
    def __init__(self, options):
        self.options = options
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="emmctl-served-"))
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("EMM_", "LD_"))}

    def emmctl(self, *words, code=0, **more):
        done = subprocess.run([str(self.options.emmctl), *map(str, words)], cwd=self.folder, text=True, capture_output=True,
                              env=dict(self.environment, **more), timeout=600)
        if code is not None and done.returncode != code:
            fail("emmctl %s\nended with %d, expected %d:\n%s%s" % (" ".join(map(str, words)), done.returncode, code,
                                                                   done.stdout, done.stderr))
        return done

    def run(self, program, *options, manager="pool", device="sim:capacity=64MiB", code=0, **more):
        """The program is text of Python, or the words of a command."""
        command = [sys.executable, "-c", START + program] if isinstance(program, str) else program
        return self.emmctl("run", "--device", device, "--manager", manager, *options, "--", *command, code=code, **more)

    def late(self, program, *options, manager="pool", capacity="64MiB"):
        """Runs the program on a device whose work is done as late as is allowed."""
        return self.emmctl("run", "--manager", manager, *options, "--", sys.executable, "-c", START + program,
                           LD_LIBRARY_PATH=str(self.options.standin), EMM_STANDIN_DEVICE="sim:order=late,capacity=" + capacity)

    def said(self, program, *options, **more):
        """What the program printed, and the line of what was served."""
        done = self.run(program, *options, **more)
        lines = [line for line in done.stderr.splitlines() if " served " in line]
        if len(lines) != 1:
            fail("expected one line of what was served:\n" + done.stderr)
        return done.stdout.split("\n")[:-1], lines[0]


def fail(words):
    print(words)
    sys.exit(1)


def expect(found, wanted, what):
    if found != wanted:
        fail("%s: %r, expected %r" % (what, found, wanted))


def has(words, *parts):
    for part in parts:
        if part not in words:
            fail("%r is not in:\n%s" % (part, words))


def requests(bench):
    """Requests are served from memory that is kept: the driver is asked once for a thousand of them."""
    printed, line = bench.said("""
begin()
for i in range(500):
    first, second = take(1000 + i), take_on(0, 3000)
    assert first > 0 and second > 0 and first % 512 == 0 and give(first) == 0 and give_on(0, second) == 0
print("done")
""")
    expect(printed, ["done"], "what it printed")
    calls = int(re.search(r"served 1,000 requests with (\d+) driver calls? for memory", line).group(1))
    expect(calls <= 4, True, "driver calls: " + line)
    has(line, "--manager pool", "live", "reserved", "500 frees waited for the device")
    # The same through cudart, and counted in JSON.
    done = bench.run([bench.options.program, "take", "40"], "--json", "served.json")
    served = json.loads((bench.folder / "served.json").read_text())["served"]
    expect((served["manager"], served["requests"], served["peak_live_bytes"], served["left"]), ("pool", 1, 40 << 20, 0), "JSON")
    has(done.stderr, "it fits: at most 40.00 MiB", "served 1 request with")
    # Without --device the driver is the one that the loader finds.
    done = bench.emmctl("run", "--manager", "pool", "--", sys.executable, "-c", START + "begin(); print(give(take(MiB)))",
                        LD_LIBRARY_PATH=str(bench.options.standin), EMM_STANDIN_DEVICE="sim")
    expect(done.stdout, "0\n", "without --device")
    has(done.stderr, "served 1 request")


def answers(bench):
    """What a program asks about its memory is answered as for memory of the driver's."""
    program = """
begin()
before = info()
small, large = take(100), take(5 * MiB)
print(span(small + 99) == (small, 100), span(large + MiB) == (large, 5 * MiB))
print(attribute(11, large + 7) == large, attribute(12, large + 7) == 5 * MiB, attribute(1, large) == context, attribute(2, large))
kinds, start, size = (ctypes.c_int * 2)(11, 12), Word(), Size()
places = (ctypes.c_void_p * 2)(ctypes.addressof(start), ctypes.addressof(size))
print(call("cuPointerGetAttributes", 2, kinds, places, Word(large + 3)), start.value == large, size.value)
print(before[0] - info()[0], before[1] == info()[1])
print(give(small), give(large), before[0] - info()[0])
print(given("cuMemRetainAllocationHandle", Word(large)) < 0)
"""
    for manager in ("pool", "pool:backing=cumem"):
        printed, _ = bench.said(program, manager=manager)
        expect(printed[:-1], ["True True", "True True True 2", "0 True %d" % (5 << 20), "%d True" % ((5 << 20) + 100), "0 0 0"],
               "answers of " + manager)
    # A handle leads to the beginning of what the driver gave, so only that can be shared; and the rest says so.
    ask = """
begin()
first = take(40 * MiB)
second = take(MiB)
handle = (ctypes.c_char * 64)()
print(call("cuIpcGetMemHandle", handle, Word(first)), call("cuIpcGetMemHandle", handle, Word(first + 4096)))
print(call("cuIpcGetMemHandle", handle, Word(take(MiB))))
"""
    done = bench.run(ask, manager="default")
    expect(done.stdout, "0 0\n0\n", "handles of memory that is the driver's")
    done = bench.run(ask, manager="pool")
    expect(done.stdout, "1 1\n1\n", "handles of virtual memory")
    has(done.stderr, "cuIpcGetMemHandle was refused", "3 IPC handles refused")


def wrong_frees(bench):
    """A free of what is not live gets the driver's answer, and harms nothing. No size is an error, as of the driver."""
    program = """
begin()
kept, gone = take(4096), take(4096)
print(give(gone), give(gone), give(kept + 256), give(12345 << 9), give(0), give_on(0, gone), take(0))
managed = given("cuMemAllocManaged", Size(MiB), 1)
print(give(managed), give(managed))
pool = given("cuDeviceGetDefaultMemPool", 0)
other = given("cuMemAllocFromPoolAsync", Size(MiB), Word(pool), Word(0))
print(give_on(0, other), give(kept), take(100 * MiB))
"""
    bare = bench.emmctl("run", "--device", "sim:capacity=64MiB", "--", sys.executable, "-c", START + program).stdout
    for manager in ("pool", "pool:backing=cumem", "default", "async", "pytorch", "cupy", "rmm-pool:initial_pool_size=32MiB"):
        expect(bench.run(program, manager=manager).stdout, bare, "answers with " + manager)


def waits(bench):
    """cuMemFree waits for all work, as the driver's does; without the wait memory is reused in the order of the default stream.
    cuMemFreeAsync waits for nothing, and what it frees serves others only in order."""
    program = """
begin()
on = stream()
memory = take(8 * MiB)
work(on, memory, 8 * MiB)
print(is_done(on), end=" ")
give(memory)
print(is_done(on))
"""
    done = bench.late(program)
    expect(done.stdout, "False True\n", "the wait")
    has(done.stderr, "1 free waited for the device")
    done = bench.late(program, "--implied-wait", "off")
    expect((done.stdout, "waited" in done.stderr), ("False False\n", False), "no wait")
    # All memory of the pool was freed on a stream that has work. Who asks for memory of any stream gets it after that work; who
    # asks on another stream gets it in order, and nobody waits.
    moves = """
begin()
first, second = stream(), stream()
memory = take_on(first, 32 * MiB)
work(first, memory, 32 * MiB)
print(give_on(first, memory), is_done(first), end=" ")
again = %s
print(again > 0, is_done(first))
"""
    expect(bench.late(moves % "take(32 * MiB)", capacity="40MiB").stdout, "0 False True True\n", "to any stream")
    expect(bench.late(moves % "take_on(first, 32 * MiB)", capacity="40MiB").stdout, "0 False True False\n", "to the same stream")
    # The end of a stream whose memory is kept.
    done = bench.late("""
begin()
for i in range(50):
    on = stream()
    memory = take_on(on, 4 * MiB)
    work(on, memory, 4 * MiB)
    assert give_on(on, memory) == 0 and call("cuStreamDestroy_v2", Word(on)) == 0
print("done")
""")
    expect(done.stdout, "done\n", "streams that end")


def streams(bench):
    """The legacy and the per-thread default stream are told apart, as are a thread's and another's."""
    printed, line = bench.said("""
import threading
begin()
memory = take_on(0, MiB)
give_on(1, memory)                       # its other name
print(take_on(1, MiB) == memory)
own = take_on(2, MiB)
give_on(2, own)
print(take_on(2, MiB) == own, own != memory)
give_on(2, own)
def other():
    call("cuCtxSetCurrent", Word(context))
    print(take_on(2, MiB) != own)
thread = threading.Thread(target=other)
thread.start()
thread.join()
""")
    expect(printed, ["True", "True True", "True"], "streams")
    has(line, "served 5 requests")


def captures(bench):
    """Requests on a stream that is captured are the graph's, which the driver serves."""
    printed, line = bench.said("""
begin()
on = stream()
kept = take_on(on, MiB)
print(call("cuStreamBeginCapture_v2", Word(on), 2))
inside = take_on(on, MiB)
print(inside > 0, inside != kept, give_on(on, inside))
print(give(take(MiB)) in (0, 900))
graph = Word()
print(call("cuStreamEndCapture", Word(on), ctypes.byref(graph)), give_on(on, kept), take_on(on, MiB) > 0)
""")
    expect(printed[0], "0", "capture")
    expect(printed[1], "True True 0", "inside of the capture")
    expect(printed[3], "0 0 True", "after it")
    has(line, "1 request left to the driver")


def contexts(bench):
    """Memory ends with its context, and the next context of the device begins anew; each device has its manager."""
    program = """
begin()
for turn in range(3):
    memory = [take(3 * MiB) for i in range(8)] + [take_on(0, 2 * MiB)]
    assert all(one > 0 for one in memory), memory
    if turn == 1:
        assert call("cuDevicePrimaryCtxReset_v2", 0) == 0
    else:
        for times in range(2 if turn == 2 else 1):  # a reset undoes no retain
            assert call("cuDevicePrimaryCtxRelease_v2", 0) == 0
    begin()
print(info()[0] // MiB, take(30 * MiB) > 0, give(memory[0]) in (0, 1, 709))
"""
    for manager in ("pool", "pool:backing=cumem", "default", "pytorch"):
        printed, _ = bench.said(program, manager=manager)
        expect(printed, ["64 True True"], "after resets with " + manager)
    printed, line = bench.said("""
begin(1)
second = context
other = take(5 * MiB)
begin(0)
first = take(3 * MiB)
print(info()[0] // MiB, attribute(9, first), attribute(9, first + 5))
print(give(other), give(first))
call("cuCtxSetCurrent", Word(second))
print(info()[0] // MiB)
""", device="sim:devices=2,capacity=64MiB")
    expect(printed, ["61 0 0", "0 0", "64"], "two devices")
    has(line, "served 2 requests")
    # Memory that is mapped is its own device's alone.
    program = """
begin(1)
second = context
begin(0)
print(take(MiB) > 0, call("cuCtxEnablePeerAccess", Word(second), 0))
"""
    for manager, says in (("pool", True), ("pool:backing=cumem", False)):
        done = bench.run(program, manager=manager, device="sim:devices=2,capacity=64MiB")
        expect((done.stdout, "cannot reach the manager's memory" in done.stderr), ("True 0\n", says), "peers with " + manager)


def threads(bench):
    """Threads allocate and free each other's memory; forked children get an answer."""
    for manager in ("pool", "pool:backing=cumem", "async", "default", "cupy"):
        done = bench.run([bench.options.client, "4", "400"], manager=manager, device="sim")
        expect(done.stdout, "sound\n", "threads with " + manager)
    # Work that is pending when memory is freed is done as late as is allowed, and harms nobody who gets the memory next.
    for manager in ("pool", "pool:backing=cumem", "async", "default", "pytorch", "cupy", "rmm-pool:initial_pool_size=64MiB"):
        for options, how in (((), "streams"), (("--implied-wait", "off"), "default")):
            done = bench.emmctl("run", "--manager", manager, *options, "--", bench.options.client, "3", "300", how,
                                LD_LIBRARY_PATH=str(bench.options.standin), EMM_STANDIN_DEVICE="sim:order=late,capacity=1GiB")
            expect(done.stdout, "sound\n", "late work with %s, %s" % (manager, how))
    expect(bench.run([bench.options.client, "3", "600", "fork"], device="sim").stdout, "sound\n", "forks")
    # A process that has not used CUDA forks children that do, each with a manager of its own.
    printed, line = bench.said("""
for child in range(3):
    if os.fork() == 0:
        begin()
        os._exit(0 if give(take(MiB)) == 0 else 1)
print([os.wait()[1] for child in range(3)])
""")
    expect(printed, ["[0, 0, 0]"], "children")
    has(line, "served 3 requests")


def managers(bench):
    """Every bundled manager with device memory serves; what cannot is said."""
    listed = json.loads(bench.emmctl("list", "managers", "--json", "-").stdout)
    names = [one["manager"] for one in listed["rows"]]
    program = """
begin()
held = [take(1 + 700 * i) for i in range(60)] + [take_on(0, 1 + 900 * i) for i in range(60)]
assert all(one > 0 for one in held), held
assert all(call("cuMemcpyHtoD_v2", Word(one), b"x", Size(1)) == 0 for one in held)
print(sum(give(one) for one in held))
"""
    served = 0
    for name in names:
        done = bench.run(program, manager=name, device="sim", code=None)
        if done.returncode == 2:
            has(done.stderr, "expected a bundled manager with device memory")
            continue
        expect((done.stdout, done.returncode), ("0\n", 0), "a program with " + name + ": " + done.stderr)
        has(done.stderr, "--manager %s served 120 requests" % name)
        served += 1
    expect(served >= 10, True, "managers that serve: %d" % served)
    for options, words in ((("--manager", "pol"), "did you mean pool?"), (("--manager", "pool:maks=1"), "unknown option 'maks'"),
                           (("--manager", "host-only"), "expected a bundled manager with device memory"),
                           (("--manager", "pool", "--implied-wait", "no"), "expected on or off"),
                           (("--capacity", "1GiB", "--implied-wait", "off"), "expected --manager")):
        has(bench.emmctl("run", *options, "--", "true", code=2).stderr, words)
    # A manager that cannot be made leaves the program to the driver, and the exit code says so.
    done = bench.run("begin(); print(give(take(MiB)))", "--fault", "stream_create:1", code=3)
    expect(done.stdout, "0\n", "without its manager")
    has(done.stderr, "the manager cannot be made: ", "the driver's memory serves instead", "1 request left to the driver", "1 manager not made")
    for name in ("bin/" + bench.options.emmctl.name, "lib/libemm-record.so"):
        (bench.folder / name).parent.mkdir()
        shutil.copy(bench.options.emmctl.parent.parent / name, bench.folder / name)
    (bench.folder / "lib/libemm.so").write_text("no library")
    done = subprocess.run([bench.folder / "bin" / bench.options.emmctl.name, "run", "--manager", "pool", "--", sys.executable, "-c",
                           START + "begin(); print(give(take(MiB)))"], text=True, capture_output=True,
                          env=dict(bench.environment, LD_LIBRARY_PATH=str(bench.options.standin), EMM_STANDIN_DEVICE="sim"), check=False)
    expect((done.stdout, done.returncode), ("0\n", 3), "without libemm.so: " + done.stderr)
    has(done.stderr, "the managers of emmctl cannot be loaded: ")
    done = bench.emmctl("run", "--manager", "pool", "--", "true", code=None, LD_LIBRARY_PATH=str(bench.options.standin))
    has(done.stderr, "nothing was served")


def limits(bench):
    """The manager's own calls count against --capacity, may fail as --fault says, and are what record sees."""
    program = """
begin()
held = []
while len(held) < 100:
    one = take(MiB)
    if one < 0: break
    held.append(one)
print(len(held), one, info()[0] // MiB)
for one in held: give(one)
print(info()[0] // MiB, take(60 * MiB) > 0 and info()[0] // MiB)
"""
    # Memory that the manager keeps makes room for larger requests.
    for options, device in ((("--capacity", "64MiB"), "sim:gpu=h200"), ((), "sim:capacity=64MiB")):
        done = bench.run(program, *options, device=device)
        expect(done.stdout, "64 -2 0\n64 4\n", "at 64 MiB")
        has(done.stderr, "1 request found no memory")
    faults = [word for number in range(1, 21) for word in ("--fault", "mem_create:%d" % number)]  # it asks again
    expect(bench.run("begin(); print(take(MiB))", *faults).stdout, "-2\n", "faults")
    done = bench.emmctl("record", "-o", "calls.jsonl", "--", bench.options.emmctl, "run", "--manager", "pool", "--", sys.executable, "-c",
                        START + "begin()\nfor i in range(50): give(take(3 * MiB))", LD_LIBRARY_PATH=str(bench.options.standin),
                        EMM_STANDIN_DEVICE="sim")
    asked = [json.loads(line)["op"] for line in (bench.folder / "calls.jsonl").read_text().splitlines()[1:]]
    expect((asked.count("address_reserve") > 0, asked.count("mem_map") > 0, asked.count("device_sync") >= 50), (True, True, True),
           "the manager's calls in the recording: %s" % sorted(set(asked)))
    has(bench.emmctl("check", "calls.jsonl").stdout, "0 errors")


def numba(bench):
    """Numba's own manager asks the driver, which is served."""
    try:
        import numba.cuda  # noqa: F401
    except ImportError as error:
        print("skipped: no Numba for %s: %s" % (sys.executable, error))
        return 77
    done = bench.run([sys.executable, "-c", """
import numpy
from numba import cuda
for i in range(40):
    there = cuda.to_device(numpy.arange(1000 + i))
    assert (there.copy_to_host() == numpy.arange(1000 + i)).all()
print(cuda.current_context().get_memory_info().total)
"""], device="sim:capacity=64MiB")
    expect(done.stdout, "%d\n" % (64 << 20), "Numba")
    has(done.stderr, "served 40 requests")


CASES = {case.__name__: case for case in (requests, answers, wrong_frees, waits, streams, captures, contexts, threads, managers, limits,
                                          numba)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("case", choices=CASES)
    for name in ("emmctl", "client", "program", "standin"):
        parser.add_argument("--" + name, type=pathlib.Path, required=True)
    bench = Bench(parser.parse_args())
    result = CASES[bench.options.case](bench) or 0
    shutil.rmtree(bench.folder)  # a failure leaves it
    return result


if __name__ == "__main__":
    sys.exit(main())
