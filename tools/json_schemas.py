#!/usr/bin/env python3
"""The JSON that emmctl writes is what docs/schemas says: tools/json_schemas.py [--update] EMMCTL

Runs the commands of tools/json_samples.txt, and holds what each writes with --json against the JSON Schema of its name and
version in docs/schemas. A member that the schema does not have, or that has no description, is an error; so is a page
docs/json.md that is not of these schemas. --update infers the schemas from the samples anew, keeps what they had, and takes
descriptions from tools/json_words.txt. Members of a schema are only added: a sample that lacks one makes it optional.

Exit code 77 where Python has no jsonschema.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCHEMAS = ROOT / "docs/schemas"
PAGE = ROOT / "docs/json.md"
# Objects whose keys are names: of operations, devices, statistics, commands.
MAPS = {"operations", "peak_live_by_device", "torch", "rmm", "other", "commands"}
# Numbers that a sample may show without a fraction.
FRACTIONS = re.compile(r"ns_per_event$|^(median|low|high|confidence|ratio|threshold)$|_over_|^over_")
BEGIN, END = "<!-- schemas: made by tools/json_schemas.py -->", "<!-- end of schemas -->"


def words():
    """Descriptions by key, or by "schema: key" where a schema's is its own; those of whole schemas by "schema"."""
    found = {}
    for line in (ROOT / "tools/json_words.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            names, _, text = line.partition(" | ")
            for name in names.split(", "):
                if name in found:
                    sys.exit(f"tools/json_words.txt describes {name} twice")
                found[name] = text
    return found


def name_of(value):
    return value["schema"].removeprefix("emmctl.")  # compare/2


def path_of(name):
    return SCHEMAS / f"emmctl.{name.replace('/', '-')}.schema.json"


def samples(emmctl):
    """(command line, what it wrote) of each sample."""
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        shutil.copytree(ROOT / "tests/golden/inputs", folder, dirs_exist_ok=True)
        os.symlink(ROOT / "traces", folder / "traces")
        (folder / "config.json").write_text('{"schema": "emmctl.config/1", "all": {"manager": "pool"}, "replay": {"verify": true}}')
        plugins = pathlib.Path(emmctl).resolve().parent.parent / "tests/plugins"
        environment = os.environ | {"EMM_CONFIG": "", "PLUGINS": str(plugins), "TZ": "UTC", "LC_ALL": "C.UTF-8"}
        for line in (ROOT / "tools/json_samples.txt").read_text().splitlines():
            if not line or line.startswith("#"):
                continue
            given = [os.path.expandvars(word.replace("$PLUGINS", str(plugins))) for word in shlex.split(line)]
            config = given.pop(0).removeprefix("EMM_CONFIG=") if given[0].startswith("EMM_CONFIG=") else ""
            out = folder / "sample.json"
            out.unlink(missing_ok=True)
            into = [] if "sample.json" in given else ["--json", "sample.json"]
            done = subprocess.run([emmctl, *given, *into], cwd=folder, env=environment | {"EMM_CONFIG": config}, capture_output=True,
                                  timeout=200)
            if not out.is_file():
                sys.exit(f"emmctl {line} writes no JSON, and exits with {done.returncode}: {done.stderr.decode()}")
            yield line, json.loads(out.read_text())


def kind(value):
    return {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}[type(value)]


def types(schema):
    given = schema.get("type", [])
    return [given] if isinstance(given, str) else list(given)


def learn(schema, value, key):
    """The schema, widened by one value. Order of members is that of the first sample."""
    all_types = types(schema)
    one = kind(value)
    if one == "integer" and (FRACTIONS.search(key) or "number" in all_types):
        one = "number"
    if one == "number" and "integer" in all_types:
        all_types.remove("integer")
    if one not in all_types:
        all_types.append(one)
    schema["type"] = all_types[0] if len(all_types) == 1 else sorted(all_types, key=lambda name: (name == "null", name))
    if isinstance(value, list):
        items = schema.setdefault("items", {})
        for element in value:
            learn(items, element, "")
    elif isinstance(value, dict) and key in MAPS:
        inner = schema.setdefault("additionalProperties", {})
        for element in value.values():
            learn(inner, element, "")
    elif isinstance(value, dict):
        first = "properties" not in schema
        members = schema.setdefault("properties", {})
        for name, element in value.items():
            learn(members.setdefault(name, {}), element, name)
        required = set(value) if first else set(schema.get("required", [])) & set(value)
        schema["required"] = [name for name in members if name in required]
        schema["additionalProperties"] = False


def describe(schema, told, name, key=None):
    """Puts a description to each member; returns the names of those that have none."""
    lacking = set()
    if key:
        text = told.get(f"{name.split('/')[0]}: {key}", told.get(key))
        if text is None:
            lacking.add(f"{name}: {key}")
        else:
            schema["description"] = text
    for member, inner in schema.get("properties", {}).items():
        lacking |= describe(inner, told, name, member)
    if isinstance(schema.get("items"), dict):
        lacking |= describe(schema["items"], told, name, "" if key is not None else None)
    if isinstance(schema.get("additionalProperties"), dict):
        lacking |= describe(schema["additionalProperties"], told, name, "")
    return lacking


def shown_type(schema):
    return " or ".join(types(schema)) or "any"


def page(schemas):
    rows = [BEGIN, ""]
    rows += ["| schema | what it is |", "| --- | --- |"]
    for name, schema in sorted(schemas.items()):
        file = path_of(name).name
        rows.append(f"| [`emmctl.{name}`](schemas/{file}) | {schema['description']} |")
    for name, schema in sorted(schemas.items()):
        rows += ["", f"## emmctl.{name}", "", f"{schema['description']} [Schema](schemas/{path_of(name).name})", "",
                 "| member | type | what it is |", "| --- | --- | --- |"]
        for member, inner in schema["properties"].items():
            optional = "" if member in schema["required"] else ", optional"
            rows.append(f"| `{member}` | {shown_type(inner)}{optional} | {inner['description'].replace('|', chr(92) + '|')} |")
    return "\n".join([*rows, "", END])


def main():
    arguments = [word for word in sys.argv[1:] if word != "--update"]
    update = len(arguments) + 1 < len(sys.argv)
    try:
        import jsonschema
    except ImportError:
        print("Python has no jsonschema (Debian's python3-jsonschema)")
        return 77
    schemas = {}
    for path in sorted(SCHEMAS.glob("*.schema.json")):
        schema = json.loads(path.read_text())
        schemas[schema["properties"]["schema"]["const"].removeprefix("emmctl.")] = schema
    wrong, seen, count = [], set(), 0
    if update:
        written = list(samples(str(pathlib.Path(arguments[0]).resolve())))
        schemas = {name: schema for name, schema in schemas.items() if name == "config/1"}  # what emmctl reads is written by hand
        for _, value in written:
            learn(schemas.setdefault(name_of(value), {}), value, "-")
        for compared in (schemas["compare/2"], schemas["compare-set/1"]["properties"]["comparisons"]["items"]):
            rows = compared["properties"]["managers"]["items"]["properties"]  # only some machines count instructions
            rows.setdefault("instructions_per_event", json.loads(json.dumps(rows["ns_per_event"])))
        told, lacking = words(), set()
        for name, schema in schemas.items():
            lacking |= describe(schema, told, name)
            schema["description"] = told.get(name)
            lacking |= set() if name in told else {name}
            schema["properties"]["schema"]["const"] = f"emmctl.{name}"
            schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"emmctl.{name}", **schema}
            path_of(name).write_text(json.dumps(schema, indent=1) + "\n")
        if lacking:
            for name in schemas:  # half made, they would pass for good
                path_of(name).unlink(missing_ok=True)
            print("tools/json_words.txt does not describe\n  " + "\n  ".join(sorted(lacking)))
            return 1
        before = PAGE.read_text()
        PAGE.write_text(before[:before.index(BEGIN)] + page(schemas) + before[before.index(END) + len(END):])
        print(f"{len(schemas)} schemas")
        return 0
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for line, value in samples(str(pathlib.Path(arguments[0]).resolve())):
        name = name_of(value)
        seen.add(name)
        count += 1
        if name not in schemas:
            wrong.append(f"emmctl {line}: emmctl.{name} has no schema in docs/schemas")
            continue
        for error in list(jsonschema.Draft202012Validator(schemas[name]).iter_errors(value))[:3]:
            wrong.append(f"emmctl {line}: emmctl.{name}: {'.'.join(map(str, error.path))}: {error.message[:300]}")
    told = words()
    for name, schema in schemas.items():
        wrong += [f"tools/json_words.txt does not describe {what}" for what in sorted(describe(schema, told, name))]
        if name not in seen and name != "config/1":
            wrong.append(f"emmctl.{name}: no sample shows it")
    for path in [*(ROOT / "src").rglob("*.[ch]pp")]:
        for name in re.findall(r"emmctl\.([a-z-]+/[0-9]+)", path.read_text()):
            if name not in schemas:
                wrong.append(f"{path.relative_to(ROOT)}: emmctl.{name} has no schema in docs/schemas")
    if page(schemas) not in PAGE.read_text():
        wrong.append("docs/json.md is not of these schemas")
    if wrong:
        print("\n".join(wrong) + "\ntools/json_schemas.py --update EMMCTL writes the schemas and docs/json.md anew")
    print(f"{count} outputs of {len(seen)} schemas, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
