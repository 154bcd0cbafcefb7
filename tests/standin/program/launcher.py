"""Starts ranks as a launcher does, with the variables that it gives each: launcher.py KIND COUNT PROGRAM..."""
import os
import signal
import subprocess
import sys
import time

KIND, COUNT, PROGRAM = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
RANKS = {  # rank, size, and those of the node
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "mpirun": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    "mpiexec.hydra": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "mpirun_rsh": ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
    "flux": ("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_NNODES"),
    "jsrun": ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"),
}
RANKS["accelerate"] = RANKS["deepspeed"] = RANKS["torchrun"]
RANKS["srun --gpus-per-task=1"] = RANKS["srun"]


def variables(rank):
    more = dict(zip(RANKS[KIND], map(str, (rank, COUNT, rank, COUNT))))
    if KIND in ("torchrun", "accelerate", "deepspeed"):
        more.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", GROUP_RANK="0")
    if KIND == "torchrun":
        more.update(TORCHELASTIC_RUN_ID="none", TORCHELASTIC_USE_AGENT_STORE="True")
    if KIND == "accelerate":
        more.update(ACCELERATE_USE_CUDA="True", ACCELERATE_MIXED_PRECISION="bf16")
    if KIND == "deepspeed":
        more.update(CUDA_VISIBLE_DEVICES=",".join(map(str, range(COUNT))), CROSS_RANK="0", LOCAL_SIZE=str(COUNT))
    if KIND == "srun --gpus-per-task=1":
        more.update(CUDA_VISIBLE_DEVICES=str(rank))  # and its local rank is no number of a device that it sees
    return {**os.environ, **more}


def begin(rank):
    words = PROGRAM + (["--local_rank=%d" % rank] if KIND == "deepspeed" else [])
    if not KIND.startswith("srun"):
        return subprocess.Popen(words, env=variables(rank), start_new_session=KIND == "deepspeed")
    # A daemon of Slurm's starts it, which is no descendant of srun's.
    code = "import os, subprocess, sys; os.setsid(); os.fork() and os._exit(0); code = subprocess.call(sys.argv[2:]); " \
           "open(sys.argv[1] + '.part', 'w').write(str(code)); os.rename(sys.argv[1] + '.part', sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, "%s/ended.%d" % (os.environ["MEET"], rank), *words], env=variables(rank), check=True)
    return None


def main():
    ranks = [begin(rank) for rank in range(COUNT)]
    codes = {}
    while len(codes) < COUNT:
        time.sleep(0.02)
        for rank, process in enumerate(ranks):
            ended = "%s/ended.%d" % (os.environ["MEET"], rank)
            if rank in codes:
                continue
            if process is not None and process.poll() is not None:
                codes[rank] = process.returncode
            elif process is None and os.path.exists(ended):
                with open(ended) as file:
                    codes[rank] = int(file.read())
        if any(codes.values()) and KIND in ("torchrun", "accelerate", "deepspeed", "mpirun"):  # they end the others
            for process in ranks:
                if process is not None and process.poll() is None:
                    process.send_signal(signal.SIGTERM)
    return next((code if code > 0 else 1 for code in codes.values() if code), 0)


sys.exit(main())
