#!/usr/bin/env python3
"""Validates the traces of the repository against the schema. Exits 77, which is a skip, without the jsonschema module."""
import collections
import gzip
import json
import pathlib
import sys

try:
    from jsonschema import Draft202012Validator
except ImportError:
    print("the Python module jsonschema is not installed")
    sys.exit(77)

TRACES = pathlib.Path(__file__).resolve().parents[2] / "traces"
LINES = 2000  # of a long recording, enough to meet each of its operations
ALIKE = 20  # events of one operation with the same fields, of one recording


def validator(root, definition):
    return Draft202012Validator({"$ref": f"{root['$id']}#/$defs/{definition}", "$defs": {"root": root}})


def main():
    root = json.loads((TRACES / "emmtrace.schema.json").read_text())
    Draft202012Validator.check_schema(root)
    document, header, event = Draft202012Validator(root), validator(root, "header_line"), validator(root, "event")
    count = failed = 0
    for path in sorted(TRACES.rglob("*")):
        if not path.name.endswith((".json", ".jsonl", ".json.gz", ".jsonl.gz")) or path.name == "emmtrace.schema.json":
            continue
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as file:
            if ".jsonl" in path.name:
                wrong = [(1, e) for e in header.iter_errors(json.loads(next(file)))]
                met = collections.Counter()
                for number, line in zip(range(2, LINES), file):
                    row = json.loads(line)
                    alike = (row.get("op"), *((field, type(value)) for field, value in row.items()))
                    met[alike] += 1
                    if met[alike] <= ALIKE:
                        wrong += [(number, e) for e in event.iter_errors(row)]
            else:
                wrong = [(1, e) for e in document.iter_errors(json.load(file))]
        count += 1
        for line, error in wrong[:3]:
            print(f"{path.relative_to(TRACES)}:{line}: {error.json_path}: {error.message[:200]}")
        failed += bool(wrong)
    print(f"{count} traces, {failed} that the schema refuses")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
