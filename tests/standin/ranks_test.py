#!/usr/bin/env python3
"""Programs of several ranks on simulated devices: their communicators, collectives and ends.

Each test starts the ranks as a shell script does, under one `emmctl run --device sim`; the program's NCCL aborts in every
function, so that a line of its output also shows that the stand-in answered.
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
for name in ("emmctl", "ranks", "nccl"):
    parser.add_argument("--" + name, required=True)
parser.add_argument("tests", nargs="*")
options = parser.parse_args()
failures = 0
folder = tempfile.TemporaryDirectory(prefix="emm-ranks-")
environment = {name: value for name, value in os.environ.items() if not name.startswith(("EMM_", "LD_", "OMPI_", "PMI", "SLURM_"))}
environment["TMPDIR"] = folder.name
START = 'r=0; all=; while [ $r -lt $SIZE ]; do RANK=$r "$0" "$@" & all="$all $!"; r=$((r+1)); done; code=0; for p in $all; do wait $p || code=$?; done; exit $code'


def expect(found, wanted, what):
    global failures
    if found != wanted:
        failures += 1
        print("FAILED: %s\n  found  %r\n  wanted %r" % (what, found, wanted), flush=True)


def command(size, *words, start=START, extra=(), devices=None):
    meet = tempfile.mkdtemp(prefix="meet", dir=folder.name)
    more = {"SIZE": str(size), "MEET": meet}
    return [options.emmctl, "run", "--device", "sim:devices=%d" % (devices or size), *extra, "--", "sh", "-c", start, options.ranks, *words], more


def run(size, *words, timeout=120, **how):
    environ = how.pop("environ", {})
    line, more = command(size, *words, **how)
    done = subprocess.run(line, cwd=folder.name, env={**environment, **more, **environ}, text=True, capture_output=True, timeout=timeout)
    clean()
    return done


def clean():
    until = time.monotonic() + 10  # a daemon may end a little after the launcher
    while glob.glob(folder.name + "/emmctl-*") and time.monotonic() < until:
        time.sleep(0.01)
    expect(glob.glob(folder.name + "/emmctl-*"), [], "what is left in the temporary folder")
    for meet in glob.glob(folder.name + "/meet*"):
        shutil.rmtree(meet)


def lines(done):
    return sorted(done.stdout.splitlines())


def has(done, words, code=0):
    text = done.stdout + done.stderr
    expect(done.returncode, code, "the exit code, where it says: " + text)
    for one in words:
        expect(one in text, True, "%r in what it says: %s" % (one, text))


def test_values():
    for size in (1, 2, 4, 8):
        if size == 1:
            continue  # its sums are not those that every type has
        done = run(size, "values")
        has(done, ["rank %d: 0 wrong" % rank for rank in range(size)])


def test_sends():
    done = run(3, "sends")
    expect(lines(done), sorted(["rank 0: ring 20 21", "rank 1: ring 0 1", "rank 2: ring 10 11"] + ["rank %d: all 0 10 20" % rank for rank in range(3)]),
           "what is sent: " + done.stderr)


def test_splits():
    done = run(4, "splits")
    wanted = ["rank 0: half 2 0", "rank 2: half 2 0", "rank 1: half 3 1", "rank 3: half 3 1", "rank 0: place 1 of 2, device 0",
              "rank 1: place 1 of 2, device 1", "rank 2: place 0 of 2, device 2", "rank 3: place 0 of 2, device 3", "rank 0: colour none 1"]
    wanted += ["rank %d: colour none 0" % rank for rank in (1, 2, 3)] + ["rank %d: without 1 5" % rank for rank in (0, 2, 3)]
    wanted += ["rank %d: most 3" % rank for rank in range(4)]
    expect(lines(done), sorted(wanted), "splits: " + done.stderr)


def test_all_devices():
    done = run(4, "devices", start='exec "$0" "$@"')
    expect(lines(done), ["rank 0: sum 6 10 14"] * 4, "one process with four devices: " + done.stderr)


def test_order():
    done = run(2, "crossed", environ={"EMM_STANDIN_TOGETHER": "200"})
    expect(lines(done), sorted(["rank 0: ready 0 0", "rank 0: a 3", "rank 1: a 3", "rank 0: b 30", "rank 1: b 30"]), "crossed: " + done.stderr)
    done = run(2, "ordered")
    expect(lines(done), ["rank 0: copied 3", "rank 1: copied 3"], "work behind a collective: " + done.stderr)


def test_devices_of_launchers():
    """A rank's device by its number, or alone by CUDA_VISIBLE_DEVICES, as mpirun and srun start it."""
    start = START.replace('RANK=$r "$0"', 'CUDA_VISIBLE_DEVICES=$r OMPI_COMM_WORLD_RANK=$r RANK=$r "$0"')
    has(run(2, "values", start=start), ["rank 0: 0 wrong", "rank 1: 0 wrong"])


def test_forks():
    done = run(2, "forks")
    expect(lines(done), ["rank 0: in a child 4", "rank 0: sum 1", "rank 1: in a child 4", "rank 1: sum 1"], "forks: " + done.stderr)


def test_wrong_calls():
    has(run(1, "wrong"), ["rank 0: alone 7"])


def test_ends():
    for how, words in (("killed", "has ended"), ("exits", "has ended"), ("aborts", "has aborted the communicator"), ("leaves", "has left the communicator")):
        begun = time.monotonic()
        done = run(3, "ends", how)
        said = "; rank 2 (process"
        expect(done.stdout.count("remote process exited or there was a network error" + said), 2, "%s: %s %s" % (how, done.stdout, done.stderr))
        expect(done.stdout.count(words), 2, "%s: %s" % (how, done.stdout))
        expect("AllReduce of 4 int32, sum (number 2) of ranks 0, 1 and 2" in done.stdout, True, done.stdout)
        expect(time.monotonic() - begun < 30, True, "that nothing hangs")
    done = run(2, "ends", "mismatch")
    expect(done.stdout.count("invalid usage"), 2, done.stdout)
    for words in ("ranks call different collectives: number 2 of ranks 0 and 1 is AllReduce of 4 int32, sum at rank 0",
                  "Broadcast of 4 int32, root 0 at rank 1"):
        expect(words in done.stdout, True, "%r in %s" % (words, done.stdout))
    done = run(2, "ends", "mismatch-send")
    expect("a send and its receive differ: Send of 4 int32 at rank 0" in done.stdout, True, done.stdout)


def test_ends_before_it_enters():
    """A rank that dies before it is in any communicator: the others end, and do not wait for ever."""
    start = START.replace('RANK=$r "$0"', 'WORLD_SIZE=$SIZE RANK=$r "$0"')
    done = run(3, "ends", "never", start=start, environ={"EMM_STANDIN_STUCK": "4"})
    has(done, ["has ended, and rank", "waits for it in CommInitRank of ranks 0, 1 and 2"], 137)
    expect(re.search(r"emmctl: rank 2 \(process \d+\) has ended, and rank [01] ", done.stderr) is not None, True, done.stderr)
    expect(done.stderr.count("CommInitRank") >= 1 and "no rank went on" not in done.stderr, True, done.stderr)
    # PyTorch's ranks: one was killed; the other waits for it in NCCL, or in the store.
    done = torch_ranks("0,63 of 64", "dies", "4")
    has(done, ["rank 63 ended with exit code 137", "has ended, and rank 0"], 137)
    done = torch_ranks("0,1 of 2", "dies_first", "2")
    has(done, ["rank 0 ended with exit code 137", "no rank went on for", "all_reduce, in "], 3)


def test_signals():
    """A rank is killed, and a terminal interrupts all: nothing is left, neither processes nor files."""
    shared = set(os.listdir("/dev/shm"))
    done = some_of("0,1,2 of 3", "ends", "killed", size=3)
    has(done, ["rank 2 ended with exit code 137", "rank 2 (process", "has ended, and rank"], 137)
    expect(done.stdout.count("remote process exited or there was a network error; rank 2 (process"), 2, done.stdout)
    for number, start in ((signal.SIGINT, None), (signal.SIGTERM, None), (signal.SIGTERM, "torchrun"), (signal.SIGINT, "torchrun"), (signal.SIGINT, "mpirun")):
        meet = tempfile.mkdtemp(prefix="meet", dir=folder.name)
        program = [options.ranks, "ends", "sleeps"]
        if start is not None:
            program = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "program", "launcher.py"), start, "3", *program]
        line = [options.emmctl, "run", "--device", "sim:devices=3", *(["--ranks", "0..2 of 3"] if start is None else []), "--", *program]
        process = subprocess.Popen(line, cwd=folder.name, env={**environment, "SIZE": "3", "MEET": meet}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        until = time.monotonic() + 60
        while len(glob.glob(folder.name + "/emmctl-sim-*/waits.*")) < 3 and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.5)
        begun = time.monotonic()
        os.killpg(process.pid, number)  # as a terminal does it
        out, err = process.communicate(timeout=60)
        expect(time.monotonic() - begun < 20, True, "that it ends soon: " + err)
        clean()
        left = [words for words in commands() if meet in words[1]]
        expect(left, [], "processes that are left after %s of %s" % (number, start))
        expect(process.returncode in (128 + number, -number, 1, 3), True, "%s: %s %s" % (process.returncode, out, err))
    expect(set(os.listdir("/dev/shm")) - shared, set(), "/dev/shm")
    expect([name for name in os.listdir(folder.name) if not name.endswith(".json")], [], "files in TMPDIR")


def commands():
    """(number, environment) of all processes."""
    found = []
    for name in os.listdir("/proc"):
        try:
            with open("/proc/%d/environ" % int(name), errors="replace") as file:
                found.append((int(name), file.read()))
        except (OSError, ValueError):
            pass
    return found


def test_deadlock():
    """Each rank's wait is named, and the program ended."""
    done = run(4, "stuck", environ={"EMM_STANDIN_STUCK": "2"}, extra=["--json", "stuck.json"])
    has(done, ["no rank went on for 2 s, and they were ended: they wait for one another, or for what does not come"], 3)
    for words in (r"0 +\d+ +AllReduce of 2 int32, sum \(number 1\) of ranks 0 and 1 +rank 1\n", r"1 +\d+ +AllReduce of 4 int32, sum \(number 1\) of ranks 0, 1, 2 and 3 +rank 0\n",
                  r"2 +\d+ +Broadcast of 1 int32, root 0 \(number 1\) of ranks 0, 1, 2 and 3"):
        expect(re.search(words, done.stderr) is not None, True, "%r in %s" % (words, done.stderr))
    with open(folder.name + "/stuck.json") as file:
        answer = json.load(file)
    expect([(one["rank"], one["collective"].partition(" ")[0]) for one in answer["waiting"]], [(0, "AllReduce"), (1, "AllReduce"), (2, "Broadcast"), (3, "Broadcast")],
           "the waits in JSON")
    expect(answer["fits"], None, "what is known of a run that was ended")
    expect("so far it fits" in done.stderr, True, done.stderr)
    # One that does not come, and sleeps.
    done = run(2, "ends", "sleeps", environ={"EMM_STANDIN_STUCK": "0.4"})
    has(done, ["no rank went on for 4 s", "AllReduce of 4 int32, sum (number 2) of ranks 0 and 1  rank 1"], 3)
    expect(re.search(r"1 +\d+ +nothing of NCCL's", done.stderr) is not None, True, done.stderr)


def test_computing_rank():
    """A rank that computes for longer is waited for."""
    done = run(2, "ends", "computes", environ={"EMM_STANDIN_STUCK": "1", "EMM_STANDIN_TOGETHER": "100"})
    has(done, ["rank 0: computes 2 6 10 14", "rank 1: computes 2 6 10 14"])


def test_answer():
    """By rank, the tightest first."""
    done = run(3, "takes", devices=3, extra=["--json", "takes.json"])
    has(done, ["it fits on each of 3 ranks: rank 2, the tightest, takes at most 26.00 MiB (27,262,976 bytes) of the 139.29 GiB of device 2, a simulated NVIDIA H200",
               "besides, 526.81 MiB of 139.80 GiB are never free", "besides, NCCL takes memory of a real card outside of the allocator, which is not counted here: nobody has measured it for such communicators"])
    rows = [line.split()[:2] for line in done.stderr.splitlines() if re.match(r" +\d +\d +\d+ +\d+", line)]
    expect(rows, [["2", "2"], ["1", "1"], ["0", "0"]], "the rows of " + done.stderr)
    with open(folder.name + "/takes.json") as file:
        answer = json.load(file)
    expect([(one["rank"], one["device"], one["peak_bytes"] >> 20) for one in answer["ranks"]], [(2, 2, 26), (1, 1, 18), (0, 0, 10)], "the ranks in JSON")
    words = sum(len(line.split()) for line in done.stderr.splitlines() if line.startswith("emmctl:") and "next:" not in line)
    expect(words <= 120, True, "one breath: %d words" % words)
    line, more = command(3, "takes")
    line[line.index("sim:devices=3")] = "sim:devices=3,capacity=20MiB"
    done = subprocess.run(line, cwd=folder.name, env={**environment, **more}, text=True, capture_output=True, timeout=120)
    has(done, ["it does not fit as it is: rank 2 was refused 1 request for want of memory; the first was of 24.00 MiB (25,165,824 bytes), when it held 2.00 MiB of 20.00 MiB "
               "(20,971,520 bytes) of device 2, a simulated NVIDIA H200: it lacked 6.00 MiB"], 1)
    clean()


def test_launchers():
    """The rank of a process is that of the launcher, and its device the one that it takes, by the launcher's number or alone."""
    stub = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program", "launcher.py")
    for kind in ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec.hydra", "mpirun_rsh", "srun", "srun --gpus-per-task=1", "flux", "jsrun"):
        name = kind.replace(" --gpus-per-task=1", "")
        start = 'exec %s %s "%s" $SIZE "$0" "$@"' % (sys.executable, stub, kind)
        done = run(3, "takes", "8", start=start, extra=["--json", "launched.json"])
        has(done, ["it fits on each of 3 ranks: rank 2, the tightest, takes at most 26.00 MiB (27,262,976 bytes) of the 139.29 GiB of device 2, a simulated NVIDIA H200"])
        with open(folder.name + "/launched.json") as file:
            answer = json.load(file)
        expect([(one["rank"], one["device"], one["peak_bytes"] >> 20) for one in answer["ranks"]], [(2, 2, 26), (1, 1, 18), (0, 0, 10)], kind)
        refused = subprocess.run([options.emmctl, "run", "--device", "sim", "--ranks", "0 of 2", "--", name, "train"], env=environment, text=True, capture_output=True)
        if name != "mpirun_rsh":
            expect("without %s: the ranks are started without a launcher" % name in refused.stderr, True, refused.stderr)
    # A rank that fails ends the others, and the code is its.
    start = 'exec %s %s torchrun $SIZE "$0" "$@"' % (sys.executable, stub)
    done = run(4, "fails", start=start)
    expect(done.returncode, 7, "the code of the rank that fails: " + done.stderr)


def test_memory_of_nccl():
    """It is that of a table, by the card, the ranks of a communicator, the channels and what it was used for; else it is not known."""
    done = run(3, "pairs", extra=["--json", "pairs.json"])
    has(done, ["besides, NCCL takes memory of a real card outside of the allocator: on rank 1 768.00 MiB for 2 of its communicators, as measured "
               "(a pipeline of four H200s, PyTorch 2.11); what 1 more take is not known"])
    with open(folder.name + "/pairs.json") as file:
        answer = json.load(file)
    expect(sorted((one["rank"], one["nccl_bytes"], one["nccl_measured"], one["nccl_unknown"]) for one in answer["ranks"]),
           [(0, 384 << 20, 1, 1), (1, 768 << 20, 2, 1), (2, 384 << 20, 1, 1)], "NCCL's memory in JSON")
    unknown = "which is not counted here: nobody has measured it for such communicators"
    has(run(3, "pairs", environ={"NCCL_MAX_NCHANNELS": "4"}), [unknown])
    line, more = command(3, "pairs")
    line[line.index("sim:devices=3")] = "sim:devices=3,gpu=l4"
    has(subprocess.run(line, cwd=folder.name, env={**environment, **more}, text=True, capture_output=True, timeout=120), [unknown])
    clean()


def some_of(ranks, *words, device="sim:devices=2", extra=(), size=8, first=0):
    meet = tempfile.mkdtemp(prefix="meet", dir=folder.name)
    done = subprocess.run([options.emmctl, "run", "--device", device, "--ranks", ranks, *extra, "--", options.ranks, *words], cwd=folder.name,
                          env={**environment, "SIZE": str(size), "MEET": meet, "FIRST": str(first)}, text=True, capture_output=True, timeout=120)
    clean()
    return done


def test_named_ranks():
    """Some ranks of a program run, and the others are answered for."""
    done = some_of("0,3 of 8", "named", extra=["--json", "named.json"])
    unknown = "it is not known which ranks a communicator has, of which some do not run"
    rows = {0: ["sum 11", "all 1 1 1 4 1 1 1 1", "of 3 4", "of 5 4", "from 5 4", "from each 1 1 1 4 1 1 1 1", "exchanged 100 101 102 400 104 105 106 107", "piece 1100", "fewer 10", unknown, "of 8, 0 of 2 on node 0 of 4"],
            3: ["sum 29", "all 1 4 4 4 4 4 4 4", "of 3 4", "of 5 4", "from 5 4", "from each 1 4 4 4 4 4 4 4", "exchanged 103 401 402 403 404 405 406 407", "piece 2924", "fewer 25", unknown, "of 8, 1 of 2 on node 1 of 4",
                "pair 8"]}
    expect(lines(done), sorted("rank %d: %s" % (rank, row) for rank in rows for row in rows[rank]), "what ranks got: " + done.stderr)
    # A split cannot be answered for, which the answer says.
    has(done, ["so far it fits on each of 2 ranks that ran, of 8: rank 3, the tightest, takes at most 38.00 MiB",
               "ranks that do not run were answered for: 13 small collectives took a rank's own values for theirs, 6 receives or roots of theirs gave nothing",
               "CommSplit among ranks of which some do not run"], 3)
    with open(folder.name + "/named.json") as file:
        answer = json.load(file)
    expect(answer["absent"], {"of": 8, "not_run": 6, "copies": 13, "nothing": 6}, "the absent ranks in JSON")
    expect([(one["rank"], one["device"]) for one in answer["ranks"]], [(3, 1), (0, 0)], "the ranks in JSON")


def test_named_ranks_of_many():
    """Without the first of them; on one device of a number that each node has."""
    done = some_of("40,63 of 64", "takes", device="sim:capacity=600MiB", size=64, first=40)
    has(done, ["it fits on each of 2 ranks that ran, of 64: rank 63, the tightest, takes at most 514.00 MiB (538,968,064 bytes) of the 600.00 MiB of device 0",
               "2 small collectives took a rank's own values for theirs"])
    expect("depends on when the peaks are" in done.stderr, False, "two nodes share no device: " + done.stderr)
    has(some_of("63 of 64", "takes", device="sim:capacity=512MiB", size=64, first=63), ["it does not fit as it is: rank 63 was refused 1 request", "rank 63 ended with exit code 1"], 1)
    has(some_of("0..1 of 2", "values", size=2), ["rank 0: 0 wrong", "rank 1: 0 wrong", "it fits on each of 2 ranks that ran, of 2"])
    has(some_of("1,3 of 4", "fails", size=4), ["rank 3 ended with exit code 7"], 7)
    has(some_of("0 of 2", "nothing", extra=["--sweep", "capacity=1GiB"], size=2), ["exit code 2, and not for want of memory"], 3)


def torch_ranks(ranks, what, patience="60"):
    """Ranks of a torch.distributed that waits where PyTorch's does: some of them, or as many as a launcher starts."""
    place = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program")
    meet = tempfile.mkdtemp(prefix="meet", dir=folder.name)
    more = {"PYTHONPATH": place + "/torch_of_ranks", "PYTHONDONTWRITEBYTECODE": "1", "MEET": meet, "NCCL": options.nccl, "EMM_STANDIN_STUCK": patience,
            "EMM_PYTHON_PACKAGE": place + "/../../../tools/python/emmctl"}
    before = ["--ranks", ranks, "--"] if " of " in ranks else ["--", sys.executable, place + "/launcher.py", "torchrun", ranks]
    done = subprocess.run([options.emmctl, "run", "--device", "sim:devices=8", *before, sys.executable, place + "/torch_of_ranks/program.py", what],
                          cwd=folder.name, env={**environment, **more}, text=True, capture_output=True, timeout=120)
    clean()
    return done


def test_ranks_of_pytorch():
    """Nobody waits for a rank that does not run: not for it to come to the store, nor for what it would leave there."""
    begun = time.monotonic()
    done = torch_ranks("0,7,63 of 64", "ddp")
    # A rank brings its own for each of 61 that do not run.
    expect(lines(done), ["rank %d: [%d, 64]" % (rank, 70 + 61 * rank) for rank in (0, 63, 7)], "DDP: " + done.stderr)
    has(done, ["it fits on each of 3 ranks that ran, of 64"])
    done = torch_ranks("7,63 of 64", "ddp")
    expect(lines(done), ["rank %d: [%d, 64]" % (rank, 70 + 62 * rank) for rank in (63, 7)], "DDP without rank 0: " + done.stderr)
    done = torch_ranks("0,1,6,62 of 64", "both")
    expect(lines(done), ["rank 0: [1, 32]", "rank 1: [1, 32]", "rank 62: [124, 32]", "rank 6: [12, 32]"], "two sorts of groups: " + done.stderr)
    done = torch_ranks("0,6,7,63 of 64", "pipeline")
    expect(lines(done), ["rank 0: [0, 0]", "rank 63: [-63]", "rank 6: [-6, 700]", "rank 7: [6, -7]"], "a pipeline: " + done.stderr)
    has(done, ["receives or roots of theirs gave nothing"])
    expect(time.monotonic() - begun < 60, True, "that nothing waits")


def test_waits_that_cannot_be_answered():
    """They end with the call and the line, and do not hang."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "program", "torch_of_ranks", "program.py")) as file:
        source = file.read().splitlines()

    def place(words, number):
        return "program.py:%d" % [at for at, line in enumerate(source, 1) if words in line][number]
    done = torch_ranks("0,7 of 64", "awaits", "2")
    has(done, ["no rank went on for 2 s"], 3)
    for rank in (0, 7):
        row = r"%d +\d+ +PrefixStore.get, in \S+ +\S*%s" % (rank, place("word of rank 1", 0))
        expect(re.search(row, done.stderr) is not None, True, "%s in %s" % (row, done.stderr))
    done = torch_ranks("0,7 of 64", "crossed", "2")
    has(done, ["no rank went on for 2 s"], 3)
    for row in (r"0 +\d+ +PrefixStore.get, in \S+ +\S*" + place("word of rank 1", 1), r"7 +\d+ +all_reduce, in \S+ +\S*" + place("dist.all_reduce(torch.Tensor([1]))", 0)):
        expect(re.search(row, done.stderr) is not None, True, "%s in %s" % (row, done.stderr))
    done = torch_ranks("2", "crossed", "2")  # likewise of ranks that all run
    has(done, ["no rank went on for 2 s", place("word of rank 1", 1)], 3)
    expect(lines(torch_ranks("3", "ddp")), ["rank 0: [3, 3]", "rank 1: [3, 3]", "rank 2: [3, 3]"], "all ranks of a launcher")
    done = torch_ranks("0,7 of 64", "mutes", "1")
    has(done, ["no rank went on for 2 s", "a call that holds Python's lock"], 3)
    done = torch_ranks("0,7 of 64", "objects")
    has(done, ["--ranks: broadcast_object_list at", place("broadcast_object_list", 0) + " takes objects from rank 1, which does not run, and cannot be answered for: --ranks must name it, too\nemmctl: "], 3)


def test_late_rank():
    """Later than others wait in the call: they go on, and what they wait for comes."""
    done = run(2, "ends", "late", environ={"EMM_STANDIN_TOGETHER": "200"})
    has(done, ["rank 0: late 2 6 10 14", "rank 1: late 2 6 10 14"])


def test_interrupt():
    line, more = command(2, "ends", "late")
    process = subprocess.Popen(line, cwd=folder.name, env={**environment, **more}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    until = time.monotonic() + 60
    while not glob.glob(folder.name + "/emmctl-sim-*/nccl.*") and time.monotonic() < until:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    # sh's background processes do not hear it, and have their device until they end.
    while glob.glob(folder.name + "/emmctl-sim-*") and time.monotonic() < until:
        time.sleep(0.01)
    clean()


for name, test in sorted(globals().items()):
    if name.startswith("test_") and (not options.tests or name in options.tests):
        test()
sys.exit(1 if failures else 0)
