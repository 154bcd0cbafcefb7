#!/usr/bin/env python3
"""docs/conformance.md: every clause, who is judged by it, what wrong managers it catches; and the table of verdicts in
managers/README.md. Needs a build with tests.

    tools/conformance.py --build FOLDER            writes them, and judges every wrong manager by every clause: a clause
                                                   that fails without being named by `may_fail_with` is an error
    tools/conformance.py --build FOLDER --check    fails where what is committed is not what is true; it judges no wrong
                                                   manager, which takes minutes: mutants_test judges each by its own clause
"""
import argparse
import ast
import collections
import difflib
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/conformance.md"
README = ROOT / "managers/README.md"
CLASSES = ROOT / "tests/python_class/wrong"
SURVIVORS = ROOT / "tests/mutants/survivors.txt"
MARKS = ("<!-- verdicts: made by tools/conformance.py -->\n", "<!-- end of verdicts -->\n")
LEAST_KILLED = 0.95
HEAD = """# The clauses, and the wrong managers that they catch

Made by `tools/conformance.py`, and compared with the truth by the tests. `emmctl conformance --manager M` judges a manager
by the first table; emmctl's own context, pointers, IPC and selection are tested in `tests/emm`. *must* is normative text. *should*
is what Numba's code does where the text is silent. *quirk* is what that code does and should not; it is judged by the
profile, and never on a foreign manager. *caught* lists deliberately wrong managers (`tests/mutants`) on which the clause
fails. On these no other clause fails, except those under *may fail with it* and those that judge all rules at once.

Some rules are watched while every clause is judged: each block is aligned, overlaps no live block and is memory throughout;
a request is refused only when memory is out; at the end of each clause the driver's ledger balances and no driver call was
refused; no operation crashes or hangs. A broken rule fails its own clause, once, whichever clause saw it. A clause is "not
applicable" to a manager that does not offer what the clause needs or whose own limit is too small for it. Where the clause
says so, this also holds for a manager behind `emm_plugin.h`, because the clause cannot ask it through that header.

What is wrong is said once for each cause. Failures that show the same answer, the same things left by the same operation or the
same words are one finding, and so are those of a clause and of clauses that are declared to fail with it (`may_fail_with` in its
entry). `--more` shows each clause that failed.

A verdict without failures says that these clauses found none at this seed; it does not say that there are none. How many
wrong managers they catch is measured behind `emm_plugin.h`, too: [wrong managers](notes/wrong_managers.md). In addition,
{strangers} wrong managers were written from the contract before anybody looked at the clauses
(`tests/mutants/strangers.cpp`). Each fails some clause.
"""


def run(*command):
    environment = dict(os.environ)
    environment.pop("EMM_MEMORY_MANAGER", None)
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def verdicts(emmctl, *options):
    done = run(emmctl, "conformance", *options, "--json", "-")
    if done.returncode not in (0, 1, 3):
        sys.exit(f"conformance {' '.join(options)}: {done.stderr}")
    return json.loads(done.stdout)["clauses"]


def clause_table(clauses, mutants):
    text = "| clause | level | asked of | rule | caught | may fail with it |\n| --- | --- | --- | --- | --- | --- |\n"
    for clause in clauses:
        caught = mutants[clause["id"]]
        others = sorted({other for _, _, failing in caught for other in failing if not other.startswith("random/")} - {clause["id"]})
        wrong = "; ".join(f"{words} ({over})" if over != "default" else words for words, over, _ in caught)
        text += f"| {clause['id']} | {clause['level']} | {clause['scope']} | {clause['rule']} | {wrong} | {', '.join(others)} |\n"
    return text


def class_table(rows):
    """The clauses of Python's classes, with the wrong classes of tests/python_class/wrong that each catches."""
    wrong = collections.defaultdict(list)
    for path in sorted(CLASSES.glob("*.py")):
        for line in ast.parse(path.read_text()).body:
            if isinstance(line, ast.Assign) and line.targets[0].id == "BREAKS":
                for name, clause in ast.literal_eval(line.value).items():
                    wrong[clause].append(name)
    text = f"\n## What only a class of Python's is asked: {len(rows)} clauses\n\n"
    text += ("`src/inside/libemm/python_questions.py` has the question of each. *caught* lists wrong classes of\n"
             "`tests/python_class/wrong` on which it fails.\n\n| clause | level | rule | caught |\n| --- | --- | --- | --- |\n")
    for row in rows:
        text += f"| {row['clause']} | {row['level']} | {row['rule']} | {', '.join(wrong.pop(row['clause'], []))} |\n"
    others = ", ".join(f"{name} ({clause})" for clause, names in wrong.items() for name in names)
    return text + f"\nClauses of every manager catch further wrong classes: {others}.\n"


def summary(judged):
    text = "| manager | passed | failed | inconclusive | not applicable |\n| --- | --- | --- | --- | --- |\n"
    for manager, clauses in judged.items():
        count = collections.Counter(clause["verdict"] for clause in clauses)
        text += (f"| `{manager}` | {count['pass']} | {count['fail']} | {count['inconclusive']} | "
                 f"{count['not applicable']} |\n")
    return text


def combinations_section(matrix):
    """The generated matrices, from the tables that drive the clauses."""
    done = run(matrix, "combinations")
    if done.returncode != 0:
        sys.exit(f"mutant_matrix combinations ended with {done.returncode}: {done.stderr.strip()}")
    cells = collections.defaultdict(list)
    for line in done.stdout.splitlines():
        clause, row, column = line.split("\t")
        cells[clause].append((row, column))
    text = "\n## Combinations that are asked\n\n"
    text += ("Each table is made from those that drive the clause in its heading: a dot is a pair that the clause asks of every\n"
             "manager, whatever the seed. What a manager does not offer is left out.\n")
    for clause, pairs in cells.items():
        columns = list(dict.fromkeys(column for _, column in pairs))
        rows = list(dict.fromkeys(row for row, _ in pairs))
        asked = set(pairs)
        text += f"\n`{clause}`: {len(asked)} pairs\n\n"
        text += "".join(f"{number}. {column}\n" for number, column in enumerate(columns, 1)) + "\n"
        text += "| | " + " | ".join(str(number) for number in range(1, len(columns) + 1)) + " |\n"
        text += "| --- |" + " --- |" * len(columns) + "\n"
        for row in rows:
            text += f"| {row} | " + " | ".join("•" if (row, column) in asked else "" for column in columns) + " |\n"
    return text


def operators_section(matrix):
    done = run(matrix, "operators")
    if done.returncode != 0:
        sys.exit(f"mutant_matrix operators ended with {done.returncode}: {done.stderr.strip()}")
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    why = dict(line.split("\t") for line in SURVIVORS.read_text().splitlines() if "\t" in line)
    survivors = [name for name, by in rows if not by]
    killed = len(rows) - len(survivors)
    unexplained = [name for name in survivors if name not in why]
    text = "\n## Mechanical mistakes\n\n"
    text += ("Every kind of driver call of `default` and `pool` is dropped, made twice, made late, given another size, address,\n"
             "stream or flags, its errors ignored and its successes denied: all calls of a kind, the first alone, the second alone.\n")
    text += f"{killed} of {len(rows)} are caught by some clause ({100 * killed / max(1, len(rows)):.1f} %).\n\n"
    text += "| survivor | why |\n| --- | --- |\n"
    for name in survivors:
        text += f"| {name} | {why.get(name, '**unexplained**')} |\n"
    good = bool(rows) and killed >= LEAST_KILLED * len(rows) and not unexplained
    if not good:
        print(f"operators: {killed} of {len(rows)} killed; unexplained: {unexplained}", file=sys.stderr)
    return text, good


def committed_mistakes():
    page = PAGE.read_text()
    return page[page.find("\n## Mechanical mistakes"):]


def settled(page):
    """The page without what other clauses fail with a clause, which only judging every wrong manager tells."""
    clauses, heading, rest = page.partition("\n## Combinations")
    begin = clauses.find("| clause | level |")
    rows = [line.rsplit(" | ", 1)[0] if begin >= 0 and line.count(" | ") >= 5 else line for line in clauses.splitlines()]
    return "\n".join(rows) + heading + rest


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    build = pathlib.Path(arguments.build)
    emmctl = str(build / "bin/emmctl")
    matrix = str(build / "tests/mutants/mutant_matrix")

    mutants = collections.defaultdict(list)
    judged_mutants = run(matrix, *(["list"] if arguments.check else []))
    if judged_mutants.returncode != 0:
        sys.exit(f"mutant_matrix ended with {judged_mutants.returncode}: {judged_mutants.stderr.strip()}")
    for line in judged_mutants.stdout.splitlines():
        clause, words, over, failing = line.split("\t")
        mutants[clause].append((words, over, failing.split()))
    managers = json.loads(run(emmctl, "list", "managers", "--json", "-").stdout)["rows"]
    judged = {spec: verdicts(emmctl, "--manager", spec) for row in managers for spec in row["judged_as"].split()}
    listed = json.loads(run(emmctl, "list", "clauses", "--json", "-").stdout)["rows"]
    unjudged = [row for row in listed if row["asked_of"] == "nobody"]
    mistakes, good = (committed_mistakes(), True) if arguments.check else operators_section(matrix)
    strangers = len(run(matrix, "strangers", "-").stdout.splitlines())

    page = HEAD.replace("{strangers}", str(strangers)) + f"\n## What a manager promises: {len(judged['default'])} clauses\n\n" + clause_table(judged["default"], mutants)
    page += class_table([row for row in listed if row["asked_of"] == "classes of Python's"])
    page += f"\n## What nobody is judged by: {len(unjudged)} clauses\n\n| clause | rule | why not |\n| --- | --- | --- |\n"
    for row in unjudged:
        page += f"| {row['clause']} | {row['rule']} | {row['level']} |\n"
    page += combinations_section(matrix) + mistakes
    table = MARKS[0] + summary(judged) + MARKS[1]

    failed = [f"{manager}: {clause['id']}" for manager, clauses in judged.items() for clause in clauses
              if clause["verdict"] in ("fail", "inconclusive")]
    for one in failed:
        print(f"{one} does not pass", file=sys.stderr)
    readme = README.read_text()
    begin, end = readme.find(MARKS[0]), readme.find(MARKS[1])
    if begin < 0 or end < begin:
        sys.exit(f"{README.relative_to(ROOT)} has no place for the table of verdicts")
    told = readme[:begin] + table + readme[end + len(MARKS[1]):]
    if arguments.check:
        stale = [path for path, text in ((PAGE, page), (README, told))
                 if not path.exists() or settled(path.read_text()) != settled(text)]
        for path in stale:
            shown = difflib.unified_diff(settled(path.read_text()).splitlines(),
                                         settled(page if path == PAGE else told).splitlines(), "committed", "true", "", "", 0, "")
            print("\n".join(shown), file=sys.stderr)
            print(f"{path.relative_to(ROOT)} is not what is true; run tools/conformance.py", file=sys.stderr)
        return 1 if stale or failed or not good else 0
    PAGE.write_text(page)
    README.write_text(told)
    print(f"{len(judged['default'])} clauses of managers, {sum(map(len, mutants.values()))} mutants")
    subprocess.run(["ninja", "-C", str(build), "may_fail_with"], check=True, stdout=sys.stderr)
    named = subprocess.run([str(build / "tests/mutants/may_fail_with"), "--gtest_brief=1"], stdout=sys.stderr).returncode == 0
    return 1 if failed or not good or not named else 0


if __name__ == "__main__":
    sys.exit(main())
