#!/usr/bin/env python3
"""Numba's own manager and `default:profile=numba`, asked the same at random: they make the same driver calls.

    numba_sequences.py compare --standin FOLDER [--player PROGRAM] [--golden FILE [--update]] [--first N] [--count N]
    numba_sequences.py numba --first N --count N      the calls that Numba makes, on the stand-in for libcuda.so.1
    numba_sequences.py steps --first N --count N      the sequences alone

For Numba 0.56 (ctypes) and numba-cuda (cuda-bindings): whichever this Python has. A golden file holds for each hundred
sequences a digest of all driver calls and outcomes, and of a few the whole text. Where there is no Numba, or no player,
the other alone is compared with it. Exit 0: the same; 1: not; 77: there is nothing to compare.
"""
import argparse
import collections
import concurrent.futures
import ctypes
import gc
import hashlib
import itertools
import os
import pathlib
import re
import subprocess
import sys

import sequences

HUNDRED = 100
WHOLE = (1, 2, 3, 5, 8)  # sequences whose text is in a golden file
ADDRESS = re.compile(r"0x[0-9a-f]{5,}")


class Numba:
    """Numba's NumbaCUDAMemoryManager, over the libcuda.so.1 that is found first."""

    def __init__(self):
        import numpy
        self._lib = ctypes.CDLL("libcuda.so.1")
        self._lib.emm_standin_calls.restype = ctypes.c_size_t
        self._lib.emm_standin_script.argtypes = [ctypes.c_uint64, ctypes.c_int, ctypes.c_int]
        self._buffer = ctypes.create_string_buffer(1 << 20)
        self._new_context()
        for gone, name in (("row_stack", "vstack"), ("in1d", "isin"), ("trapz", "trapezoid")):
            if not hasattr(numpy, gone):  # numba-cuda 0.30 imports what numpy 2.5 no longer has
                setattr(numpy, gone, getattr(numpy, name))
        from numba.cuda.cudadrv import driver as numba_driver
        self._driver = numba_driver
        numba_driver.driver.ensure_initialized()
        self._regions = [ctypes.create_string_buffer(sequences.REGION_SIZE + 4096) for _ in range(sequences.REGIONS)]

    def _new_context(self):
        context = ctypes.c_void_p()
        self._lib.cuInit(0)
        self._lib.cuDevicePrimaryCtxReset_v2(0)
        self._lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        self._lib.cuCtxSetCurrent(context)

    def calls(self):
        written = self._lib.emm_standin_calls(self._buffer, len(self._buffer))
        return ctypes.string_at(self._buffer, written).decode()

    def play(self, steps):
        class Context:
            device = None

        self._new_context()
        self.calls()
        context = Context()
        manager = self._driver.NumbaCUDAMemoryManager(context=context)
        slots, guards, told = {}, [], "=\n"
        for step in steps:
            if step[0] == "X":
                self._lib.emm_standin_script(*step[1:])
                continue
            outcome = self._perform(manager, slots, guards, *step)
            told += outcome + "\n" + self.calls()
            self._lib.emm_standin_script(0, 0, 0)
        while guards:
            guards.pop().__exit__(None, None, None)
        for slot in sorted(slots):
            slots[slot] = None
        manager.deallocations.clear()
        return told + "end\n" + self.calls()

    def _perform(self, manager, slots, guards, kind, *args):
        try:
            answer = self._ask(manager, slots, guards, kind, *args)
        except self._driver.CudaAPIError as error:
            if kind in "FCR":  # of a free: emmctl tells of it elsewhere
                return "ok"
            return "error %d" % int(error.code)
        except ReferenceError:  # memory that a reset has ended
            return "ok"
        except RuntimeError as error:
            if "Freeing dead memory" not in str(error):
                raise
            return "ok"
        return answer or "ok"

    def _ask(self, manager, slots, guards, kind, *args):
        if kind == "I":
            manager.initialize()
        elif kind == "A":
            slots[args[0]] = manager.memalloc(args[1])
        elif kind == "H":
            bits = args[2]
            slots[args[0]] = manager.memhostalloc(args[1], bool(bits & 2), bool(bits & 1), bool(bits & 4))
        elif kind == "P":
            region = self._regions[args[1]]
            address = (ctypes.addressof(region) + 4095) // 4096 * 4096
            slots[args[0]] = manager.mempin(region, address, args[2], bool(args[3]))
        elif kind == "M":
            slots[args[0]] = manager.memallocmanaged(args[1], bool(args[2]))
        elif kind in "VO":
            of = slots.get(args[1])
            if of is not None:
                slots[args[0]] = of.view(*args[2:]) if kind == "V" else of.own()
        elif kind == "D":
            slots.pop(args[0], None)
        elif kind == "F":
            memory = slots.get(args[0])
            if memory is not None and hasattr(memory, "free"):
                memory.free()
        elif kind == "C":
            manager.deallocations.clear()
        elif kind == "(":
            guards.append(manager.defer_cleanup())
            guards[-1].__enter__()
        elif kind == ")":
            if guards:
                guards.pop().__exit__(None, None, None)
        elif kind == "R":
            manager.reset()
        elif kind == "G":
            info = manager.get_memory_info()
            return "%d of %d" % (info.free, info.total)
        return None


def numbered(text):
    """Addresses by number, in the order in which they were given: where memory lies is the device's affair."""
    names, lines, numbers = {}, [], itertools.count(1)
    for line in text.split("\n"):
        if line.startswith(("mem_alloc", "mem_host_alloc")):
            names.update((address, "#%d" % next(numbers)) for address in ADDRESS.findall(line))
        for address in ADDRESS.findall(line):
            if address not in names:
                names[address] = "#%d" % next(numbers)
        lines.append(ADDRESS.sub(lambda found: names[found.group()], line))
    return "\n".join(lines)


def by_numba(standin, first, count, jobs):
    """The text of each sequence, and who made it; by so many processes."""
    environment = dict(os.environ, LD_LIBRARY_PATH=str(standin), EMM_STANDIN_DEVICE="sim:capacity=64MiB", EMM_STANDIN_SCRIPT="1",
                       NUMBA_CUDA_DRIVER=str(pathlib.Path(standin) / "libcuda.so.1"))
    environment.pop("LD_PRELOAD", None)

    def play(begin, end):
        return subprocess.run([sys.executable, __file__, "numba", "--first", str(begin), "--count", str(end - begin)],
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    bounds = [first + count * job // jobs for job in range(jobs + 1)]
    texts, version = [], ""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for done in pool.map(play, bounds, bounds[1:]):
            if done.returncode == 77:
                return None, done.stderr.strip()
            if done.returncode != 0:
                sys.exit("Numba ended with %d:\n%s\n%s" % (done.returncode, done.stdout[-2000:], done.stderr[-4000:]))
            version, _, text = done.stdout.partition("\n")
            texts += ["=\n" + part for part in text.split("=\n")[1:]]
    return texts, version


def by_player(player, first, count):
    text = "".join("=\n" + sequences.text(seed) for seed in range(first, first + count))
    done = subprocess.run([str(player), "default:profile=numba"], input=text, stdout=subprocess.PIPE, text=True, check=True)
    return ["=\n" + part for part in done.stdout.split("=\n")[1:]]


def digests(first, texts):
    """Of each hundred that is whole."""
    made = {}
    for at in range(0, len(texts) - HUNDRED + 1, HUNDRED):
        digest = hashlib.sha256()
        for text in texts[at:at + HUNDRED]:
            digest.update(numbered(text).encode())
        made["%d-%d" % (first + at, first + at + HUNDRED - 1)] = digest.hexdigest()[:32]
    return made


def golden_text(made, first, texts, version):
    calls = sum(text.count("(") for text in texts)
    lines = ["made by %s: %d sequences, %d driver calls" % (version, len(texts), calls)]
    lines += ["%s %s" % row for row in made.items()]
    for seed in WHOLE:
        if first <= seed < first + len(texts):
            lines += ["", "sequence %d" % seed, numbered(texts[seed - first]).rstrip()]
    return "\n".join(lines) + "\n"


def differ(seed, theirs, ours):
    """Both sides of a sequence up to the step where they part."""
    steps = [step for step in sequences.sequence(seed)]
    print("sequence %d, of Numba and of default:profile=numba:\n%s" % (seed, sequences.text(seed)))
    for at, (his, mine) in enumerate(zip(numbered(theirs).splitlines(), numbered(ours).splitlines())):
        print("  %-60s %s%s" % (his, mine, "" if his == mine else "   <--"))
        if his != mine:
            break
    print("%d steps" % len(steps))


def compare(options):
    theirs, version = by_numba(options.standin, options.first, options.count, options.jobs)
    ours = by_player(options.player, options.first, options.count) if options.player else None
    if theirs is None:
        print("no Numba for %s: %s" % (sys.executable, version))
    if theirs is None and (ours is None or options.golden is None):
        return 77
    if theirs is not None and ours is not None:
        for at, (his, mine) in enumerate(zip(theirs, ours)):
            if numbered(his) != numbered(mine):
                differ(options.first + at, his, mine)
                return 1
        kinds = collections.Counter(line.split("(")[0] for text in theirs for line in text.splitlines() if "(" in line)
        print("%s and default:profile=numba make the same %d driver calls in %d sequences: %s"
              % (version, sum(kinds.values()), len(theirs), ", ".join("%d %s" % (n, kind) for kind, n in sorted(kinds.items()))))
    if options.golden is None:
        return 0
    for who, texts in (("Numba", theirs), ("default:profile=numba", ours)):
        if texts is None:
            continue
        made = digests(options.first, texts)
        if options.update:
            options.golden.write_text(golden_text(made, options.first, texts, version))
            print("written: %s" % options.golden)
            return 0
        rows = dict(line.split() for line in options.golden.read_text().split("\n\n")[0].splitlines()[1:])
        wrong = [key for key, value in made.items() if rows.get(key) != value]
        if wrong or not made:
            print("%s: not the calls of %s in the sequences %s" % (who, options.golden, ", ".join(wrong)))
            return 1
        print("%s: the calls of %s, in %d hundreds of sequences" % (who, options.golden.name, len(made)))
    return 0


def play_numba(first, count):
    try:
        import numba
        numba_player = Numba()
    except ImportError as error:
        print(error, file=sys.stderr)
        return 77
    version = "Numba %s" % numba.__version__
    try:
        import numba_cuda
        version = "numba-cuda %s" % numba_cuda.__version__
    except ImportError:
        pass
    sys.unraisablehook = lambda _: None  # ERR-2: frees that fail where memory ends
    sys.stdout.write(version + "\n")
    for seed in range(first, first + count):
        sys.stdout.write(numba_player.play(sequences.sequence(seed)))
        if seed % 500 == 0:
            gc.collect()
    sys.stdout.flush()
    os._exit(0)  # what a fault has leaked is nobody's business


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("compare", "numba", "steps"))
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=int(os.environ.get("EMM_NUMBA_SEQUENCES", 20 * HUNDRED)),
                        help="EMM_NUMBA_SEQUENCES where not given; 10000 are in the golden file")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--standin", type=pathlib.Path)
    parser.add_argument("--player", type=pathlib.Path)
    parser.add_argument("--golden", type=pathlib.Path)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    if options.what == "numba":
        return play_numba(options.first, options.count)
    if options.what == "steps":
        for seed in range(options.first, options.first + options.count):
            sys.stdout.write("=\n" + sequences.text(seed))
        return 0
    return compare(options)


if __name__ == "__main__":
    sys.exit(main())
