#!/usr/bin/env python3
"""`emmctl run --device sim --sweep`: programs with every combination of cards and of their own options."""
import argparse
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
for name in ("emmctl", "client", "ranks"):
    parser.add_argument("--" + name, required=True)
parser.add_argument("tests", nargs="*")
options = parser.parse_args()
failures = 0
folder = tempfile.TemporaryDirectory(prefix="emm-what-if-")
environment = {name: value for name, value in os.environ.items() if not name.startswith(("EMM_", "LD_", "OMPI_", "PMI", "SLURM_"))}
environment.update(TMPDIR=folder.name, CLIENT=options.client)


def expect(found, wanted, what):
    global failures
    if found != wanted:
        failures += 1
        print("FAILED: %s\n  found  %r\n  wanted %r" % (what, found, wanted), flush=True)


def command(device, *words, program):
    return [options.emmctl, "run", "--device", device, *words, "--json", "answer.json", "--", *program]


def sweep(device, *words, program, code=0):
    """The answer in JSON, and what was printed."""
    answer = folder.name + "/answer.json"
    if os.path.exists(answer):
        os.unlink(answer)
    done = subprocess.run(command(device, *words, program=program), cwd=folder.name, env=environment, text=True, capture_output=True, timeout=120)
    expect(done.returncode, code, "the exit code, where it says: " + done.stdout + done.stderr)
    expect(glob.glob(folder.name + "/emmctl-*"), [], "what is left in the temporary folder")
    expect([line for line in done.stdout.splitlines() if len(line) > 80], [], "lines of more than 80 columns")
    if not os.path.exists(answer):
        return None, done
    with open(answer) as file:
        return json.load(file), done


def outcomes(answer):
    return {tuple(one["value"] for one in cell["settings"]): cell["outcome"] for cell in answer["cells"]}


def has(done, *words):
    text = " ".join((done.stdout + done.stderr).split())
    for one in words:
        expect(one in text, True, "%r in %s" % (one, text))


def test_cards():
    answer, done = sweep("sim", "--sweep", "gpu=h100,l4", "--sweep", "capacity=8MiB,64MiB,40MiB", program=(options.client, "take", "40"))
    expect(outcomes(answer), {(gpu, size): "too small" if size == "8MiB" else "fits" for gpu in ("h100", "l4") for size in ("8MiB", "64MiB", "40MiB")}, "cards")
    has(done, "the least on which it fits is gpu=h100, capacity=40MiB: at most 40.00 MiB of 40.00 MiB")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("  ")]
    expect(rows[1:3], [["h100", "8MiB", "too", "small", "-", "1"], ["h100", "64MiB", "fits", "40.00", "MiB", "0"]], "the rows of " + done.stdout)
    # The cards' own sizes, each program by itself.
    answer, done = sweep("sim", "--sweep", "gpu=t4,l4", "--sweep", "mib=14000,16000,90000", program=(options.client, "take", "{mib}"))
    has(done, "mib=14000: the least on which it fits is gpu=t4: at most 13.67 GiB of 14.56 GiB",
        "mib=16000: the least on which it fits is gpu=l4: at most 15.62 GiB of 22.03 GiB", "mib=90000: it fits on none of 2")
    expect("there, it may not fit" in done.stdout, False, "a warning where much is left")
    answer, done = sweep("sim", "--sweep", "gpu=t4,l4", program=(options.client, "take", "14600"))
    has(done, "the least on which it fits is gpu=t4: at most 14.26 GiB of 14.56 GiB", "there, it may not fit")
    answer, done = sweep("sim", "--sweep", "gpu=t4,l4", program=(options.client, "take", "90000"), code=1)
    has(done, "it fits on none of 2")


def test_ranks():
    start = 'all=; for r in 0 1 2; do RANK=$r WORLD_SIZE=3 "$0" takes & all="$all $!"; done; code=0; for p in $all; do wait $p || code=$?; done; exit $code'
    environment.update(SIZE="3", MEET=tempfile.mkdtemp(dir=folder.name))
    answer, done = sweep("sim:devices=3", "--sweep", "capacity=40MiB", program=("sh", "-c", start, options.ranks))
    expect([(cell["rank"], cell["peak_bytes"] >> 20) for cell in answer["cells"]], [(2, 26)], "the tightest rank")
    has(done, "the least on which all ranks fit is capacity=40MiB: at most 26.00 MiB of 40.00 MiB on rank 2")


def test_devices_of_ranks():
    """The number of devices is that of ranks; of equal cards the fewest."""
    start = 'all=; SIZE={devices}; export SIZE; MEET=$(mktemp -d); export MEET; r=0; while [ $r -lt $SIZE ]; do RANK=$r WORLD_SIZE=$SIZE "$0" takes 8 & all="$all $!"; ' \
            'r=$((r+1)); done; code=0; for p in $all; do wait $p || code=$?; done; rm -r "$MEET"; exit $code'
    answer, done = sweep("sim", "--sweep", "devices=4,2", "--sweep", "capacity=20MiB,40MiB", program=("sh", "-c", start, options.ranks))
    expect(outcomes(answer), {("4", "20MiB"): "too small", ("4", "40MiB"): "fits", ("2", "20MiB"): "fits", ("2", "40MiB"): "fits"}, "devices and cards")
    has(done, "the least on which all ranks fit is devices=2, capacity=20MiB: at most 18.00 MiB of 20.00 MiB on rank 1")
    answer, done = sweep("sim:capacity=40MiB", "--sweep", "devices=4,2", program=("sh", "-c", start, options.ranks))
    has(done, "the least on which all ranks fit is devices=2: at most 18.00 MiB of 40.00 MiB on rank 1")


def test_named_ranks():
    """--ranks with cards, and with the largest number of a range."""
    environment.update(SIZE="8", FIRST="1", MEET=tempfile.mkdtemp(dir=folder.name))
    start = 'MEET=$MEET/$MASTER_PORT; export MEET; mkdir -p "$MEET"; exec "$0" "$@"'  # each run has its own

    def of_ranks(*words, device="sim:devices=8", **how):
        return sweep(device, "--ranks", "1,6 of 8", *words, program=("sh", "-c", start, options.ranks, "takes", "{mib}"), **how)
    answer, done = of_ranks("--sweep", "capacity=32MiB,64MiB,128MiB", "--sweep", "mib=8")
    expect(outcomes(answer), {("32MiB", "8"): "too small", ("64MiB", "8"): "fits", ("128MiB", "8"): "fits"}, "cards")
    expect([cell["rank"] for cell in answer["cells"]], [6, 6, 6], "the tightest rank, and the one that is refused")
    has(done, "mib=8: the least on which all ranks fit is capacity=64MiB: at most 58.00 MiB of 64.00 MiB on rank 6")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("  ")]
    expect([row[-1] for row in rows], ["rank", "6", "6", "6"], "the rows of " + done.stdout)
    answer, done = of_ranks("--sweep", "capacity=64MiB,9MiB", "--sweep", "mib=1..20")
    expect([(one["largest_that_fits"], one["least_that_does_not"]) for one in answer["ranges"]], [(8, 9), (None, 1)], "the largest")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("  ")]
    expect([(row[1], row[-1]) for row in rows[1:]], [("8", "6"), ("none", "6")], "the rows of " + done.stdout)


def test_ports():
    """Runs beside one another have ports of their own, where the user gives none."""
    ports = folder.name + "/ports"
    program = ("sh", "-c", 'echo $PET_MASTER_PORT $MASTER_PORT >> %s; exec "$CLIENT" take {x}' % ports)
    sweep("sim", "--sweep", "x=1,2,3", program=program)
    with open(ports) as file:
        found = file.read().split()
    expect((len(found), len(set(found))), (6, 6), "ports")
    os.unlink(ports)
    environment["MASTER_PORT"] = "29500"
    sweep("sim", "--sweep", "x=1,2", program=program)
    del environment["MASTER_PORT"]
    with open(ports) as file:
        expect([line.split()[1] for line in file], ["29500", "29500"], "the user's port")


def test_largest():
    answer, done = sweep("sim", "--sweep", "gpu=l4,t4", "--sweep", "mib=1..30000", program=(options.client, "take", "{mib}"))
    # The free memory of each card is a whole number of pages of 2 MiB.
    found = {one["settings"][0]["value"]: (one["largest_that_fits"], one["least_that_does_not"]) for one in answer["ranges"]}
    free = {cell["settings"][0]["value"]: cell["capacity_bytes"] >> 20 for cell in answer["cells"]}
    expect(found, {gpu: (free[gpu] // 2 * 2, free[gpu] // 2 * 2 + 1) for gpu in free}, "the largest")
    expect(len(answer["cells"]) <= 20, True, "%d runs" % len(answer["cells"]))
    # The ends of the range.
    answer, done = sweep("sim:capacity=64MiB", "--sweep", "mib=3..20", program=(options.client, "take", "{mib}"))
    expect([(one["largest_that_fits"], one["least_that_does_not"]) for one in answer["ranges"]], [(20, None)], "all of the range")
    has(done, "mib=20 is the end of the range, and fits")
    answer, done = sweep("sim:capacity=2MiB", "--sweep", "mib=3..20", program=(options.client, "take", "{mib}"), code=1)
    expect([(one["largest_that_fits"], one["least_that_does_not"]) for one in answer["ranges"]], [(None, 3)], "nothing of the range")
    expect("none" in done.stdout, True, done.stdout)
    answer, done = sweep("sim:capacity=64MiB", "--sweep", "mib=0..0", program=(options.client, "take", "1{mib}"))
    expect([one["largest_that_fits"] for one in answer["ranges"]], [0], "a range of one")


def test_largest_of_what_is_no_line():
    """What grows with the square, by steps, or only above what fits."""
    for takes, wanted, most in (("$(({x} * {x}))", 63, 18), ("$(({x} / 100 * 1000 + 1))", 399, 20), ("$(({x} < 3000 ? 5 : {x} * 2))", 2999, 30)):
        answer, _ = sweep("sim:capacity=4000MiB", "--sweep", "x=1..100000", program=("sh", "-c", 'exec "$CLIENT" take %s' % takes))
        expect([(one["largest_that_fits"], one["least_that_does_not"]) for one in answer["ranges"]], [(wanted, wanted + 1)], takes)
        expect(len(answer["cells"]) <= most, True, "%s: %d runs" % (takes, len(answer["cells"])))


def test_not_monotone():
    program = ("sh", "-c", 'if [ {x} = 4 ]; then exec "$CLIENT" take 100; fi; exec "$CLIENT" take {x}')
    answer, done = sweep("sim:capacity=60MiB", "--sweep", "x=1..40", program=program)
    expect([(one["largest_that_fits"], one["monotone"]) for one in answer["ranges"]], [(40, False)], "a hole")
    has(done, "x=40 fits, and x=4 does not, which is less: the outcome is not monotone")


def test_largest_that_was_refused():
    """It fits because it asked again, which is said; no line goes through its peak."""
    program = ("sh", "-c", 'if [ {x} -le 700 ]; then exec "$CLIENT" retry 40; fi; exec "$CLIENT" take 90')
    answer, done = sweep("sim:capacity=60MiB", "--sweep", "x=1..1000", program=program)
    expect([(one["largest_that_fits"], one["least_that_does_not"]) for one in answer["ranges"]], [(700, 701)], "the largest")
    expect(len(answer["cells"]) <= 20, True, "%d runs" % len(answer["cells"]))
    has(done, "Where `refused` is not 0, the program was refused memory, gave idle memory back and went on. On a card, whose addresses leave other gaps, it may fail.")
    answer, done = sweep("sim:capacity=60MiB", "--sweep", "x=1..100", program=(options.client, "take", "{x}"))
    expect("refused memory" in done.stdout, False, "what is said of one that was refused nothing")


def test_other_failures():
    """They are no answer about memory."""
    program = ("sh", "-c", 'if [ {x} = 4 ]; then echo bad luck >&2; exit 4; fi; exec "$CLIENT" take {x}')
    answer, done = sweep("sim:capacity=60MiB", "--sweep", "x=1..40", program=program, code=3)
    expect([(one["largest_that_fits"], one["least_that_does_not"]) for one in answer["ranges"]], [(2, None)], "a range that ended early")
    has(done, "x=4 failed with exit code 4, and not for want of memory: bad luck")
    program = ("sh", "-c", 'case {x} in a) exit 5;; b) exec "$CLIENT" retry 40;; c) exec "$CLIENT" take 90;; d) exec true;; '
               'e) "$CLIENT" take 2; echo RuntimeError: CUDA out of memory. >&2; exit 1;; esac')
    answer, done = sweep("sim:capacity=60MiB", "--sweep", "x=a,b,c,d,e", program=program, code=3)
    expect(outcomes(answer), {("a",): "failed", ("b",): "tight", ("c",): "too small", ("d",): "not known", ("e",): "too small"}, "outcomes")
    has(done, "x=a failed with exit code 5, and not for want of memory", "x=d ended, and nothing is known of its memory: it used no device",
        "x=b: on sim:capacity=60MiB it was refused 1 request, and ended well all the same")
    answer, done = sweep("sim", "--sweep", "x=1", program=("./nosuch", "{x}"), code=3)
    has(done, "x=1 failed with exit code 2, and not for want of memory: ./nosuch: No such file or directory")


def test_options_reach_the_runs():
    answer, done = sweep("sim", "--capacity", "64MiB", "--sweep", "mib=40", "--fault", "mem_alloc:1", program=(options.client, "take", "{mib}"), code=3)
    expect(outcomes(answer), {("40",): "failed"}, "a fault, which is not of the device")
    answer, done = sweep("sim", "--manager", "pool", "--sweep", "mib=40", program=(options.client, "take", "{mib}"))
    expect(outcomes(answer), {("40",): "fits"}, "a manager")


def test_usage():
    for words, said in ((("--sweep", "x=1,2"), "expected {x} in the program's command line, or an option of the device"),
                        (("--sweep", "x"), "expected NAME=VALUE,... or NAME=LEAST..MOST"),
                        (("--sweep", "y=1,,2"), "expected a value before and after each comma"),
                        (("--sweep", "y=5..2"), "expected two whole numbers, the lesser first"),
                        (("--sweep", "y=1..2", "--sweep", "z=1..2"), "expected one range; y is another"),
                        (("--sweep", "y=1", "--sweep", "y=2"), "y is swept already"),
                        (("--sweep", "capacity=1..2"), "expected values of a device"),
                        (("--sweep", "gpu=t5"), "option 'gpu' is t5: expected one of"),
                        (("--sweep", "y=1", "-j", "0"), "--jobs 0: expected at least 1"),
                        (("--sweep", "y=1", "--explain-stubs"), "--explain-stubs: expected no --sweep"),
                        (("-j", "2"), "--jobs 2: expected --sweep")):
        _, done = sweep("sim", *words, program=("true", "{y}", "{z}"), code=2)
        has(done, said)


def test_interrupt():
    """The children end, and what is known is said."""
    program = ("sh", "-c", 'if [ {x} -gt 1 ]; then echo $$ >> pids; trap "" TERM; while :; do sleep 0.1; done; fi; exec "$CLIENT" take 3')
    process = subprocess.Popen(command("sim", "--sweep", "x=1,2,3,4", "-j", "2", program=program), cwd=folder.name, env=environment, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a script's background jobs ignore it
    until = time.monotonic() + 60
    pids = folder.name + "/pids"
    while time.monotonic() < until and not (os.path.exists(pids) and len(open(pids).read().split()) == 2):
        time.sleep(0.02)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    expect(process.returncode, 128 + signal.SIGINT, "the exit code")
    expect(time.monotonic() - begun < 20, True, "that it ends soon")
    rows = [line.split() for line in out.splitlines() if line.startswith("  ")][1:]
    expect(rows, [["1", "fits", "4.00", "MiB", "0"]] + [[x, "not", "run", "-", "-"] for x in "234"], "what is known: " + out)
    expect("interrupted: this is what is known so far" in out, True, out)
    with open(folder.name + "/answer.json") as file:
        expect(json.load(file)["interrupted"], True, "that the JSON says so")
    for number in open(pids).read().split():
        state = [line.split()[1] for line in open("/proc/%s/status" % number) if line.startswith("State:")] if os.path.exists("/proc/" + number) else []
        expect(state in ([], ["Z"]), True, "that process %s is gone: %s" % (number, state))
    expect(glob.glob(folder.name + "/emmctl-*"), [], "what is left in the temporary folder")


for name, test in sorted(globals().items()):
    if name.startswith("test_") and (not options.tests or name in options.tests):
        test()
sys.exit(1 if failures else 0)
