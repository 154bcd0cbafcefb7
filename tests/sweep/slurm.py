#!/usr/bin/env python3
"""A sweep on a real Slurm, in a folder of its own on the loopback: slurm.py EMMCTL INPUTS STANDIN

STANDIN is the folder of the libcuda.so.1 over the simulated device. With `--settings TRACES OUT` more it does something else:
it sweeps the 45 recordings of TRACES/torch-settings over 12 managers into OUT, is killed twice, goes on, and makes OUT.html.

Three nodes, as processes. A thousand cells, a task that is killed, an array that is cancelled, a matrix that is resumed
larger: each cell is there exactly once; cells that run in what stands for a container; ranks that srun starts, each with
the device that is its own on its node. Exit code 77 where slurmctld, slurmd or munged is not installed, or this is not root.
"""
import collections
import csv
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

EMMCTL, INPUTS, STANDIN = (pathlib.Path(each).resolve() for each in sys.argv[1:4])
PROGRAMS = ["slurmctld", "slurmd", "munged", "sbatch", "squeue", "scancel", "sinfo", "srun", "unshare"]
NODES = 3
CONFIGURATION = """
ClusterName=mini
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={d}/munge/sock,cred_expire=5
CredType=cred/munge
StateSaveLocation={d}/state
SlurmdSpoolDir={d}/spool/%n
SlurmctldPidFile={d}/run/ctld.pid
SlurmdPidFile={d}/run/slurmd.%n.pid
SlurmctldLogFile={d}/log/ctld.log
SlurmdLogFile={d}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=1,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={d}/log/jobcomp.txt
MpiDefault=none
ReturnToService=2
SlurmdTimeout=2
MessageTimeout=2
KillWait=2
MailProg=/bin/true
SlurmdParameters=config_overrides
CommunicationParameters=NoAddrCache,NoCtldInAddrAny,NoInAddrAny
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port={first}-{last} CPUs=2 RealMemory=1000
PartitionName=main Nodes=ALL Default=YES
"""


def expect(what, condition):
    if not condition:
        raise SystemExit(f"slurm.py: {what}")


class Slurm:
    """Daemons that end with the block."""

    def __init__(self, folder):
        self.folder, self.running = folder, {}
        for part in ("munge", "state", "spool", "run", "log"):
            (folder / part).mkdir(mode=0o755)
        os.chmod(folder, 0o755)
        ports = self.free_ports(NODES + 1)
        self.configuration = folder / "slurm.conf"
        self.configuration.write_text(CONFIGURATION.format(
            host=socket.gethostname().split(".")[0], d=folder, port=ports[0], first=ports[1], last=ports[-1], nodes=NODES))
        os.environ["SLURM_CONF"] = str(self.configuration)

    @staticmethod
    def free_ports(count):
        """That many ports in a row that nobody listens on."""
        for first in range(23000 + os.getpid() % 997 * 8, 60000, count):
            taken = []
            try:
                for port in range(first, first + count):
                    taken.append(socket.socket())
                    taken[-1].bind(("127.0.0.1", port))
                return list(range(first, first + count))
            except OSError:
                continue
            finally:
                for each in taken:
                    each.close()
        raise SystemExit("slurm.py: no free ports")

    def start(self, name, *command):
        out = open(self.folder / "log" / f"{name}.out", "wb")
        self.running[name] = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    def start_node(self, node):
        self.start(node, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "slurmd", "-D", "-N", node, "-f",
                   self.configuration)

    def kill(self, name):
        each = self.running.pop(name)
        each.send_signal(signal.SIGKILL)  # unshare ignores SIGTERM
        each.wait()

    def __enter__(self):
        munge = self.folder / "munge"
        key = munge / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        self.start("munged", "munged", "-F", f"--key-file={key}", f"--socket={munge}/sock", f"--pid-file={munge}/pid",
                   f"--seed-file={munge}/seed", f"--log-file={munge}/log", "--force")
        self.wait_for("munged", lambda: (munge / "sock").exists())
        self.start("slurmctld", "slurmctld", "-D", "-c", "-i", "-f", self.configuration)
        for node in range(1, NODES + 1):
            self.start_node(f"n{node}")
        self.wait_for("nodes", lambda: self.idle() == NODES)
        return self

    def __exit__(self, *_):
        for name in reversed(list(self.running)):
            self.kill(name)

    def idle(self):
        found = subprocess.run(["sinfo", "-h", "-N", "-t", "idle", "-o", "%N"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return len(found.stdout.split())

    def wait_for(self, what, ready, seconds=60):
        for _ in range(seconds * 10):
            if ready():
                return
            time.sleep(0.1)
        logs = "\n".join(f"{p.name}: {p.read_text(errors='replace')[-600:]}" for p in sorted((self.folder / "log").iterdir()))
        raise SystemExit(f"slurm.py: waited for {what} in vain\n{logs}")


def sweep(folder, *more, capacities):
    command = [str(EMMCTL), "sweep", "-o", str(folder), "--engine", "slurm"]
    for trace in ("training.jsonl", "slabs.jsonl", "served.jsonl", "state.jsonl", "ranks.jsonl"):
        command += ["--trace", str(INPUTS / trace)]
    for manager in ("pool", "cudart", "default", "async"):
        command += ["--manager", manager]
    for capacity in capacities:
        command += ["--capacity", f"{capacity}MiB"]
    return command + list(more)


def tasks():
    found = subprocess.run(["squeue", "-h", "-r", "-o", "%t"], stdout=subprocess.PIPE, check=True)
    return collections.Counter(found.stdout.decode().split())


def done_in(folder):
    return len([each for each in (folder / "cells").iterdir() if each.name.endswith(".json") and not each.name.startswith(".")])


def rows_of(folder):
    csv_text = subprocess.run([EMMCTL, "sweep", "-o", folder, "--status", "--csv", "-"], stdout=subprocess.PIPE).stdout.decode()
    return list(csv.DictReader(io.StringIO(csv_text)))


def in_a_container(made):
    """--container stands before emmctl, on the nodes too."""
    programs, out = made / "programs", made / "contained"
    programs.mkdir()
    (programs / "apptainer").write_text(f'#!/bin/sh\n[ "$1 $2" = "exec image.sif" ] || exit 9\nshift 2\n'
                                        f'echo "$SLURM_JOB_ID" >> {made}/contained.txt\nexec "$@"\n')
    (programs / "apptainer").chmod(0o755)
    done = subprocess.run(sweep(out, "--wait", "--container", "apptainer exec image.sif", capacities=[64]), stdout=subprocess.PIPE,
                          env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"})
    expect(f"in a container: {done.stdout}", done.returncode == 0 and b"20 cells: 20 done" in done.stdout)
    tasks_run = (made / "contained.txt").read_text().split()
    expect(f"{tasks_run}: a task does more than a cell", len(tasks_run) == 1)


def ranks(made):
    """Two ranks on each of two nodes: rank and device from srun, one table of all."""
    for rank in range(4):
        shutil.copy(INPUTS / f"fleet/rank{rank % 3}.jsonl", made / f"rank{rank}.jsonl")
    environment = os.environ | {"LD_LIBRARY_PATH": str(STANDIN), "EMM_STANDIN_DEVICE": "sim:devices=2"}
    command = ["srun", "--nodes=2", "--ntasks-per-node=2", EMMCTL, "replay", "rank{rank}.jsonl", "--device", "cuda:local",
               "--manager", "pool", "--json", "answer{rank}.json"]
    done = subprocess.run(command, cwd=made, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    said = done.stdout.decode()
    expect(f"srun: {done.returncode} {said} {done.stderr}", done.returncode == 0 and said.count("4 of 4 ranks served") == 1)
    devices = [json.loads((made / f"answer{rank}.json").read_text())["device"] for rank in range(4)]
    expect(f"{devices}", devices == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"])
    expect("what the ranks met in is left", not (made / ".emmctl-ranks").exists())


MANAGERS = ["pool", "pool:backing=cumem", "async", "default", "cudart", "pytorch", "pytorch:expandable_segments=True",
            "pytorch:max_split_size_mb=64", "pytorch:garbage_collection_threshold=0.8", "cupy", "rmm-pool", "bfc"]


def settings(traces, out):
    """Killed once with all that it has in the cluster, and once by the death of a node and of a task; then it goes on."""
    command = [str(EMMCTL), "sweep", "-o", str(out), "--engine", "slurm", "--chunk", "15", "--trace", f"{traces}/torch-settings"]
    for manager in MANAGERS:
        command += ["--manager", manager]
    began = time.monotonic()
    subprocess.run(command)
    yield "cells", lambda: done_in(out) > 100
    subprocess.run([EMMCTL, "sweep", "-o", out, "--cancel"], check=True)
    yield "the cancelled array", lambda: not tasks()
    first = done_in(out)
    subprocess.run(command)
    yield "more cells", lambda: done_in(out) > first + 100 and tasks()["R"] > 0
    second = done_in(out)
    running = subprocess.run(["squeue", "-h", "-r", "-t", "R", "-o", "%A"], stdout=subprocess.PIPE, check=True).stdout.split()
    subprocess.run(["scancel", "--signal=KILL", "--full", running[0]], check=True)
    yield "kill", "n2"
    done = subprocess.run([*command, "--wait"], stdout=subprocess.PIPE)
    rows = rows_of(out)
    states = collections.Counter(row["state"] for row in rows)
    page = out.with_suffix(".html")
    subprocess.run([EMMCTL, "report", out, "-o", page], check=True)
    print(f"killed at {first} and at {second} cells; {dict(states)} of {len(rows)}, {len({row['cell'] for row in rows})} names, "
          f"exit {done.returncode}, {time.monotonic() - began:.0f} s; {page}: {page.stat().st_size:,} bytes")
    expect("not 540 cells, each once", len(rows) == 540 and len({row["cell"] for row in rows}) == 540)


def main():
    if os.geteuid() != 0 or not all(shutil.which(each) for each in PROGRAMS):
        print(f"skipped: wants root, and {', '.join(PROGRAMS)}")
        return 77
    with tempfile.TemporaryDirectory() as made, Slurm(pathlib.Path(made)) as slurm:
        if sys.argv[4:5] == ["--settings"]:
            for what, ready in settings(pathlib.Path(sys.argv[5]).resolve(), pathlib.Path(sys.argv[6]).resolve()):
                if what == "kill":
                    slurm.kill(ready)
                    slurm.start_node(ready)
                else:
                    slurm.wait_for(what, ready, 600)
            return 0
        began = time.monotonic()
        folder = pathlib.Path(made) / "out"
        capacities = range(40, 90)  # 5 traces x 4 managers x 50: a thousand cells
        told = ["--chunk", "50", "--sbatch=--cpus-per-task=2", "--sbatch=--time=10", "--jobs", "2"]

        # An array that is cancelled: what is done stays, and nothing is left in the queue.
        done = subprocess.run(sweep(folder, *told, capacities=capacities), stderr=subprocess.PIPE)
        expect(f"exit {done.returncode}, not 3: {done.stderr}", done.returncode == 3)
        slurm.wait_for("cells", lambda: done_in(folder) > 20)
        again = subprocess.run(sweep(folder, *told, capacities=capacities), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        expect("what is in the queue is submitted twice", b"submitted" not in again.stderr)
        subprocess.run([EMMCTL, "sweep", "-o", folder, "--cancel"], check=True)
        slurm.wait_for("the cancelled array", lambda: not tasks())
        kept = {each: each.stat().st_mtime_ns for each in (folder / "cells").glob("[!.]*.json")}
        expect(f"{len(kept)} cells before the end", 20 < len(kept) < 1000)

        # Resumed; a task is killed, and a node dies.
        subprocess.run(sweep(folder, *told, capacities=capacities), stderr=subprocess.DEVNULL)
        slurm.wait_for("running tasks", lambda: tasks()["R"] > 0)
        running = subprocess.run(["squeue", "-h", "-r", "-t", "R", "-o", "%A"], stdout=subprocess.PIPE, check=True).stdout.split()
        subprocess.run(["scancel", "--signal=KILL", "--full", running[0]], check=True)
        slurm.kill("n2")
        time.sleep(1)
        slurm.start_node("n2")
        subprocess.run([EMMCTL, "sweep", "-o", folder, "--engine", "slurm", "--wait", *told], check=True)
        rows = rows_of(folder)
        expect("not a thousand cells", len(rows) == 1000 and len({row["cell"] for row in rows}) == 1000)
        expect("a cell is not done", all(row["state"] == "done" for row in rows))
        expect("what was done was done again", all(each.stat().st_mtime_ns == at for each, at in kept.items()))
        for each in (folder / "cells").glob("*.json"):
            expect(f"{each} is no replay", json.loads(each.read_text())["schema"] == "emmctl.replay/1")

        # A larger matrix, with cells that fail: these are named, the rest is done.
        done = subprocess.run(sweep(folder, *told, "--wait", "--manager", "no-such-manager", capacities=range(40, 91)),
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        expect(f"exit {done.returncode}, not 1", done.returncode == 1)
        states = collections.Counter(row["state"] for row in rows_of(folder))
        expect(f"{states}", states == {"done": 1020, "failed": 255})
        expect("a task was in the queue at the end", not tasks())
        in_a_container(pathlib.Path(made))
        ranks(pathlib.Path(made))
        print(f"1,000 cells cancelled, killed and resumed, then 1,275, in {time.monotonic() - began:.0f} s: each once; "
              "20 in a container; four ranks of srun")
    return 0


if __name__ == "__main__":
    sys.exit(main())
