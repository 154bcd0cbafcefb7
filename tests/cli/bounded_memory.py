#!/usr/bin/env python3
"""What a file may hold any amount of takes no memory: who reads 64 MiB of it has not two bytes for each.

    bounded_memory.py EMMCTL
"""
import resource
import subprocess
import sys
import tempfile

MIB = 1 << 20
LIMIT = 96 * MIB
SPACES = b" \n\t\r" * (MIB // 4)
HEADER = b'{"format":"emmctl-trace","version":"1.0"'
EVENTS = b'{"op":"memalloc","id":1,"size":512},{"op":"free",'
CSV = b"Thread,Time,Action,Pointer,Size,Stream\n"
ROWS = b"1,10:00:00.000001,allocate,0x100,16,0\n1,10:00:00.000002,free,0x100,16,0\n"

# What comes before 64 MiB of `many`, and after.
FILES = {
    "spaces before the first event": (HEADER + b',"events":[', SPACES, EVENTS + b'"id":1}]}'),
    "spaces inside an event": (HEADER + b',"events":[' + EVENTS, SPACES, b'"id":1}]}'),
    "spaces inside the header": (HEADER + b",", SPACES, b'"events":[' + EVENTS + b'"id":1}]}'),
    "spaces after the document": (HEADER + b',"events":[' + EVENTS + b'"id":1}]}', SPACES, b""),
    "blank lines of a CSV": (CSV, b"\n" * MIB, ROWS),
}
COMMANDS = (["check", "-"], ["convert", "-", "o.jsonl"], ["inspect", "-"], ["replay", "-", "--device", "sim"],
            ["fit", "-", "--manager", "default"])


def run(emmctl, words, file):
    before, many, after = file
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([emmctl, *words], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT)))
        try:
            process.stdin.write(before)
            for _ in range(64):
                process.stdin.write(many)
            process.stdin.write(after)
            process.stdin.close()
        except BrokenPipeError:
            pass
        said = process.stderr.read().decode()
        return process.wait(), said


def main():
    failed = 0
    for name, file in FILES.items():
        for words in COMMANDS:
            code, said = run(sys.argv[1], words, file)
            if code != 0:
                failed += 1
                print(f"{name}: emmctl {' '.join(words)} ended with {code}: {said}")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "generate", "log-uniform", f"{folder}/t.jsonl", "--events", "1000000"], check=True,
                       stderr=subprocess.DEVNULL)
        # Less than 96 bytes an event.
        with open(f"{folder}/t.jsonl", "rb") as trace:
            code, said = run(sys.argv[1], ["check", "-"], (trace.read(), b"", b""))
        if code != 0:
            failed += 1
            print(f"a million events: emmctl check ended with {code}: {said}")
    print(f"{len(FILES) * len(COMMANDS) + 1} runs, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
