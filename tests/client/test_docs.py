"""The SQL in README.md, ARCHITECTURE.md and docs/*.md runs, and prints what stands below it.

Each block fenced as ```sql is run in order by a psql of its own (so settings, \\gset and open transactions end with the
block), all blocks of a file in one database that begins empty but for the extension; without it if a block of the file
says CREATE EXTENSION. A block must run without an error, and print what it likes. Only if a block fenced as ```text
follows it directly, it must print exactly that: psql's aligned output, or the ERROR, DETAIL and HINT lines of a refusal.
In the comparison empty lines do not count, nor how many blanks or dashes stand in a row; `…` stands for any text within
its line. What is not meant to run is fenced in another way.
"""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\S*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    line: int
    sql: str
    output: str | None


def blocks(text):
    fences = list(FENCE.finditer(text))
    found = []
    for at, fence in enumerate(fences):
        if fence[1] != "sql":
            continue
        after = fences[at + 1] if at + 1 < len(fences) else None
        follows = after and after[1] == "text" and not text[fence.end() : after.start()].strip()
        found.append(Block(text.count("\n", 0, fence.start()) + 2, fence[2], after[2] if follows else None))
    return found


def lines(output):
    squeezed = (re.sub(r"-+", "-", re.sub(r"\s+", " ", line)).strip() for line in output.splitlines())
    return [line for line in squeezed if line]


def same(printed, documented):
    printed, documented = lines(printed), lines(documented)
    patterns = [".+".join(map(re.escape, line.split("…"))) for line in documented]
    return len(printed) == len(patterns) and all(map(re.fullmatch, patterns, printed))


PATHS = [path for path in (ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(ROOT.glob("docs/*.md"))) if path.exists()]
TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in PATHS}
DOCUMENTS = {"README.md": []} | {name: found for name, text in TEXTS.items() if (found := blocks(text))}


@pytest.fixture
def psql(programs, make_database, template, uri):
    """Runs SQL in a database for one document; gives the exit status and what was printed."""

    def prepare(has_extension):
        database = make_database(template if has_extension else "template0")
        command = [f"{programs.bin}/psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", uri(database)]

        def run(sql):
            done = subprocess.run(command, input=sql, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            return done.returncode, done.stdout

        return run

    return prepare


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_sql_runs_and_prints_what_the_document_says(psql, document):
    found = DOCUMENTS[document]
    run = psql(has_extension=not any("CREATE EXTENSION" in block.sql for block in found))
    for block in found:
        status, printed = run(block.sql)
        place = f"{document}:{block.line}"
        if block.output is None:
            assert status == 0, f"{place} failed:\n{printed}"
        else:
            assert same(printed, block.output), f"{place} printed:\n{printed}\nand the document says:\n{block.output}"


def test_the_readme_shows_sql_with_its_output():
    assert any(block.output for block in DOCUMENTS["README.md"])


def test_every_function_is_documented(calls):
    text = "\n".join(TEXTS.values())
    functions = {row[0] for row in calls.sql("SELECT proname FROM pg_proc WHERE proname ~ '^(ckpt_|msg_id$)'")}
    assert {name for name in functions if not re.search(rf"\b{name}\b", text)} == set()
    # And none is named that does not exist.
    assert set(re.findall(r"\bckpt_[a-z_]+(?=\()", text)) <= functions


def test_the_comparison_tells_outputs_apart():
    printed = " seq |  id\n-----+------\n   1 | 4f9e\n(1 row)\n\n"
    assert same(printed, "seq | id\n----+---\n  1 | …\n(1 row)")
    assert not same(printed, "seq | id\n----+---\n  2 | …\n(1 row)")
    assert not same(printed, "seq | id\n----+---\n  1 | …")
    assert not same(printed, "")
    [first, second] = blocks("```sql\nSELECT 1;\n```\n\n```text\n1\n```\n```sql\nSELECT 2;\n```\nwords\n```text\n2\n```\n")
    assert (first.output, second.output) == ("1\n", None)
    assert (first.line, second.line) == (2, 9)
