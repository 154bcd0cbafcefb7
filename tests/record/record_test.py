#!/usr/bin/python3
"""Records programs on the simulated device, and looks at what is in the recordings.

    record_test.py CASE --emmctl PROGRAM --client PROGRAM --standin FOLDER --noop FOLDER --cupti FOLDER

Exit 0: as it must be; 1: not; 77: the case cannot run here.
"""
import argparse
import collections
import inspect
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent


class Bench:
    def __init__(self, options):
        self.options = options
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="emmctl-record-"))
        self.environment = dict(os.environ, LD_LIBRARY_PATH=str(options.standin), EMM_STANDIN_DEVICE="sim")
        self.environment.pop("LD_PRELOAD", None)

    def emmctl(self, *words, code=0, **more):
        done = subprocess.run([str(self.options.emmctl), *map(str, words)], cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(self.environment, **more), timeout=600)
        if done.returncode != code:
            fail("emmctl %s\nended with %d, expected %d:\n%s%s" % (" ".join(map(str, words)), done.returncode, code,
                                                                   done.stdout, done.stderr))
        return done

    def record(self, *program, code=0, options=(), out="run.jsonl", **more):
        return self.emmctl("record", "-o", out, *options, "--", self.options.client, *program, code=code, **more)

    def trace(self, name="run.jsonl"):
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def operations(self, name="run.jsonl"):
        """One after the other, since a recording may be large."""
        with open(self.folder / name) as lines:
            next(lines)
            yield from map(json.loads, lines)

    def sound(self, name="run.jsonl"):
        said = self.emmctl("check", name).stdout
        if "0 errors" not in said:
            fail(said)


def fail(words):
    print(words)
    sys.exit(1)


def expect(found, wanted, what):
    if found != wanted:
        fail("%s: %r, expected %r" % (what, found, wanted))


def every_kind(bench):
    """Every call that the trace format knows is in the trace, with its failures; and the trace is sound."""
    done = bench.record("every_kind", code=7)
    expect(done.stdout, "refused 2\nfree_twice 1\n", "standard output")
    bench.sound()
    header, *operations = bench.trace()
    expect(header["level"], "driver", "level")
    expect(header["devices"][0]["capacity"] > 0, True, "capacity")
    counts = collections.Counter(operation["op"] for operation in operations)
    wanted = {"memalloc": 6, "memallocmanaged": 1, "memhostalloc": 1, "mempin": 1, "free": 7, "stream_create": 2,
              "stream_destroy": 2, "event_record": 2, "stream_wait": 1, "event_sync": 1, "stream_sync": 2,
              "device_sync": 1, "pool_create": 1, "pool_trim": 1, "pool_destroy": 1, "get_ipc_handle": 1,
              "get_memory_info": 1, "reset": 1, "host_function": 1, "address_reserve": 1, "mem_map": 1, "mem_unmap": 1,
              "address_free": 1, "end": 1}
    for op, count in wanted.items():
        expect(counts[op], count, op)
    expect(header["requires"], ["streams", "events", "ipc", "pools", "host-functions", "virtual-memory"], "requires")
    refused = [o for o in operations if o.get("result", {}).get("outcome") == "oom"]
    expect([o["result"]["code"] for o in refused], [2], "refused")
    physical = [o for o in operations if o.get("kind") == "physical"]
    expect([o["size"] for o in physical], [2 << 20], "physical memory")
    expect([o["id"] for o in operations if o.get("api") == "cuMemUnmap"], [physical[0]["id"]], "its end")
    for manager in ("pool", "default", "async"):
        bench.emmctl("replay", "run.jsonl", "--manager", manager, "--device", "sim")
    bench.emmctl("inspect", "run.jsonl")
    bench.record("every_kind", code=7, out="run.emmb")
    bench.emmctl("convert", "run.emmb", "back.jsonl")
    expect([o["op"] for o in bench.operations("back.jsonl")], [o["op"] for o in operations], "the compact form")
    # Made again as they were: the same refusal, and nothing that the program did not do.
    again = json.loads(bench.emmctl("replay", "run.jsonl", "--manager", "recorded", "--device", "sim", "--json", "-",
                                    EMM_STANDIN_LOG="").stdout)
    expect(again["failures"], 0, "failures of --manager recorded")
    expect([again["outcomes"][which] for which in ("fails_fails", "worked_fails", "fails_works")], [1, 0, 0], "outcomes")
    expect(again["hazards"], 0, "hazards")
    twice = bench.emmctl("replay", "run.jsonl", "--manager", "recorded", "--device", "sim", "--repeat", 3, "--json", "-")
    expect([json.loads(twice.stdout)[what] for what in ("failures", "hazards")], [0, 0], "three passes")
    compared = bench.emmctl("compare", "run.jsonl", "--manager", "recorded", "--manager", "pool", "--device", "sim").stdout
    expect("recorded" in compared and "served" in compared, True, compared)
    fit = bench.emmctl("fit", "run.jsonl", "--manager", "recorded", "--as-recorded").stdout
    expect(fit.startswith("recorded serves"), True, fit)
    # What overlapped other registered memory is refused again.
    done = bench.record("registrations", out="pins.jsonl")
    expect(done.stdout, "712 712 712\n", "standard output")
    bench.sound("pins.jsonl")
    outcomes = repeated(bench, "pins.jsonl")["outcomes"]
    expect([outcomes[which] for which in ("fails_fails", "worked_fails", "fails_works")], [3, 0, 0], "outcomes of registrations")


RARE = """
memalloc memalloc memalloc memalloc free free free
x-get_ipc_event_handle x-open_ipc_event_handle x-wait_ipc_event
x-pool_set_attribute x-default_pool_trim pool_create x-pool_set_access x-device_set_pool memalloc x-pool_export x-pool_import
x-pool_export_pointer x-pool_import_pointer x-free_imported free x-device_set_pool pool_destroy
address_reserve memalloc x-mem_export x-mem_import x-mem_map x-mem_set_access x-mem_export_range x-mem_unmap x-mem_release
x-multicast_create x-multicast_add_device x-multicast_bind_mem x-multicast_bind_addr x-mem_map x-mem_unmap x-multicast_unbind
x-mem_release x-mem_map_array free free address_free
x-external_import x-external_map_buffer x-external_map_array x-free_imported x-free_imported x-external_destroy
x-green_ctx_create stream_create x-stream_wait_value x-stream_wait_value graph_begin graph_end x-graph_node x-graph_node
x-graph_mem_trim stream_destroy x-green_ctx_destroy
x-module_load x-module_unload x-module_load x-module_unload x-ctx_create context_destroy device_sync end
""".split()


def rare_kinds(bench):
    """Every other call of the driver that is about memory is in the trace, in its order; what the format has no operation for
    is there under a name of its own."""
    done = bench.record("rare_kinds", LD_LIBRARY_PATH=str(bench.options.noop))
    expect("unmatched" in done.stderr, False, done.stderr)
    bench.sound()
    _, *operations = bench.trace()
    found = [o["op"] for o in operations]
    for at, (one, wanted) in enumerate(itertools.zip_longest(found, RARE)):
        expect(one, wanted, "operation %d" % (at + 1))
    named = collections.defaultdict(list)
    for operation in operations:
        named[operation["op"]].append(operation)
    # The pitch counts, and the layers of an array.
    expect([o["size"] for o in named["memalloc"]], [10240, 64 * 32 * 16, 64 * 32 * 2, 64 * 32 * 2, 1 << 20, 2 << 20], "sizes")
    expect([o.get("kind") for o in named["memalloc"]], [None, "array", "array", "array", None, "physical"], "kinds")
    expect(named["memalloc"][4]["pool"], "p1", "the pool that was set")
    for op, members in (("x-pool_set_attribute", {"pool": "default", "attribute": 4, "value": "0x4000000", "on_device": 0}),
                        ("x-default_pool_trim", {"keep": 1 << 20, "on_device": 0}),
                        ("x-pool_set_access", {"pool": "p1", "to_device": 0, "flags": 3}),
                        ("x-pool_import", {"pool": "p2", "kind": 1}),
                        ("x-multicast_create", {"size": 2 << 20, "devices": 1}),
                        ("x-multicast_bind_addr", {"size": 1 << 20, "offset": 1 << 20}),
                        ("x-mem_map_array", {"count": 1, "stream": "legacy"}),
                        ("x-external_import", {"size": 8 << 20, "type": 1}),
                        ("x-external_map_array", {"size": 64 * 32 * 2}),
                        ("x-stream_wait_value", {"value": "0x7", "flags": 0, "stream": "s1"}),
                        ("x-graph_node", {"size": 3 << 20, "addr": "0x700000"})):
        expect({name: named[op][0].get(name) for name in members}, members, op)
    expect([named[op][0]["memory"] == named["x-mem_map_array"][0]["memory"] for op in ("x-mem_export", "x-mem_import")],
           [True, False], "memory that was exported, and what another handle names")
    expect([o["handle"] for o in named["x-pool_export_pointer"]], [o["handle"] for o in named["x-pool_import_pointer"]], "handles")
    bench.emmctl("inspect", "run.jsonl")
    bench.emmctl("replay", "run.jsonl", "--manager", "pool", "--device", "sim")
    # What pools of the host give is no device's.
    bench.record("host_pools", out="host.jsonl", LD_LIBRARY_PATH=str(bench.options.noop))
    bench.sound("host.jsonl")
    operations = bench.trace("host.jsonl")[1:]
    expect([o["op"] for o in operations], ["x-host_pool_create", "x-host_pool_alloc", "x-host_pool_alloc", "x-free_imported",
                                           "x-free_imported", "x-host_pool_trim", "x-host_pool_destroy", "memalloc", "end"], "a pool of the host")
    expect({name: operations[1][name] for name in ("pool", "size", "stream")}, {"pool": "p1", "size": 64 << 20, "stream": "legacy"}, "its memory")
    for manager in ("recorded", "pool"):
        done = bench.emmctl("replay", "host.jsonl", "--manager", manager, "--device", "sim:capacity=40MiB", "--json", "-")
        expect(json.loads(done.stdout)["peak_live_bytes"], 5 << 20, "peak of " + manager)
    # CUPTI's parameters are the same; the driver behind it knows half of the functions.
    bench.record("rare_kinds", out="cupti.jsonl", CLIENT_LIBCUDA=str(bench.options.cupti / "libcuda-full.so"),
                 EMM_CUPTI=str(bench.options.cupti / "libcupti.so.13"))
    bench.sound("cupti.jsonl")
    needs_success = ("x-free_imported", "x-wait_ipc_event", "x-mem_map", "x-mem_unmap", "x-mem_release", "x-default_pool_trim")
    codes = {o["op"]: o.get("code") for o in bench.operations("cupti.jsonl")}
    for op in set(RARE):
        if op.startswith("x-") and op not in needs_success:
            expect(op in codes, True, op + " through CUPTI")
    expect(codes["x-multicast_create"], 801, "the code of a call that failed")


def repeated(bench, name="run.jsonl"):
    """What --manager recorded answers for a recording, as JSON. It may have found a hazard."""
    done = subprocess.run([str(bench.options.emmctl), "replay", name, "--manager", "recorded", "--device", "sim", "--json", "-"],
                          cwd=bench.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    expect(done.returncode in (0, 1), True, done.stderr)
    return json.loads(done.stdout)


def graphs(bench):
    """Captures, launches and host functions are in the trace; memory that moves between streams in order is no hazard,
    and memory that moves without is one."""
    done = bench.record("graphs")
    expect(done.stdout, "ran 3\nrefused 900\nended 901\n", "standard output")
    bench.sound()
    header, *operations = bench.trace()
    expect("graphs" in header["requires"] and "host-functions" in header["requires"], True, header["requires"])
    expect([(o["op"], o["graph"], o["stream"]) for o in operations if o["op"].startswith("graph_")],
           [("graph_begin", "g1", "s1"), ("graph_end", "g1", "s1")] + [("graph_launch", "g1", "s1")] * 3 +
           [("graph_begin", "g2", "s2")], "graphs")
    counts = collections.Counter(operation["op"] for operation in operations)
    for op, count in {"memalloc": 2, "free": 2, "x-captured_alloc": 1, "x-captured_free": 1, "event_record": 1,
                      "stream_wait": 1}.items():
        expect(counts[op], count, op)
    # The events and waits of the capture are the graph's; its host function is put on a stream that takes part.
    expect([o["stream"] for o in operations if o["op"] == "host_function"], ["s2"], "host functions")
    expect([o["code"] for o in operations if o["op"] == "x-failed"], [900, 901], "what a capture cannot hold")
    expect(repeated(bench)["hazards"], 0, "hazards")
    bench.record("race", out="race.jsonl")
    expect(repeated(bench, "race.jsonl")["hazards"], 1, "hazards of a program that has one")


def devices(bench):
    """Each operation is on the device of its context; access to a peer names both; the end of a context is there."""
    bench.record("two_devices", EMM_STANDIN_DEVICE="sim:devices=2,capacity=1GiB")
    bench.sound()
    header, *operations = bench.trace()
    expect([d["capacity"] for d in header["devices"]], [1 << 30, 1 << 30], "capacities")
    expect("multi-device" in header["requires"] and "peers" in header["requires"], True, header["requires"])
    expect([(o["op"], o["device"], o.get("peer")) for o in operations[:-1]],
           [("memalloc", 0, None), ("memalloc", 1, None), ("peer_enable", 1, 0), ("peer_disable", 1, 0), ("free", 1, None),
            ("free", 0, None), ("memalloc", 1, None), ("context_destroy", 1, None)], "operations")
    expect([o["context"] for o in operations if o["op"] == "memalloc"], ["c1", "c2", "c2"], "contexts")
    for manager in ("recorded", "pool"):
        bench.emmctl("replay", "run.jsonl", "--manager", manager, "--device", "sim")
    # What is live ends with its own context, and a call that was no request for memory needs no explanation.
    done = bench.emmctl("record", "-o", "contexts.jsonl", "--", sys.executable, "-c", CONTEXTS,
                        EMM_STANDIN_DEVICE="sim:devices=2,capacity=1GiB")
    for words in ("at most 6.00 MiB live", "1 refused", "next: emmctl inspect"):
        expect(words in done.stderr, True, done.stderr)


CONTEXTS = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
def given(call, *words):
    out = ctypes.c_uint64()
    return out.value if getattr(driver, call)(ctypes.byref(out), *words) == 0 else None
driver.cuInit(0)
first, second = (given("cuDevicePrimaryCtxRetain", device) for device in (0, 1))
for context, size in ((first, 3 << 20), (second, 1 << 20)):
    driver.cuCtxSetCurrent(ctypes.c_uint64(context))
    given("cuMemAlloc_v2", ctypes.c_size_t(size))
driver.cuDevicePrimaryCtxReset_v2(1)
driver.cuCtxSetCurrent(ctypes.c_uint64(first))
given("cuMemAlloc_v2", ctypes.c_size_t(3 << 20))
given("cuMemAlloc_v2", ctypes.c_size_t(0))
"""


MEMORY = re.compile(r"mem_(alloc|free|host_alloc|free_host|host_register|host_unregister|alloc_managed|alloc_async|free_async|"
                    r"alloc_from_pool_async|pool_create|pool_destroy|pool_trim_to|address_reserve|address_free|create|map|unmap|"
                    r"release)\(.*")
NAME = re.compile(r"0x[0-9a-f]+|(?<=, )[0-9]+(?=\))")


def memory_calls(log):
    """The calls that give or take memory, with addresses and handles by the order in which they first came."""
    names, calls = {}, []
    for line in log.read_text().splitlines():
        # A refused free cannot be made again, since nobody holds what it names.
        if MEMORY.match(line) and not (line.startswith("mem_free(") and "CUDA_ERROR" in line):
            calls.append(NAME.sub(lambda m: "#%d" % names.setdefault(m.group(), len(names) + 1), line))
    return calls


def again(bench):
    """--manager recorded makes the driver calls of the program, in their order."""
    theirs, ours = bench.folder / "program.log", bench.folder / "replay.log"
    bench.record("every_kind", code=7, EMM_STANDIN_LOG=str(theirs))
    bench.emmctl("replay", "run.jsonl", "--manager", "recorded", "--device", "cuda", EMM_STANDIN_LOG=str(ours))
    # The handle of physical memory that is mapped still may be released before or after: its end is the last of both.
    first, second = (memory_calls(log) for log in (theirs, ours))
    releases = [sum(call.startswith("mem_release") for call in calls) for calls in (first, second)]
    expect(releases[1], releases[0], "releases")
    first, second = ([call for call in calls if not call.startswith("mem_release")] for calls in (first, second))
    ended = len(first) - 1  # what the program left to a reset
    for at, call in enumerate(first[:ended + 1]):
        expect(second[at], call, "call %d" % (at + 1))
    print("the same %d calls by the program and by --manager recorded" % len(first))
    # What pools were told too, the default one among them. Its threshold is put back in the end.
    for out in ("pools.jsonl", "pools.emmb"):
        for log in (theirs, ours):
            log.unlink()
        bench.record("pools", out=out, EMM_STANDIN_LOG=str(theirs))
        bench.sound(out)
        bench.emmctl("replay", out, "--manager", "recorded", "--device", "cuda", EMM_STANDIN_LOG=str(ours))
        said = [re.findall(r"^mem_pool_(\w+)\(\d+, (.*)\)", log.read_text(), re.M) for log in (theirs, ours)]
        first, second = ([call for call in calls if call[0] in ("trim_to", "set_attribute")] for calls in said)
        expect(len(first), 4, "calls about pools: %r" % first)
        expect(second, first + [("set_attribute", second[-1][1])], "calls about pools")
        expect(second[-1][1].endswith(" 0"), True, "the threshold in the end: %r" % (second[-1],))


def order(bench):
    """As threads, 2 million calls by 16."""
    threads(bench, ((16, 62500),), ("clock",))


def threads(bench, runs=((16, 4000), (3, 20000)), numbering=("clock", "counter")):
    """Threads that free each other's memory: no call is missing and none is out of order. The counter is for machines whose
    processors have no time in common."""
    for (count, calls), numbered in itertools.product(runs, numbering):
        done = bench.record("exchange", count, calls, EMM_RECORD_ORDER=numbered)
        made = int(done.stdout)
        bench.sound()
        live, addresses, seen = {}, set(), 0
        for operation in bench.operations():
            if operation["op"] == "memalloc":
                seen += 1
                if operation["addr"] in addresses:
                    fail("address %s is live twice" % operation["addr"])
                addresses.add(operation["addr"])
                live[operation["id"]] = operation["addr"]
            elif operation["op"] == "free":
                seen += 1
                addresses.remove(live.pop(operation["id"]))
        expect(seen, made, "calls with %d threads" % count)
        expect(len(live), 0, "live at the end")
        print("%d threads: %d calls numbered by the %s, none missing, none out of order" % (count, made, numbered))


def durations(bench):
    """Of calls that follow each other within 100 us, one in sixty-four has its duration; of others each."""
    done = bench.record("cost", 1, 4000, LD_LIBRARY_PATH=str(bench.options.noop))
    operations = [o for o in bench.operations() if o["op"] in ("memalloc", "free")]
    measured = sum("duration_ns" in o for o in operations)
    # A loaded machine takes the program off its processor at any time, and the call after that is measured.
    expect(len(operations) // 64 <= measured < len(operations) // 2, True, "%d of %d measured" % (measured, len(operations)))
    expect(all("time_ns" in o for o in operations), True, "each has its time")
    expect(re.search(r"recording took about \S+ \w+ a call and .* in all, without its file; ", done.stderr) is not None, True, done.stderr)
    bench.record("some", 100, 1000)
    apart = list(bench.operations())
    expect([o for o in apart if o["op"] in ("memalloc", "free") and "duration_ns" not in o], [], "not measured")


def endings(bench):
    """However a process ends, what had returned is in its file."""
    for what, code, calls in (("abort", 128 + signal.SIGABRT, 20), ("_exit", 5, 20), ("some", 0, 0), ("no_cuda", 3, None)):
        done = bench.record(what, code=code)
        if calls is None:
            expect("nothing was recorded" in done.stderr, True, done.stderr)
            continue
        expect(sum(o["op"] in ("memalloc", "free") for o in bench.trace()[1:]), calls, what)
        (bench.folder / "run.jsonl").unlink()
    bench.record("unload")
    expect(sum(o["op"] == "memalloc" for o in bench.trace()[1:]), 3, "calls of a driver that is loaded three times")
    kills(bench, 25)


def kills(bench, count=200):
    """SIGKILL at a random moment: every file can be read, and no call is missing that had returned."""
    random.seed(count)
    for number in range(count):
        counter = bench.folder / "counter"
        counter.write_bytes(bytes(4096))
        out = bench.folder / ("killed%d.jsonl" % number)
        threads_killed = random.choice((1, 2, 4))
        process = subprocess.Popen([bench.options.emmctl, "record", "-o", out, "--", bench.options.client, "until_killed",
                                    counter, str(threads_killed)], env=bench.environment, stderr=subprocess.PIPE, text=True)
        time.sleep(random.uniform(0.01, 0.12))
        both = number % 2 == 0  # the recorder too, so that the raw file is all there is
        children, listed = [], pathlib.Path("/proc/%d/task/%d/children" % (process.pid, process.pid))
        while not children and process.poll() is None:  # on a busy machine the program comes late
            children = listed.read_text().split()
        if both:
            process.kill()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        process.communicate()
        returned = sum(int.from_bytes(counter.read_bytes()[t * 64:t * 64 + 8], "little") for t in range(threads_killed))
        files = list(pathlib.Path(str(out) + ".raw").glob("*.emmraw")) if both else [out]
        if not files or not files[0].exists():
            expect(returned, 0, "calls of a program that was killed before it recorded")
            continue
        if both:
            bench.emmctl("convert", str(out) + ".raw", out)
        expect(bench.emmctl("check", out).stdout.count("0 errors"), 1, "check")
        seen = sum(o["op"] in ("memalloc", "free") for o in bench.operations(out))
        out.unlink()
        if both:
            shutil.rmtree(str(out) + ".raw")
        if not returned <= seen <= returned + 2 * threads_killed:
            fail("killed: %d calls are in the file, %d had returned" % (seen, returned))
    print("%d kills: every call that had returned is in the file" % count)


def processes(bench):
    """Each process has a file of its own."""
    for options in ((), ("--max-file-size", "1MiB")):
        done = bench.record("fork", options=options)
        expect(done.stdout != "95\n", True, "a child that holds its parent's recording")
    done = bench.record("fork")
    expect(done.stdout, "1\n" if "1\n" in done.stdout else "0\n", "the child's answer")
    expect(sum(o["op"] == "memalloc" and "result" not in o for o in bench.trace()[1:]), 20, "the parent's")
    done = bench.record("fork_first", out="forked.%p.jsonl")
    names = sorted(bench.folder.glob("forked.*.jsonl"))
    expect(len(names), 3, "processes")
    expect(sorted(sum(o["op"] == "memalloc" for o in bench.trace(name)[1:]) for name in names), [20, 21, 22], "their calls")
    for name in names:
        expect(name.name in done.stderr, True, done.stderr)
    bench.record("exec", out="exec.jsonl")
    found = sorted(sum(o["op"] == "memalloc" for o in bench.trace(name)[1:]) for name in bench.folder.glob("exec*.jsonl"))
    expect(found, [10, 20], "before and after exec")
    # A shell script that starts programs, and standard input that is the program's.
    shell = bench.emmctl("record", "-o", "shell.jsonl", "--", "sh", "-c", "%s some 3; echo done" % bench.options.client)
    expect(shell.stdout, "done\n", "standard output")
    expect(len(list(bench.folder.glob("shell*.jsonl"))), 1, "the program of a script")
    # Those that make no call have no file, and the first that does has the name.
    idle = bench.emmctl("record", "-o", "idle.jsonl", "--", "sh", "-c", "%s idle; %s some 3" % ((bench.options.client,) * 2))
    expect("1 more process called cuInit" in idle.stderr, True, idle.stderr)
    expect([sum(o["op"] == "memalloc" for o in bench.trace(name)[1:]) for name in bench.folder.glob("idle*.jsonl")], [3], "calls")
    expect(list(bench.folder.glob("*.raw")), [], "folders that are left")
    # What a killed emmctl leaves stands for its recordings, where several traces are taken.
    bench.emmctl("record", "-o", "killed.jsonl", "--", "sh", "-c", "%s some 3; %s some 4; kill -9 $PPID" % ((bench.options.client,) * 2),
                 code=-signal.SIGKILL)
    both = json.loads(bench.emmctl("fit", "killed.jsonl.raw", "--together", "--manager", "pool", "--json", "-").stdout)
    expect(json.dumps(both).count(".emmraw"), 2, both)
    bench.emmctl("compare", "killed.jsonl.raw", "--manager", "pool", "--device", "sim")
    bench.emmctl("ranks", "killed.jsonl.raw")
    bench.emmctl("sweep", "--trace", "killed.jsonl.raw", "--manager", "pool", "--device", "sim", "-o", "cells")
    refused = bench.emmctl("inspect", "killed.jsonl.raw", code=2).stderr
    expect("has the recordings of 2 processes: expected one of" in refused, True, refused)


def limits(bench):
    """A full disk, a vanished folder, a ring, a recording of limited time: the program runs on, and the file says so."""
    limited = subprocess.run(["bash", "-c", "ulimit -f 300; exec \"$@\"", "bash", str(bench.options.emmctl), "record", "-o",
                              "full.jsonl", "--", str(bench.options.client), "some", "10000"], cwd=bench.folder,
                             env=bench.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # The program ended well; the trace may not fit either, and then the raw file is kept.
    expect(limited.returncode, 0, limited.stderr)
    raw = list((bench.folder / "full.jsonl.raw").glob("*.emmraw"))
    source = raw[0] if raw else bench.folder / "full.jsonl"
    bench.emmctl("convert", source, "full2.jsonl")
    operations = bench.trace("full2.jsonl")
    gaps = [o for o in operations[1:] if o["op"] == "gap"]
    expect(operations[0]["complete"], False, "complete")
    expect(len(gaps), 1, "gaps")
    seen = sum(o["op"] in ("memalloc", "free") for o in operations[1:])
    expect(seen + gaps[0]["lost"] >= 20000, True, "calls, lost ones included")
    bench.emmctl("check", "full2.jsonl")
    # It is said how many are kept and how many lost, wherever they are.
    counted = re.search(r"raw recording is kept: \S+: ([\d,]+) calls are in it, ([\d,]+) lost; next: emmctl convert|"
                        r"full.jsonl: ([\d,]+) calls, .* live, ([\d,]+) lost", limited.stderr)
    expect(counted is not None, True, limited.stderr)
    kept, lost = [int(number.replace(",", "")) for number in counted.groups() if number]
    expect((lost, kept + lost >= 20000, kept > 1000), (gaps[0]["lost"], True, True), limited.stderr)
    # Each lost call counts once, also where stacks are kept.
    done = subprocess.run(["bash", "-c", "ulimit -f 300; exec \"$@\"", "bash", str(bench.options.emmctl), "record", "-o", "stacks.emmb",
                           "--stacks", "native", "--", str(bench.options.client), "some", "10000"], cwd=bench.folder,
                          env=bench.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    kept, lost = [int(number.replace(",", "")) for number in re.search(r"([\d,]+) calls[^\n]*?([\d,]+) lost", done.stderr).groups()]
    expect(20000 <= kept + lost < 20100, True, done.stderr)

    (bench.folder / "no_room.jsonl").symlink_to("/dev/full")
    for program, code in (("every_kind", 7), ("some", 0)):
        for out in ("no_room.jsonl", "/dev/full"):
            done = bench.record(program, code=code, out=out, TMPDIR=str(bench.folder))
            expect(done.stderr.count("No space left"), 1, done.stderr)
            expect((re.search("(call is|calls are) in it, 0 lost", done.stderr) is not None, os.path.exists("/dev/full.raw")), (True, False), done.stderr)
    expect(len(list(bench.folder.glob("emmctl-full*.raw/*.emmraw"))), 2, "raw recordings beside no device")

    done = bench.record("vanish", out="vanish.jsonl")
    expect("nothing was recorded" in done.stderr, True, done.stderr)

    bench.record("some", 200000, out="ring.jsonl", options=("--max-file-size", "1MiB"))
    operations = bench.trace("ring.jsonl")
    expect(operations[0]["complete"], False, "a ring is complete")
    expect([o["reason"] for o in operations[1:] if o["op"] == "gap"], ["older calls were overwritten"], "the gap's reason")
    newest = [o for o in operations[1:] if o["op"] in ("memalloc", "free")]
    expect(5000 < len(newest) < 20000, True, "calls in a ring of 1 MiB: %d" % len(newest))

    # More threads than the ring has blocks: each has its own, and what is left out is older.
    done = bench.record("bursts", 20, 50000, out="ring.jsonl", options=("--max-file-size", "1MiB"),
                        LD_LIBRARY_PATH=str(bench.options.noop))
    operations = bench.trace("ring.jsonl")
    expect([o["reason"] for o in operations[1:] if o["op"] == "gap"], ["older calls were overwritten"], "the gap's reason")
    newest = [o for o in operations[1:] if o["op"] in ("memalloc", "free")]
    expect(len(newest) > 20000, True, "calls in a ring of 20 threads: %d" % len(newest))

    # A program has a limited number of mappings. Threads that come and go write on in each other's blocks of 2047 records.
    done = bench.record("bursts", 200, 100000, out="bursts.emmb", LD_LIBRARY_PATH=str(bench.options.noop))
    mappings, blocks = map(int, done.stdout.split())
    expect(mappings < 300, True, "mappings of the recorder for 200 threads: %d" % mappings)
    expect(200 <= blocks < 400, True, "blocks of 200 threads, and of 200,000 calls: %d" % blocks)
    expect("201,601 calls" in done.stderr, True, done.stderr)

    # A program that fills blocks faster than they are emptied: the file grows, and the mappings do not.
    done = bench.record("bursts", 2, 2500000, out="fast.emmb", LD_LIBRARY_PATH=str(bench.options.noop))
    mappings, blocks = map(int, done.stdout.split())
    expect(blocks > 2400, True, "blocks of 5 million calls: %d" % blocks)
    expect(mappings < 100, True, "%d mappings of the recorder" % mappings)

    bench.record("some", 3000000, out="short.jsonl", options=("--duration", "300ms"))
    operations = bench.trace("short.jsonl")
    last = max(o.get("time_ns", 0) for o in operations[1:])
    expect(last < 2_000_000_000, True, "the last call: %d ns" % last)


def required(bench):
    """--require-trace: 3 where the program was fine and its trace is not whole. A program's own failure goes before."""
    client = bench.options.client
    require = lambda *program, code, options=(), **more: bench.record(*program, code=code, options=("--require-trace", *options), **more)
    require("some", 3, code=0)
    require("every_kind", code=7)
    require("_exit", code=5)
    for program, told, more in (
            (("some", 3), "no CUDA driver", {"LD_LIBRARY_PATH": "/nonexistent"}),
            (("some", 3), "No space left", {"out": "/dev/full", "TMPDIR": str(bench.folder)}),
            (("some", 3), "process had called cuInit|nothing was recorded", {"options": ("--through", "cupti"), "EMM_CUPTI": "/none"}),
            (("younger",), "not recorded", {"LD_LIBRARY_PATH": str(bench.options.noop)})):
        driver = bench.options.standin if told == "no CUDA driver" else None
        # The program has a driver of its own, or it would fail.
        variables = dict(more, CLIENT_LIBCUDA=str(driver / "libcuda.so.1")) if driver else more
        done = require(*program, code=3, **variables)
        expect(re.search(told, done.stderr) is not None, True, done.stderr)
        expect("its trace is not whole" in done.stderr, True, done.stderr)
    for script, code in (("true", 3), ("exit 4", 4), ("ulimit -f 0; exec %s some 3" % client, 3), ("%s some 3; exec sleep 0" % client, 0),
                         ("%s some 50000 300 >/dev/null & sleep 0.3; exec %s some 3" % (client, client), 3)):
        bench.emmctl("record", "--require-trace", "-o", "shell.jsonl", "--", "sh", "-c", script, code=code)
    done = bench.emmctl("record", "--require-trace", "--on-signal", "USR1", "-o", "never.jsonl", "--", client, "some", 3, code=3)
    expect("no USR1 came" in done.stderr, True, done.stderr)
    # What the options leave out is not missing.
    require("some", 60000, code=0, options=("--max-file-size", "1MiB"))
    require("some", 20, 50000, code=0, options=("--duration", "300ms"))


def uncollected(bench):
    """Once `emmctl record` is killed, the program writes 64 MiB more at most, reads as before, and runs on."""
    for calls, blocks in ((600000, 512), (30000, 3)):
        script = "%s some 3; touch begun; until [ -e killed ]; do sleep 0.01; done; %s some %d; echo $? > code.new; mv code.new code"
        process = subprocess.Popen([bench.options.emmctl, "record", "-o", "run.jsonl", "--", "sh", "-c",
                                    script % (bench.options.client, bench.options.client, calls)], cwd=bench.folder,
                                   env=dict(bench.environment, LD_LIBRARY_PATH=str(bench.options.noop),
                                            **({"EMM_RECORD_UNCOLLECTED": str(blocks)} if blocks != 512 else {})), stderr=subprocess.DEVNULL)
        while not (bench.folder / "begun").exists() and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        process.wait()
        (bench.folder / "killed").write_text("")
        limit = time.monotonic() + 300
        while not (bench.folder / "code").exists() and time.monotonic() < limit:
            time.sleep(0.01)
        expect((bench.folder / "code").read_text(), "0\n", "the program's exit code")
        raw = bench.folder / "run.jsonl.raw"
        first, second = sorted(raw.glob("*.emmraw"), key=lambda file: int(file.stem))  # by the numbers of their processes
        expect(second.stat().st_size, 8192 + blocks * (128 << 10), "bytes of %d calls" % (2 * calls))
        if blocks != 512:
            said = bench.emmctl("convert", second, "run.jsonl").stderr
            expect("calls were not recorded: emmctl record was killed, and the program went on" in said, True, said)
            gap, = (o for o in bench.operations() if o["op"] == "gap")
            made = sum(o["op"] in ("memalloc", "free") for o in bench.operations())
            expect((made + gap["lost"], made > 2000 * blocks), (2 * calls, True), "calls that are kept or lost")
            bench.emmctl("convert", first, "run.jsonl")
            expect(sum(o["op"] == "memalloc" for o in bench.operations()), 3, "calls before the kill")
        for name in ("begun", "killed", "code"):
            (bench.folder / name).unlink()
        shutil.rmtree(raw)


    try:
        import numba.cuda  # noqa: F401
    except ImportError:
        return print("no Numba: requests after a kill are not looked at")
    bench.environment.pop("NUMBA_CUDA_DRIVER", None)
    # What Python asks, likewise.
    asks = ("import os, time; from numba import cuda; a = cuda.device_array(1, 'u1'); open('begun', 'w'); "
            "exec('while not os.path.exists(\"killed\"): time.sleep(0.01)'); [cuda.device_array(1, 'u1') for _ in range(4000)]; open('code', 'w')")
    process = subprocess.Popen([bench.options.emmctl, "record", "-o", "run.jsonl", "--level", "request", "--", sys.executable, "-c", asks],
                               cwd=bench.folder, env=dict(bench.environment, EMM_RECORD_UNCOLLECTED="2"), stderr=subprocess.DEVNULL)
    while not (bench.folder / "begun").exists() and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    (bench.folder / "killed").write_text("")
    while not (bench.folder / "code").exists() and time.monotonic() < limit:
        time.sleep(0.01)
    file, = raw.glob("*.requests.jsonl")
    while '"end"' not in file.read_text()[-1000:] and time.monotonic() < limit:
        time.sleep(0.01)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    expect((256 << 10) < file.stat().st_size < (256 << 10) + 1024 * 200, True, "%d bytes of 8000 requests" % file.stat().st_size)
    bench.emmctl("check", file)


DAEMON = """
import ctypes, os, sys, time
def take(count):
    driver = ctypes.CDLL("libcuda.so.1")
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    assert driver.cuInit(0) == 0
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    driver.cuCtxSetCurrent(context)
    for _ in range(count):
        assert driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)) == 0
if os.fork():
    os._exit(6)
os.setsid()
if os.fork():
    os._exit(0)
null = os.open("/dev/null", os.O_RDWR)
for descriptor in (0, 1, 2):
    os.dup2(null, descriptor)
os.chdir("/")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
take(5)
if len(sys.argv) > 2:
    time.sleep(60)
"""
PRELOADED = """
import ctypes, sys
ctypes.CDLL(sys.argv[1]).cuInit(0)
print("ready", flush=True)
input()
"""


def companions(bench):
    """Daemons, and other recorders: recorded to the end, or the true reason in one sentence."""
    client, python = bench.options.client, sys.executable
    (bench.folder / "daemon.py").write_text(DAEMON)
    go = bench.folder / "go"

    def daemon(*options, ends=True):
        process = subprocess.Popen([bench.options.emmctl, "record", "-o", "daemon.jsonl", *options, "--", python, "daemon.py", go,
                                    *([] if ends else ["stay"])], cwd=bench.folder, env=bench.environment, stderr=subprocess.PIPE, text=True)
        said = [process.stderr.readline()]
        go.write_text("")
        while not ends and not list((bench.folder / "daemon.jsonl.raw").glob("*.emmraw")):
            time.sleep(0.01)
        if not ends:
            time.sleep(0.2)
            process.terminate()
        said.append(process.communicate(timeout=60)[1])
        go.unlink()
        expect(process.returncode, 6, "the exit code of the program")
        return "".join(said)

    said = daemon("--follow")
    expect("what it left is recorded until kill -TERM" in said, True, said)
    bench.sound("daemon.jsonl")
    expect(sum(o["op"] == "memalloc" for o in bench.operations("daemon.jsonl")), 5, "calls of a daemon")
    expect(bench.trace("daemon.jsonl")[0].get("complete", True), True, "complete")
    # A signal ends the waiting, and not the daemon.
    said = daemon("--follow", ends=False)
    going = int(re.search(r"process (\d+) goes on", said).group(1))
    os.kill(going, signal.SIGKILL)
    expect(sum(o["op"] == "memalloc" for o in bench.operations("daemon.jsonl")), 5, "calls of a daemon that stays")
    expect(bench.trace("daemon.jsonl")[0]["complete"], False, "complete")

    # A recorder inside of a recorder: the inner one records, by its own options, and both say what is so.
    done = bench.emmctl("record", "-o", "outer.jsonl", "--max-file-size", "1MiB", "--", bench.options.emmctl, "record", "-o", "inner.jsonl", "--",
                        client, "some", 60000)
    expect("is an `emmctl record` itself, and what it runs is in its own recording" in done.stderr, True, done.stderr)
    expect((bench.folder / "outer.jsonl").exists(), False, "a trace of what the other one records")
    expect(sum(o["op"] == "memalloc" for o in bench.operations("inner.jsonl")), 60000, "calls of the inner one")

    # Another library in emmctl's place, by the path of libraries or preloaded.
    other = bench.folder / "other"
    other.mkdir()
    shutil.copy(bench.options.standin / "libcuda.so.1", other / "libcuda.so.1")
    (bench.folder / "preloaded.py").write_text(PRELOADED)
    process = subprocess.Popen([bench.options.emmctl, "record", "-o", "none.jsonl", "--through", "forwarding", "--", "env",
                                "LD_LIBRARY_PATH=" + str(other), python, "preloaded.py", "libcuda.so.1"], cwd=bench.folder,
                               env=bench.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    expect(process.stdout.readline(), "ready\n", "standard output")
    time.sleep(1.2)  # emmctl looks every half second
    said = process.communicate("\n", timeout=60)[1]
    expect("has %s/libcuda.so.1 where emmctl's library would stand; record the program without it" % other in said, True, said)
    done = bench.emmctl("record", "-o", "none.jsonl", "--through", "forwarding", "--", "env", "LD_PRELOAD=%s/libcuda.so.1" % other, python,
                        "-c", "import ctypes; ctypes.CDLL(None).cuInit(0)")
    expect("LD_PRELOAD puts %s/libcuda.so.1 between" % other in done.stderr or "%s/libcuda.so.1 where" % other in done.stderr, True, done.stderr)

    # A limit that emmctl itself set, in either order.
    for order in (("run", "--capacity", "16MiB", "--", bench.options.emmctl, "record", "-o", "less.jsonl", "--"),
                  ("record", "-o", "less.jsonl", "--", bench.options.emmctl, "run", "--capacity", "16MiB", "--")):
        bench.emmctl(*order, client, "info")
        header = bench.trace("less.jsonl")[0]
        expect((header["devices"][0]["capacity"], header["source"]["options"]), (16 << 20, {"run_capacity": 16 << 20}), "the limit")
        bench.sound("less.jsonl")
        said = re.sub(r"\s+", " ", bench.emmctl("explain", "--more", "less.jsonl", "--no-remedies").stdout)
        expect("the device's 16.00 MiB" in said and "`emmctl run --capacity` let the program have 16.00 MiB of it" in said, True, said)

    # What is printed to be pasted can be, whatever the file is called.
    for name in ("two\nlines.jsonl", "it's \\ \u202e \x1b.jsonl"):
        done = bench.record("some", 3, out=name)
        command = re.search(r"; next: (.*)", done.stderr).group(1)
        pasted = subprocess.run(["bash", "-c", command], cwd=bench.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env=dict(bench.environment, PATH="%s:%s" % (bench.options.emmctl.parent, os.environ["PATH"])))
        expect((pasted.returncode, "at its peak" in pasted.stdout), (0, True), command + pasted.stdout)
        asked = bench.emmctl(name).stdout
        pasted = subprocess.run(["bash", "-c", re.search(r"emmctl check .*", asked).group()], cwd=bench.folder,
                                env=dict(bench.environment, PATH="%s:%s" % (bench.options.emmctl.parent, os.environ["PATH"])),
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        expect(pasted.returncode, 0, pasted.stdout)


def signals(bench):
    """A service is recorded for as long as a signal says, with what it held before, while it runs on."""
    counter = bench.folder / "counter"
    counter.write_bytes(bytes(4096))
    process = subprocess.Popen([bench.options.emmctl, "record", "-o", "run.jsonl", "--on-signal", "USR1", "--",
                                bench.options.client, "serve", "counter"], env=bench.environment, cwd=bench.folder, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    expect("kill -USR1 %d" % process.pid in process.stderr.readline(), True, "how to begin")
    expect(process.stdout.readline(), "ready\n", "standard output")
    ends = []
    service = pathlib.Path("/proc/%d/task/%d/children" % (process.pid, process.pid)).read_text().split()[0]

    def faults():
        return int(pathlib.Path("/proc/%s/stat" % service).read_text().rsplit(")", 1)[1].split()[7])

    before_all = faults()
    for window in (1, 2):
        process.send_signal(signal.SIGUSR1)
        expect(process.stderr.readline(), "emmctl: recording\n", "standard error")
        begun = int.from_bytes(counter.read_bytes()[:8], "little")
        while int.from_bytes(counter.read_bytes()[:8], "little") < begun + 20 and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGUSR1)
        said = process.stderr.readline()
        expect("next: emmctl inspect run.jsonl" in said, True, said)
        bench.sound()
        header, *operations = bench.trace()
        expect(header["complete"], False, "complete")
        before = sorted(o["size"] >> 20 for o in operations if o.get("preexisting"))
        # The free of one was refused before.
        expect((len(before), before.count(2) >= 1), (4, True), "what lived before: %r MiB" % before)
        expect(sum(o["op"] == "gap" for o in operations), window - 1, "gaps")
        live = {}
        for o in operations:
            if o["op"] == "memalloc":
                live[o["id"]] = o["size"]
            elif o["op"] == "free":
                del live[o["id"]]
        expect(len(live), 4, "live at the end of the window")
        ends.append(sum(o["op"] == "free" and "x-no_row" not in o for o in operations))
        for manager in ("pool", "recorded"):
            bench.emmctl("replay", "run.jsonl", "--manager", manager, "--device", "sim")
    expect(0 < ends[0] < ends[1], True, "calls of both windows: %r" % ends)
    # All threads wait while what lives is told: of a table of 184 MB only what is used is looked at.
    expect(faults() - before_all < 1500, True, "page faults of the service: %d" % (faults() - before_all))
    process.stdin.close()
    expect(process.wait(timeout=60), 6, "exit code")
    expect(process.stderr.read(), "", "standard error at the end")
    expect(list(bench.folder.glob("*.raw")), [], "folders that are left")
    # A pool of the host that was made before is known to be one.
    process = subprocess.Popen([bench.options.emmctl, "record", "-o", "host.jsonl", "--on-signal", "USR1", "--",
                                bench.options.client, "host_pools", "wait"], cwd=bench.folder, text=True,
                               env=dict(bench.environment, LD_LIBRARY_PATH=str(bench.options.noop)),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stderr.readline()
    expect(process.stdout.readline(), "ready\n", "standard output")
    process.send_signal(signal.SIGUSR1)
    expect(process.stderr.readline(), "emmctl: recording\n", "standard error")
    process.communicate("\n")
    expect([o["op"] for o in bench.operations("host.jsonl") if o["op"] in ("memalloc", "x-host_pool_alloc")],
           ["x-host_pool_alloc", "x-host_pool_alloc", "memalloc"], "what a pool of the host gave")
    # A process that has no memory for the account says so.
    process = subprocess.Popen([bench.options.emmctl, "record", "-o", "small.jsonl", "--on-signal", "USR1", "--", "sh", "-c",
                                "ulimit -v 180000; exec %s serve" % bench.options.client], env=bench.environment, cwd=bench.folder,
                               text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stderr.readline()
    expect(process.stdout.readline(), "ready\n", "standard output")
    process.send_signal(signal.SIGUSR1)
    expect(process.stderr.readline(), "emmctl: recording\n", "standard error")
    said = process.communicate()[1]
    expect("allocations were not kept account of, for want of memory" in said, True, said)
    header, *operations = bench.trace("small.jsonl")
    expect((header["complete"], operations[0].get("reason")), (False, "what lived before recording began is not known"), "the gap")
    # The first window ends a context that was retained before it. Before the second, contexts end that nobody records.
    process = subprocess.Popen([bench.options.emmctl, "record", "-o", "ended.jsonl", "--on-signal", "USR1", "--",
                                bench.options.client, "context_service"], env=bench.environment, cwd=bench.folder, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stderr.readline()
    expect(process.stdout.readline(), "ready\n", "standard output")

    def turn():
        process.stdin.write("\n")
        process.stdin.flush()
        expect(process.stdout.readline(), "turn\n", "standard output")

    def operations_of_window():
        process.send_signal(signal.SIGUSR1)
        expect(process.stderr.readline(), "emmctl: recording\n", "standard error")
        turn()
        process.send_signal(signal.SIGUSR1)
        while "next: emmctl inspect" not in process.stderr.readline() and process.poll() is None:
            continue
        bench.sound("ended.jsonl")
        operations = bench.trace("ended.jsonl")[1:]
        return operations[max((i for i, o in enumerate(operations) if o["op"] == "gap"), default=0):]

    first = operations_of_window()
    expect([o["op"] for o in first], ["memalloc", "memallocmanaged", "memhostalloc", "context_destroy", "memalloc", "free", "end"],
           "a context that was retained before")
    turn()
    turn()
    second = operations_of_window()
    expect([o["size"] >> 20 for o in second if "size" in o], [3, 1, 1, 5], "memory of contexts that ended")
    process.stdin.close()
    expect(process.wait(timeout=60), 0, "exit code")
    done = bench.emmctl("record", "-o", "never.jsonl", "--on-signal", "SIGUSR2", "--", bench.options.client, "some", 3)
    expect("nothing was recorded: no SIGUSR2 came" in done.stderr, True, done.stderr)


def frames_of(bench, name, op):
    """The call stacks of the operations of that kind, innermost frame first, with how often each was there."""
    defined, found = {}, collections.Counter()
    for operation in bench.operations(name):
        if operation["op"] == "define":
            defined[operation["id"]] = tuple(operation["frames"])
        elif operation["op"] == op and "site" in operation:
            found[defined[operation["site"]]] += 1
    return found


# The call comes from a library, after Python's lock was given away: as PyTorch's do.
PYTHON_RELEASED = """
import ctypes
import threading

cudart = ctypes.CDLL("libcudart.so.13")

def take(size):
    address = ctypes.c_void_p()
    assert cudart.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size)) == 0

def produce(size):
    yield take(size)

take(1 << 20)
list(produce(2 << 20))
threads = [threading.Thread(target=take, args=(3 << 20,)) for _ in range(4)]
for thread in threads:
    thread.start()
spins = sum(range(100000))  # with the lock that the others do not hold
for thread in threads:
    thread.join()
"""
PYTHON_SITES = """
from numba import cuda
import numpy as np

def inner(size):
    return cuda.device_array(size, np.uint8)

def outer(size):
    return inner(size)

kept = [inner(100) for _ in range(3)] + [outer(200) for _ in range(4)]
"""


def run_line():
    """The line of threading.Thread.run that calls a thread's function."""
    lines, first = inspect.getsourcelines(threading.Thread.run)
    return first + next(at for at, line in enumerate(lines) if "self._target(" in line)


def sites(bench):
    """Call sites, of C++ and of Python: each stack once."""
    bench.record("sites", options=("--stacks", "native"))
    bench.sound()
    found = frames_of(bench, "run.jsonl", "memalloc")
    expect(sorted(found.values()), [100, 100], "stacks that allocate")
    for stack in found:
        expect("taken_here(unsigned long)" in stack[0], True, stack)
        expect(len(stack) <= 16, True, stack)
    expect(sum("taken_there" in frame for stack in found for frame in stack), 1, "frames of taken_there")
    expect(sum(frames_of(bench, "run.jsonl", "free").values()), 200, "frees with a stack")
    bench.record("sites", options=("--stacks", "native", "--stack-depth", "1"), out="one.jsonl")
    expect(len(frames_of(bench, "one.jsonl", "memalloc")), 1, "stacks of one frame")
    bench.record("exchange", 8, 2000, options=("--stacks", "native"), out="threads.jsonl")
    bench.sound("threads.jsonl")
    # A ring overwrites definitions, and they are made again.
    bench.record("some", 60000, options=("--stacks", "native", "--max-file-size", "1MiB"), out="ring.jsonl")
    made = sum(o["op"] == "memalloc" for o in bench.operations("ring.jsonl"))
    named = sum(frames_of(bench, "ring.jsonl", "memalloc").values())
    expect(named >= made * 3 // 4, True, "%d of %d calls in a ring have a stack" % (named, made))
    bench.record("fork_first", options=("--stacks", "native"), out="forks.%p.jsonl")
    for name in bench.folder.glob("forks.*.jsonl"):
        expect(sum(frames_of(bench, name, "memalloc").values()) >= 20, True, name)
    script = bench.folder / "released.py"
    script.write_text(PYTHON_RELEASED)
    bench.emmctl("record", "-o", "released.jsonl", "--stacks", "python", "--", sys.executable, script)
    bench.sound("released.jsonl")
    if (3, 8) <= sys.version_info < (3, 14):  # whose frames are read in place
        by_names = collections.Counter()
        for stack, count in frames_of(bench, "released.jsonl", "memalloc").items():
            by_names[tuple(re.sub(r".*[/:]", "", frame) for frame in stack[:2])] += count
        expect(by_names, {("9 take", "14 <module>"): 1, ("9 take", "12 produce"): 1, ("9 take", "%s run" % run_line()): 4},
               "stacks of calls without the lock")
    try:
        import numba.cuda  # noqa: F401
    except ImportError:
        print("no Numba: stacks of its calls are not looked at")
        return
    bench.environment.pop("NUMBA_CUDA_DRIVER", None)
    script = bench.folder / "sites.py"
    script.write_text(PYTHON_SITES)
    for which in ("python", "both"):
        bench.emmctl("record", "-o", which + ".jsonl", "--stacks", which, "--", sys.executable, script)
        bench.sound(which + ".jsonl")
        found = frames_of(bench, which + ".jsonl", "memalloc")
        by_line = collections.Counter()
        for stack, count in found.items():
            own = [frame for frame in stack if frame.startswith(str(script))]
            by_line[tuple(re.sub(r".*:\d+ ", "", frame) for frame in own[:2])] += count
        expect(by_line[("inner", "outer")], 4, "calls by outer: %r" % by_line)
        expect(sum(by_line.values()), 7, "calls of the script: %r" % by_line)
    expect(any(".so" in frame for stack in found for frame in stack), True, "native frames beside Python's")


PYTHON_REQUESTS = """
import gc
import os
import numpy as np
from numba import cuda
kept = [cuda.device_array(n << 20, np.uint8) for n in (1, 2, 3)]
host = cuda.pinned_array(4096, np.uint8)
cuda.to_device(np.arange(1000))
del kept[0]
gc.collect()
cuda.current_context().memory_manager.deallocations.clear()  # of nobody's request
cuda.current_context().reset()
"""
PYTHON_FORK = """
import os
from numba import cuda
import numpy as np
for size in (5, 6):
    if os.fork() == 0:
        cuda.device_array(size << 20, np.uint8)
        import atexit
        atexit._run_exitfuncs()
        os._exit(0)
    os.wait()
"""
# What a program asks of Numba whose ends Python does not see.
PYTHON_ENDS = """
import multiprocessing, os, sys
import numpy as np
from numba import cuda
def ask(count, size=1):
    return [cuda.device_array(size << 20, np.uint8) for _ in range(count)]
if __name__ == "__main__":
    how = sys.argv[1]
    if how in ("fork", "spawn"):
        begin = multiprocessing.get_context(how).Process
        children = [begin(target=ask, args=(count,)) for count in (3, 4)]
        for child in children: child.start()
        for child in children: child.join()
    elif how == "nothing":
        pass
    else:
        kept = ask(5)
        if how == "exit": os._exit(3)
        if how == "signal": os.kill(os.getpid(), 9)
        if how == "exec": os.execv(sys.executable, [sys.executable, __file__, "again"])
"""
# A plugin as Numba's documentation shows it. The program imports it by itself, too.
NUMBA_PLUGIN = """
from numba import cuda
class Plugin(cuda.HostOnlyCUDAMemoryManager):
    def initialize(self): pass
    def memalloc(self, size):
        import ctypes
        pointer = ctypes.c_uint64()
        assert ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
        return cuda.MemoryPointer(self.context, pointer, size)
    def get_memory_info(self): return cuda.MemoryInfo(1, 2)
    def get_ipc_handle(self, memory): raise NotImplementedError
    @property
    def interface_version(self): return 1
_numba_memory_manager = Plugin
"""
FAKE_TORCH = """
import pickle
class memory:
    @staticmethod
    def _record_memory_history(**named):
        assert cuda.initialised, "the history began before CUDA did"
    @staticmethod
    def _dump_snapshot(path):
        rows = [dict(action="alloc", addr=4096, size=512, stream=0, time_us=1), dict(action="free_requested", addr=4096,
                size=512, stream=0, time_us=2), dict(action="free_completed", addr=4096, size=512, stream=0, time_us=3)]
        pickle.dump(dict(segments=[], device_traces=[[dict(row, frames=[]) for row in rows]]), open(path, "wb"))
class cuda:
    initialised, _calls = False, []
    memory = memory
    @classmethod
    def _lazy_call(cls, call): cls._calls.append(call)
    @classmethod
    def init(cls):
        cls.initialised = True
        for call in cls._calls: call()
"""

# Also takes memory from the driver as PyTorch does: a segment, then a block of it. A library takes 1 MiB in between.
FAKE_TORCH_AT_WORK = FAKE_TORCH.replace("for row in rows]]", "for row in (work.rows or rows)]]") + """
import ctypes, time
class work:
    rows = []
    @classmethod
    def row(cls, action, addr, size):
        cls.rows.append(dict(action=action, addr=addr, size=size, stream=0, time_us=time.time_ns() // 1000))
    @classmethod
    def run(cls):
        driver = ctypes.CDLL("libcuda.so.1")
        context, device = ctypes.c_void_p(), ctypes.c_int()
        for code in (driver.cuInit(0), driver.cuDeviceGet(ctypes.byref(device), 0),
                     driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), driver.cuCtxSetCurrent(context)):
            assert code == 0
        def take(size):
            pointer = ctypes.c_uint64()
            assert driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
            return pointer.value
        def give(pointer): assert driver.cuMemFree_v2(ctypes.c_uint64(pointer)) == 0
        segments = []
        for size, block in ((2 << 20, 1000), (20 << 20, 3 << 20), (64 << 20, 64 << 20)):
            segments.append((take(size), size))
            cls.row("segment_alloc", *segments[-1]); cls.row("alloc", segments[-1][0], block)
            take(1 << 20)
        cls.row("alloc", segments[1][0] + (3 << 20), 2 << 20)  # from the cache
        addr, size = segments[2]
        cls.row("free_requested", addr, size); cls.row("free_completed", addr, size)
        give(addr); cls.row("segment_free", addr, size)
"""


def levels(bench):
    """What Python asked of its frameworks, alone and with the driver's calls beneath; and other sitecustomizes are run."""
    try:
        import numba.cuda  # noqa: F401
    except ImportError:
        print("skipped: no Numba")
        return 77
    bench.environment.pop("NUMBA_CUDA_DRIVER", None)
    (bench.folder / "ours").mkdir()
    (bench.folder / "ours" / "sitecustomize.py").write_text("import sys; sys.stderr.write('the program has one\\n')\n")
    (bench.folder / "script.py").write_text(PYTHON_REQUESTS)
    run = ["--", sys.executable, "script.py"]
    plain = bench.emmctl("record", "-o", "driver.jsonl", *run)
    done = bench.emmctl("record", "-o", "request.jsonl", "--level", "request", *run, PYTHONPATH=str(bench.folder / "ours"))
    expect("the program has one\n" in done.stderr and "next: emmctl inspect request.jsonl" in done.stderr, True, done.stderr)
    bench.sound("request.jsonl")
    asked = collections.Counter(o["op"] for o in bench.operations("request.jsonl"))
    expect((asked["memalloc"], asked["memhostalloc"], asked["free"], asked["reset"]), (4, 1, 2, 1), "requests")

    # A package that finds no library of its own writes through the one beside emmctl.
    shutil.copytree(HERE.parents[1] / "tools" / "python" / "emmctl", bench.folder / "package" / "emmctl")
    bench.emmctl("record", "-o", "lone.jsonl", "--level", "request", *run, EMM_LIBRARY="",
                 EMM_PYTHON_PACKAGE=str(bench.folder / "package" / "emmctl"))
    expect(collections.Counter(o["op"] for o in bench.operations("lone.jsonl")), asked, "requests without a library of one's own")

    bench.emmctl("record", "-o", "both.jsonl", "--level", "both", *run)
    bench.sound("both.jsonl")
    operations = list(bench.operations("both.jsonl"))
    expect([o["seq"] for o in operations if "seq" in o], sorted(o["seq"] for o in operations if "seq" in o), "order")
    above = [o for o in operations if o.get("layer") != "backing"]
    beneath = [o for o in operations if o.get("layer") == "backing"]
    expect(collections.Counter(o["op"] for o in above if o["op"] in asked and o["op"] not in ("flush", "end")),
           collections.Counter({op: n for op, n in asked.items() if op not in ("flush", "end")}), "the same requests")
    calls = collections.Counter(o["op"] for o in bench.operations("driver.jsonl"))
    for op in ("memalloc", "free", "memhostalloc", "mempin"):
        expect(sum(o["op"] == op for o in beneath if o["op"] != "flush"), calls[op], "%s of the driver (%s)" % (op, plain.stderr))
    by_place = {o["seq"]: o for o in above if "seq" in o}
    for made in beneath:
        if made["op"] in ("memalloc", "memhostalloc"):
            cause = by_place[made["parent"]]
            expect((cause["op"], cause["size"]), (made["op"], made["size"]), "the request of a call")
    freed = [by_place[o["parent"]]["op"] if "parent" in o else None for o in beneath if o["op"] == "free"]
    expect(set(freed) >= {None, "reset"}, True, "what caused the frees: %r" % freed)
    bench.emmctl("replay", "both.jsonl", "--manager", "pool", "--device", "sim")
    bench.emmctl("inspect", "both.jsonl")
    # The calls beneath are those that our own manager of that profile makes for the same requests.
    if bench.options.cuda:
        theirs, ours = bench.folder / "program.log", bench.folder / "replay.log"
        bench.emmctl("record", "-o", "logged.jsonl", "--level", "both", *run, EMM_STANDIN_LOG=str(theirs))
        bench.emmctl("replay", "logged.jsonl", "--manager", "default:profile=numba", "--device", "cuda", EMM_STANDIN_LOG=str(ours))
        expect(len(memory_calls(theirs)) > 8, True, "calls that are compared")
        expect(memory_calls(ours), memory_calls(theirs), "calls of default:profile=numba")

    # However a process ends, what it asked is there, with an end; and no process's trace takes the place of another's.
    (bench.folder / "ends.py").write_text(PYTHON_ENDS)
    for level in ("request", "both"):
        for how, counts, code in (("exit", [5], 3), ("signal", [5], 137), ("fork", [3, 4], 0), ("spawn", [3, 4], 0),
                                  ("exec", [5, 5], 0)):
            name = "%s-%s" % (how, level)
            bench.emmctl("record", "-o", name + ".jsonl", "--level", level, "--", sys.executable, "ends.py", how, code=code)
            found = []
            for trace in sorted(bench.folder.glob(name + "*.jsonl")):
                said = bench.emmctl("check", trace.name, "--json", "-").stdout
                expect("no end in a trace" in said, False, said)
                asked = [o["op"] for o in bench.operations(trace.name) if o.get("layer") != "backing"]
                beneath = [o for o in bench.operations(trace.name) if o["op"] == "memalloc" and o.get("layer") == "backing"]
                expect(asked[-1], "end", "the last operation of %s" % trace.name)
                expect((len(beneath), all("parent" in o for o in beneath)), (asked.count("memalloc") if level == "both" else 0, True),
                       "calls of %s" % trace.name)
                found.append(asked.count("memalloc"))
            expect(sorted(found), counts, name)
    for level in ("request", "both"):
        nothing = bench.emmctl("record", "-o", "none.jsonl", "--level", level, "--", sys.executable, "ends.py", "nothing")
        expect("nothing was recorded" in nothing.stderr, True, nothing.stderr)
        expect(list(bench.folder.glob("none*")), [], "what is left of nothing")

    # A plugin that imports numba.cuda, and one that the program imports before Numba asks for it.
    (bench.folder / "plugin.py").write_text(NUMBA_PLUGIN)
    for number, first in enumerate(("from numba import cuda", "import plugin; from numba import cuda", "import numba.cuda.cudadrv.driver; from numba import cuda")):
        for level in ("request", "both"):
            name = "plugin%d-%s.jsonl" % (number, level)
            bench.emmctl("record", "-o", name, "--level", level, "--require-trace", "--", sys.executable, "-c",
                         first + "; a = cuda.device_array(1000, 'u1'); b = cuda.device_array(2000, 'u1'); "
                         "assert 'Plugin' in type(cuda.current_context().memory_manager).__mro__[2].__name__", NUMBA_CUDA_MEMORY_MANAGER="plugin",
                         PYTHONPATH=str(bench.folder))
            expect([o["size"] for o in bench.operations(name) if o["op"] == "memalloc" and o.get("layer") != "backing"], [1000, 2000], name)
    # A limit that emmctl itself set is in the trace of what Python asked, too.
    for level in ("request", "both"):
        bench.emmctl("run", "--capacity", "8MiB", "--", bench.options.emmctl, "record", "-o", "less.jsonl", "--level", level, "--", sys.executable,
                     "-c", "from numba import cuda; a = cuda.device_array(6 << 20, 'u1'); b = cuda.device_array(6 << 20, 'u1')", code=1)
        said = re.sub(r"\s+", " ", bench.emmctl("explain", "--more", "less.jsonl", "--no-remedies").stdout)
        expect("the device's 8.00 MiB" in said and "`emmctl run --capacity` let the program have 8.00 MiB of it" in said, True, said)
    # What cannot be recorded is said, and an exit code that a script sees.
    (bench.folder / "broken").mkdir()
    (bench.folder / "broken" / "cupy.py").write_text("")
    asks = ["--", sys.executable, "-c", "import cupy; from numba import cuda; a = cuda.device_array(1000, 'u1')"]
    for options, code in (((), 0), (("--require-trace",), 3)):
        done = bench.emmctl("record", "-o", "broken.jsonl", "--level", "request", *options, *asks, code=code, PYTHONPATH=str(bench.folder / "broken"))
        expect("cupy is not recorded" in done.stderr, True, done.stderr)
    expect(list(bench.folder.glob("broken*.raw")), [], "folders that are left")

    (bench.folder / "fork.py").write_text(PYTHON_FORK)
    bench.emmctl("record", "-o", "fork.%p.jsonl", "--level", "request", "--", sys.executable, "fork.py")
    sizes = sorted(o["size"] >> 20 for name in bench.folder.glob("fork.*.jsonl") for o in bench.operations(name)
                   if o["op"] == "memalloc")
    expect(sizes, [5, 6], "what the children asked for")

    (bench.folder / "fakes").mkdir()
    (bench.folder / "fakes" / "torch.py").write_text(FAKE_TORCH)
    fakes = "%s:%s" % (bench.folder / "fakes", HERE.parent / "python" / "stand_ins")
    bench.emmctl("record", "-o", "torch.jsonl", "--level", "request", "--", sys.executable, "-c",
                 "import torch; torch.cuda.init()", PYTHONPATH=fakes)
    expect([(o["op"], o.get("size")) for o in bench.operations("torch.jsonl") if o.get("layer") != "backing"][:2],
           [("memalloc", 512), ("free", None)], "PyTorch's history")
    done = bench.emmctl("record", "-o", "lost.jsonl", "--level", "request", "--", sys.executable, "-c",
                        "import os, torch; torch.cuda.init(); os._exit(0)", PYTHONPATH=fakes)
    expect("PyTorch's history of process" in done.stderr and " is lost" in done.stderr, True, done.stderr)
    call = "import torch; torch.cuda.init(); from numba import cuda; cuda.current_context().get_memory_info()"
    bench.emmctl("record", "-o", "beside.jsonl", "--level", "both", "--", sys.executable, "-c", call, PYTHONPATH=fakes)
    expect(sorted(name.name for name in bench.folder.glob("beside*")), ["beside-torch.jsonl", "beside.jsonl"], "both levels")
    alone = "import ctypes, torch; torch.cuda.init(); ctypes.CDLL('libcuda.so.1').cuInit(0)"
    done = bench.emmctl("record", "-o", "apart.jsonl", "--level", "both", "--", sys.executable, "-c", alone, PYTHONPATH=fakes)
    expect(sorted(name.name for name in bench.folder.glob("apart*")), ["apart-torch.jsonl", "apart.jsonl"], "both levels")
    expect("none of 0 segments of PyTorch's history is among the driver's calls: it is a trace of its own" in done.stderr, True, done.stderr)
    (bench.folder / "at_work").mkdir()
    (bench.folder / "at_work" / "torch.py").write_text(FAKE_TORCH_AT_WORK)
    done = bench.emmctl("record", "-o", "work.jsonl", "--level", "both", "--", sys.executable, "-c",
                        "import torch; torch.cuda.init(); torch.work.run()", PYTHONPATH=str(bench.folder / "at_work"))
    expect(sorted(name.name for name in bench.folder.glob("work*")), ["work-torch.jsonl", "work.jsonl"], done.stderr)
    for name in ("work.jsonl", "work-torch.jsonl"):
        bench.sound(name)
    operations = list(bench.operations("work.jsonl"))
    asked = {o["seq"]: o["size"] for o in operations if o["op"] == "memalloc" and o.get("layer") != "backing"}
    expect(sorted(asked.values()), [1000, 2 << 20, 3 << 20, 64 << 20], "PyTorch's requests")
    expect([(o["size"] >> 20, asked.get(o.get("parent"))) for o in operations if o["op"] == "memalloc" and o.get("layer") == "backing"],
           [(2, 1000), (1, None), (20, 3 << 20), (1, None), (64, 64 << 20), (1, None)], "which request caused each call")
    times = [o["time_ns"] for o in operations if "time_ns" in o]
    expect(all(later > earlier - 10**6 for earlier, later in zip(times, times[1:])), True, "the clocks of both: %r" % times)
    bench.emmctl("replay", "work.jsonl", "--manager", "pytorch", "--device", "sim")
    cupy = "import cupy, somebodys; cupy.cuda.set_allocator(somebodys.allocator()); a = cupy.cuda.alloc(1024); del a"
    bench.emmctl("record", "-o", "cupy.jsonl", "--level", "request", "--", sys.executable, "-c", cupy,
                 PYTHONPATH="%s:%s" % (fakes, HERE.parent / "python"))
    expect([(o["op"], o.get("size")) for o in bench.operations("cupy.jsonl")][:2], [("memalloc", 1024), ("free", None)], "CuPy")
    nothing = bench.emmctl("record", "-o", "nothing.jsonl", "--level", "request", "--", sys.executable, "-c", "pass")
    expect("no process imported Numba, CuPy or PyTorch" in nothing.stderr, True, nothing.stderr)
    calls = bench.emmctl("record", "-o", "calls.jsonl", "--level", "both", "--", bench.options.client, "some", "10")
    expect("calls.jsonl has only driver calls: no process imported Numba" in calls.stderr, True, calls.stderr)
    expect(list(bench.folder.glob("*.raw")), [], "folders that are left")


def cupti(bench):
    """A program that has the driver by its full path is recorded through CUPTI: the same calls; or one sentence says why not."""
    there = {"CLIENT_LIBCUDA": str(bench.options.cupti / "libcuda-full.so"),
             "EMM_CUPTI": str(bench.options.cupti / "libcupti.so.13")}
    without_times = lambda operations: [{k: v for k, v in o.items() if not k.endswith("time_ns") and k not in
                                         ("duration_ns", "thread", "addr", "handle", "free")} for o in operations]
    for what, code in (("every_kind", 7), ("graphs", 0), ("two_devices", 0)):
        device = {"EMM_STANDIN_DEVICE": "sim:devices=2,capacity=1GiB"} if what == "two_devices" else {}
        door = bench.record(what, code=code, out=what + "1.jsonl", **device)
        full = bench.record(what, code=code, out=what + "2.jsonl", **dict(there, **device))
        expect(full.stdout, door.stdout, "standard output")
        bench.sound(what + "2.jsonl")
        (first, *theirs), (second, *ours) = bench.trace(what + "1.jsonl"), bench.trace(what + "2.jsonl")
        expect(second["requires"], first["requires"], "requires")
        expect(second["devices"], first["devices"], "devices")
        for at, (one, two) in enumerate(zip(without_times(theirs), without_times(ours))):
            expect(two, one, "operation %d of %s" % (at, what))
        expect(len(ours), len(theirs), "operations")
    bench.record("exchange", 8, 4000, out="threads.jsonl", **there)
    bench.sound("threads.jsonl")
    live, addresses = {}, set()
    for operation in bench.operations("threads.jsonl"):
        if operation["op"] == "memalloc":
            expect(operation["addr"] in addresses, False, "an address is live twice")
            addresses.add(operation["addr"])
            live[operation["id"]] = operation["addr"]
        elif operation["op"] == "free":
            addresses.remove(live.pop(operation["id"]))
    expect(len(live), 0, "live at the end")
    bench.record("sites", out="sites.jsonl", options=("--stacks", "native"), **there)
    expect(sorted(frames_of(bench, "sites.jsonl", "memalloc").values()), [100, 100], "call stacks")
    bench.record("some", 10, out="alone.jsonl", options=("--through", "cupti"), **there)
    bench.record("some", 10, out="not.jsonl", options=("--through", "forwarding"), **there)
    expect((bench.folder / "not.jsonl").exists(), False, "a trace of what was not seen")
    bench.record("cost", 1, 2, out="noop.jsonl", LD_LIBRARY_PATH=str(bench.options.noop))
    for words, variables in (("libcupti.so was not found", {"EMM_CUPTI": "/nonexistent"}),
                             ("libcupti.so is old", {"EMM_FAKE_CUPTI_VERSION": "8"}),
                             ("another tool has subscribed", {"EMM_FAKE_CUPTI_SUBSCRIBE": "39"}),
                             ("has subscribed: CUPTI for Somebody", {"EMM_FAKE_CUPTI_SUBSCRIBE": "39", "EMM_FAKE_CUPTI_OTHER": "CUPTI for Somebody"}),
                             ("CUPTI_ERROR_UNKNOWN", {"EMM_FAKE_CUPTI_SUBSCRIBE": "999"})):
        done = bench.record("some", 10, out="none.jsonl", **dict(there, **variables))
        expect((words in done.stderr, done.stderr.count("CUPTI does not record")), (True, 1), done.stderr)
        expect("nothing was recorded" in done.stderr, True, done.stderr)


def manners(bench):
    """The recorder takes nothing from the program: no descriptor, no output, no driver."""
    done = bench.record("own_files", bench.folder / "journal")
    expect(done.stdout, "0 0\n", "bytes in the program's own file, and its descriptors in a child")
    expect(sum(o["op"] == "memalloc" for o in bench.trace()[1:]), 22000, "calls before and after")
    client = bench.options.client
    for words in (("record", "-o", "nulls.jsonl"), ("run", "--capacity", "1GiB")):
        bench.emmctl(*words, "--", client, "nulls", LD_LIBRARY_PATH=str(bench.options.noop))
    bench.emmctl("record", "-o", "closed.jsonl", "--", "sh", "-c", "exec %s every_kind >&-" % client, code=7)
    bench.sound("closed.jsonl")
    # Whoever starts the program may pass on where libraries are, and nothing else.
    for words, told in ((("record", "-o", "bare.jsonl"), ""), (("run", "--capacity", "1KiB"), "CUDA error 2")):
        bare = "exec env -i PATH=\"$PATH\" LD_LIBRARY_PATH=\"$LD_LIBRARY_PATH\" EMM_STANDIN_DEVICE=sim %s some 3" % client
        done = bench.emmctl(*words, "--", "sh", "-c", bare, code=97 if told else 0)
    expect(sum(o["op"] == "memalloc" for o in bench.trace("bare.jsonl")[1:]), 3, "calls without the variables")
    # A function that the recorder does not know is not passed over in silence.
    done = bench.record("younger", out="younger.jsonl", LD_LIBRARY_PATH=str(bench.options.noop))
    header, *operations = bench.trace("younger.jsonl")
    expect((header["complete"], [o["op"] for o in operations]), (False, ["gap", "memalloc", "free", "end"]), done.stderr)
    bench.sound("younger.jsonl")
    # A path that LD_LIBRARY_PATH cannot hold, and one that is no file.
    odd = bench.folder / "at 10:30;late"
    odd.mkdir()
    bench.record("some", 3, out=odd / "run.jsonl", TMPDIR=str(odd))
    expect(sum(o["op"] == "memalloc" for o in bench.trace(odd / "run.jsonl")[1:]), 3, "calls of an odd path")
    expect([name.name for name in odd.iterdir()], ["run.jsonl"], "what is left there")
    done = bench.record("some", 3, out=odd, code=2)
    expect("it is a folder: expected a file" in done.stderr, True, done.stderr)
    # A trace that was made while the process went on says so.
    bench.emmctl("record", "-o", "cut.jsonl", "--duration", "300ms", "--", client, "some", 20, 50000)
    done = bench.emmctl("record", "-o", "first.jsonl", "--", "sh", "-c", "%s some 20 50000 & sleep 0.4; exec %s some 3" % (client, client))
    names = ["cut.jsonl", *(name.name for name in bench.folder.glob("first.*.jsonl"))]
    expect(len(names), 2, "traces of processes that went on")
    for name in names:
        header, *operations = bench.trace(name)
        expect((header["complete"], "gap" in [o["op"] for o in operations[-2:]]), (False, True), name)
        bench.sound(name)
    expect(bench.trace("first.jsonl")[0].get("complete", True), True, "the program's own")
    expect(done.stderr.count("is not recorded any more"), 1, done.stderr)
    # Each %p is the number of the process. A time has a unit.
    bench.record("some", 3, out="%p.of.%p.jsonl")
    expect([len(set(name.name.split(".of."))) for name in bench.folder.glob("*.of.*.jsonl")], [2], "names with two numbers")
    number = next(bench.folder.glob("*.of.*.jsonl")).name.split(".")
    expect(number[0], number[2], "the number of the process")
    for time_text in ("60", "0s"):
        refused = bench.record("some", 3, options=("--duration", time_text), code=2)
        expect("such as 500ms, 60s, 5min or 1h" in refused.stderr, True, refused.stderr)
    bench.record("some", 3, options=("--duration", "1h"), out="hour.jsonl")
    # What keeps a process from recording is said once, and not taken for a program without CUDA.
    for before, words in (("ulimit -f 0", "1 process could not open a file"), ("rm -r gone.jsonl.raw", "is gone")):
        done = bench.emmctl("record", "-o", "gone.jsonl", "--", "sh", "-c", "%s; exec %s some 3" % (before, client))
        expect(words in done.stderr, True, done.stderr)
    done = bench.emmctl("record", "-o", "late.jsonl", "--duration", "100ms", "--", "sh", "-c", "sleep 0.4; exec %s some 3" % client)
    expect("no process had called cuInit by then" in done.stderr, True, done.stderr)
    # A driver that refuses to begin.
    done = bench.record("some", 3, code=97, out="refused.jsonl", EMM_STANDIN_DEVICE="none")
    expect("nothing was recorded: the driver answered cuInit with 100, CUDA_ERROR_NO_DEVICE" in done.stderr, True, done.stderr)
    expect(list(bench.folder.glob("*.raw")), [], "folders that are left")


def profilers(bench):
    """Nsight Compute ends with an error where somebody else injects: nobody does where it starts the program, or emmctl."""
    refuses = "#!/bin/sh\ntest -z \"$CUDA_INJECTION64_PATH\" || exit 9\n"
    program = bench.folder / "ncu"
    for rest, recorded in (("exec %s some 3\n" % bench.options.client, True), ("", False)):
        program.write_text(refuses + rest)
        program.chmod(0o755)
        done = bench.emmctl("record", "-o", "ncu.jsonl", "--", program)
        expect("Nsight Compute puts its own library" in done.stderr, not recorded, done.stderr)
    below = bench.folder / "program"
    program.rename(below)
    bench.emmctl("record", "-o", "ncu.jsonl", "--", below, code=9)
    bench.emmctl("record", "-o", "ncu.jsonl", "--", below, NV_COMPUTE_PROFILER_PERFWORKS_DIR="/opt")


TRAIN = """import sys
import numpy as np
from numba import cuda

batch = int(sys.argv[2]) if len(sys.argv) > 2 else 5
weights = cuda.device_array(16 << 20, np.uint8)
batches = [cuda.device_array(12 << 20, np.uint8) for _ in range(batch)]
"""


def docs(bench):
    """What docs/recording.md shows from nothing to an answer is what its commands print, of three programs."""
    try:
        import numba.cuda  # noqa: F401
    except ImportError:
        print("skipped: no Numba")
        return 77
    sys.path.insert(0, str(HERE.parent / "cli"))
    sys.dont_write_bytecode = True
    import docs_test
    for name, arguments in (("leaks", "leaks"), ("service", "serve")):
        (bench.folder / name).write_text("#!/bin/sh\nexec %s %s\n" % (bench.options.client, arguments))
        (bench.folder / name).chmod(0o755)
    (bench.folder / "train.py").write_text(TRAIN)
    os.symlink(sys.executable, bench.folder / "python")
    environment = dict(bench.environment, PATH="%s:%s:%s" % (bench.options.emmctl.parent, bench.folder, os.environ["PATH"]))
    environment.pop("NUMBA_CUDA_DRIVER", None)
    text = (HERE.parent.parent / "docs" / "recording.md").read_text()
    found = 0
    for command, shown in docs_test.examples(text[text.index("## From nothing"):text.index("**What did the driver")]):
        found += 1
        device = "sim:capacity=%s" % ("1GiB" if "emmctl run" in command else "64MiB")
        # The service ends when its input does.
        done = subprocess.run(["bash", "-c", "(sleep 1.5) | (%s)" % command.replace("60s", "500ms")], cwd=bench.folder, text=True,
                              env=dict(environment, EMM_STANDIN_DEVICE=device), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        printed = [line for line in done.stdout.splitlines() if line.strip()]
        line = docs_test.missing(shown, printed)
        if line is not None:
            fail("%s does not print: %s\nbut:\n%s" % (command, line, done.stdout))
    expect(found, 4, "commands")
    # Without a GPU: nothing tells the program of a device but the command.
    text = (HERE.parent.parent / "docs" / "without-a-gpu.md").read_text()
    alone = {name: value for name, value in environment.items() if not name.startswith(("EMM_", "LD_"))}
    found = 0
    for command, shown in docs_test.examples(text[text.index("## On which card"):text.index("## A test in CI")]):
        found += 1
        done = subprocess.run(["bash", "-c", command], cwd=bench.folder, text=True, env=alone, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        line = docs_test.missing(shown, [line for line in done.stdout.splitlines() if line.strip()])
        if line is not None:
            fail("%s does not print: %s\nbut:\n%s" % (command, line, done.stdout))
    expect(found, 5, "commands without a GPU")
    less = subprocess.run(["bash", "-c", "emmctl run --capacity 75MiB -- python train.py"], cwd=bench.folder, text=True,
                          env=dict(environment, EMM_STANDIN_DEVICE="sim:capacity=1GiB"), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    expect((less.returncode, "CUDA_ERROR_OUT_OF_MEMORY" in less.stdout), (1, True), less.stdout)


def gate(bench):
    """`emmctl run`: less memory, and calls that fail as told."""
    client = bench.options.client
    done = bench.emmctl("run", "--capacity", "16MiB", "--", client, "info")
    expect(done.stderr, "", "what is said of a program that was seen")
    small = done.stdout.split("\n")
    expect(small[:3], ["16777216 16777216", "16 2 0", "16777216"], "a device of 16 MiB")
    # As the device itself with that memory.
    bare = subprocess.run([str(client), "pages"], env=dict(bench.environment, EMM_STANDIN_DEVICE="sim:capacity=16MiB"),
                          stdout=subprocess.PIPE, text=True, check=True).stdout
    expect(bench.emmctl("run", "--capacity", "16MiB", "--", client, "pages").stdout, bare, "pages of 2 MiB")
    failing = bench.emmctl("run", "--fault", "mem_alloc:5", "--", client, "info").stdout.split("\n")
    expect(failing[1].split()[:2], ["4", "2"], "the fifth allocation")
    failing = bench.emmctl("run", "--fault", "mem_alloc:5=999", "--", client, "info").stdout.split("\n")
    expect(failing[1].split()[:2], ["4", "999"], "its code")
    same = [bench.emmctl("run", "--fault", "rate=0.05,seed=7,call=mem_alloc", "--", client, "info").stdout for _ in range(2)]
    expect(same[0], same[1], "the same seed")
    expect(int(same[0].split()[2]) < 100, True, "some allocation fails")
    # Virtual memory counts until its last handle or mapping ends, and ended contexts have no memory: as on the device itself.
    for what, capacity in (("virtual_memory", "16MiB"), ("contexts", "16MiB"), ("managed", "16MiB")):
        bare = subprocess.run([str(client), what], env=dict(bench.environment, EMM_STANDIN_DEVICE="sim:capacity=" + capacity),
                              stdout=subprocess.PIPE, text=True, check=True).stdout
        expect(bench.emmctl("run", "--capacity", capacity, "--", client, what).stdout, bare, what)
    for what, codes in (("pitches", "2 2\n"), ("second_handle", "2 0\n"), ("destroyed_context", "2 0 2\n")):
        done = bench.emmctl("run", "--capacity", "16MiB", "--", client, what, LD_LIBRARY_PATH=str(bench.options.noop))
        expect(done.stdout, codes, what)
    bench.emmctl("run", "--capacity", "10MiB", "--", client, "host_pools", LD_LIBRARY_PATH=str(bench.options.noop))
    done = bench.emmctl("run", "--capacity", "4MiB", "--", client, "host_pools", LD_LIBRARY_PATH=str(bench.options.noop), code=97)
    expect("on_device" in done.stderr, True, done.stderr)
    done = bench.emmctl("run", "--capacity", "10MiB", "--", client, "refused_frees")
    expect(done.stdout, "1 0 2 10\n", "memory whose free the driver refused")
    # Each fault hits its call alone, also where two are recorded as one.
    names = ("mem_alloc_async", "mem_alloc_from_pool_async", "stream_query", "stream_synchronize", "event_query",
             "event_synchronize")
    for at, name in enumerate(names):
        codes = bench.emmctl("run", "--fault", name + ":1=999", "--", client, "alike").stdout.split()
        expect(codes, ["999" if i == at else "0" for i in range(len(names))], name)
    # More addresses than the accounts begin with, and than they may hold.
    done = bench.emmctl("run", "--capacity", "64GiB", "--", client, "many", 1100000)
    expect((done.stdout, done.stderr), ("0\n", ""), "many allocations")
    done = bench.emmctl("run", "--capacity", "64GiB", "--", client, "many", 5000, EMM_RUN_ACCOUNTS="1024")
    expect(done.stdout, "0\n", "allocations without accounts")
    expect("--capacity did not count 19" in done.stderr, True, done.stderr)
    passed_by = bench.emmctl("run", "--capacity", "1GiB", "--", client, "no_cuda", code=3)
    expect((passed_by.stdout, "nothing was refused" in passed_by.stderr), ("", True), "of a program that uses no driver")


def numba(bench):
    """Debian's Numba as a client: what it asked of the driver is in the recording."""
    try:
        import numba.cuda  # noqa: F401
    except ImportError as error:
        print("skipped: no Numba for %s: %s" % (sys.executable, error))
        return 77
    log = bench.folder / "standin.log"
    session = HERE.parent / "standin" / "numba_session.py"
    bench.environment.pop("NUMBA_CUDA_DRIVER", None)
    done = bench.emmctl("record", "-o", "numba.%p.jsonl", "--", sys.executable, session, EMM_STANDIN_DEVICE="sim:capacity=64MiB",
                        EMM_STANDIN_LOG=str(log), NUMBA_CALLS=str(bench.folder / "calls.jsonl"),
                        PYTHONPATH=str(HERE.parent / "standin"))
    asked = collections.Counter(line.split("(")[0] for line in log.read_text().splitlines() if "->" not in line or
                                "CUDA_ERROR" not in line)
    seen = collections.Counter()
    names = sorted(bench.folder.glob("numba.*.jsonl"))
    for name in names:
        bench.sound(name)
        seen.update(o.get("api") for o in bench.trace(name)[1:] if "result" not in o)
    for call, api in (("mem_alloc", "cuMemAlloc"), ("mem_free", "cuMemFree"), ("mem_host_alloc", "cuMemHostAlloc"),
                      ("mem_free_host", "cuMemFreeHost"), ("mem_alloc_managed", "cuMemAllocManaged"),
                      ("mem_host_register", "cuMemHostRegister"), ("mem_host_unregister", "cuMemHostUnregister")):
        expect(seen[api], asked[call], "%s of %d processes" % (api, len(names)))
    print("Numba: %d calls of %d processes are in the recordings" % (sum(seen.values()), len(names)))
    print(done.stderr)


def suite(bench):
    """Modules of Numba's own tests, at both levels: the driver's calls are those that default:profile=numba makes for the same requests.
    Left out are those that a replay cannot follow: they replace Numba's manager, change its limits or clear its queue, or go on in a
    context that a kernel ended, which no kernel does here."""
    try:
        import numba.cuda.tests.cudadrv  # noqa: F401
    except ImportError as error:
        print("skipped: no tests of Numba: %s" % error)
        return 77
    bench.environment.pop("NUMBA_CUDA_DRIVER", None)
    for module, least in (("test_cuda_ndarray", 100), ("test_context_stack", 2)):
        theirs, ours = bench.folder / (module + ".log"), bench.folder / (module + ".replay.log")
        # Tests with kernels fail here: the exit code is not looked at.
        subprocess.run([str(bench.options.emmctl), "record", "-o", "suite.jsonl", "--level", "both", "--", sys.executable, "-m",
                        "numba.runtests", "-m1", "numba.cuda.tests.cudadrv." + module], cwd=bench.folder,
                       env=dict(bench.environment, EMM_STANDIN_LOG=str(theirs)), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        bench.sound("suite.jsonl")
        bench.emmctl("replay", "suite.jsonl", "--manager", "default:profile=numba", "--device", "cuda", EMM_STANDIN_LOG=str(ours))
        made = memory_calls(theirs)
        expect(len(made) >= least, True, "%d calls by %s" % (len(made), module))
        expect(memory_calls(ours), made, "calls of " + module)
        print("%s: %d calls, the same by default:profile=numba" % (module, len(made)))


CASES = {case.__name__: case for case in (every_kind, rare_kinds, graphs, order, kills, again, devices, threads, durations, endings, processes, limits, required, uncollected, companions, signals, sites, levels, cupti, profilers, manners, docs, gate, numba, suite)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("case", choices=CASES)
    for name in ("emmctl", "client", "standin", "noop", "cupti"):
        parser.add_argument("--" + name, type=pathlib.Path, required=True)
    parser.add_argument("--cuda", action="store_true", help="emmctl has the cuda device")
    options = parser.parse_args()
    bench = Bench(options)
    result = CASES[options.case](bench) or 0
    shutil.rmtree(bench.folder)  # a failure leaves it
    return result


if __name__ == "__main__":
    sys.exit(main())
