#!/usr/bin/env python3
"""Ranks of one launch begin together, and one of them tells of all: launched.py EMMCTL INPUTS STANDIN

Processes with the variables of each launcher, and mpirun where it is installed. STANDIN is the folder of the libcuda.so.1
over the simulated device.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

EMMCTL, INPUTS = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
RANKS = 4
LAUNCHERS = {
    "torchrun": {"RANK": "{}", "LOCAL_RANK": "{}", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "a/b"},
    "Slurm": {"SLURM_PROCID": "{}", "SLURM_LOCALID": "{}", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"},
    "Open MPI": {"OMPI_COMM_WORLD_RANK": "{}", "OMPI_COMM_WORLD_LOCAL_RANK": "{}", "OMPI_COMM_WORLD_SIZE": "4"},
    "PMI": {"PMI_RANK": "{}", "PMI_SIZE": "4", "MPI_LOCALRANKID": "{}"},
}
REPLAY = [EMMCTL, "replay", "rank{rank}.jsonl", "--device", "sim", "--manager", "pool"]
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "OMPI", "PMI", "RANK", "LOCAL_RANK"))}


def expect(what, condition):
    if not condition:
        sys.exit(f"launched.py: {what}")


def table_of(out):
    lines = out.splitlines()
    expect(f"not one table in {out!r}", sum("ranks served" in line for line in lines) == 1)
    return [line.split() for line in lines[2:] if line.strip()]


with tempfile.TemporaryDirectory() as made:
    folder = pathlib.Path(made)
    for rank in range(RANKS):
        shutil.copy(INPUTS / f"fleet/rank{rank % 3}.jsonl", folder / f"rank{rank}.jsonl")
    for launcher, variables in LAUNCHERS.items():
        running = []
        for rank in reversed(range(RANKS)):
            environment = PLAIN | {name: value.format(rank) for name, value in variables.items()}
            running.append(subprocess.Popen([*REPLAY, "--json", "answer{rank}.json"], cwd=folder, env=environment,
                                            stdout=subprocess.PIPE, stderr=subprocess.PIPE))
            if rank == 1:
                time.sleep(0.3)
                expect(f"{launcher}: a rank did not wait", all(each.poll() is None for each in running))
        said = [each.communicate() for each in running]
        expect(f"{launcher}: {said}", all(each.returncode == 0 for each in running))
        rows = table_of("".join(out.decode() for out, _ in said))
        expect(f"{launcher}: {rows}", [(row[0], row[1], row[-1]) for row in rows] ==
               [(str(rank), f"rank{rank}.jsonl", "served") for rank in range(RANKS)])
        for rank in range(RANKS):
            answer = folder / f"answer{rank}.json"
            expect(f"{launcher}: {answer}", f'"trace": "rank{rank}.jsonl"' in answer.read_text())
            answer.unlink()
        expect(f"{launcher}: it leaves {sorted(os.listdir(folder))}", not (folder / ".emmctl-ranks").exists())

    # cuda:local is the launcher's rank on the machine.
    def on_devices(count, rank):
        done = subprocess.run([EMMCTL, "replay", "rank0.jsonl", "--device", "cuda:local", "--ranks", "none", "--json", "-"],
                              cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=PLAIN | {n: v.format(rank) for n, v in LAUNCHERS["Slurm"].items()} |
                              {"LD_LIBRARY_PATH": str(pathlib.Path(sys.argv[3]).resolve()), "EMM_STANDIN_DEVICE": f"sim:devices={count}"})
        return json.loads(done.stdout)["device"] if done.returncode == 0 else done.stderr.decode()

    for rank in range(RANKS):
        expect(f"rank {rank} of 4: {on_devices(4, rank)}", on_devices(4, rank) == f"cuda:{rank}")
    expect(f"one device: {on_devices(1, 3)}", on_devices(1, 3) == "cuda:0")
    expect(f"too few devices: {on_devices(2, 3)}", "no device 3: there are 2" in on_devices(2, 3))

    # A rank that has no answer is told of too, and the table stays where a folder is named.
    (folder / "rank2.jsonl").write_text("{}\n")
    running = [subprocess.Popen([*REPLAY, "--ranks", "met"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=PLAIN | {n: v.format(rank) for n, v in LAUNCHERS["torchrun"].items()}) for rank in range(RANKS)]
    said = [each.communicate()[0].decode() for each in running]
    rows = table_of("".join(said))
    expect(f"codes {[each.returncode for each in running]}", [each.returncode for each in running] == [0, 0, 4, 0])
    expect(f"{rows}", rows[2][0] == "2" and "served" not in rows[2])
    again = subprocess.run([*REPLAY, "--ranks", "met"], cwd=folder, stderr=subprocess.PIPE,
                           env=PLAIN | {n: v.format(0) for n, v in LAUNCHERS["torchrun"].items()})
    expect(f"{again.stderr}", again.returncode == 2 and b"earlier launch" in again.stderr)

    mpirun = shutil.which("mpirun")
    if mpirun:
        shutil.copy(INPUTS / "fleet/rank2.jsonl", folder / "rank2.jsonl")
        done = subprocess.run([mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "4", *REPLAY], cwd=folder, env=PLAIN,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        expect(f"mpirun: {done.returncode} {done.stderr}", done.returncode == 0 and len(table_of(done.stdout.decode())) == RANKS)
    print(f"{len(LAUNCHERS)} launchers{' and mpirun' if mpirun else ''}: one table each")
