"""Words come when the course says: the glossary, the notebooks' prose, and the table of names agree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SOURCES = [ROOT / kind / "src" for kind in ("notebooks", "solutions")]
LAST = 10  # the chapters that are read here: 00 to 10

# Forms of a word beside its plural.
FORMS = {
    "lend": ("lends", "lent", "lending", "lender"),
    "refuse": ("refuses", "refused", "refusal", "refusals"),
    "preemption": ("preempt", "preempts", "preempted"),
    "chunk": ("chunked",),
    "queue": ("queued",),
    "batch": ("batches", "batched"),
}
# Words that everyday English needs, too: only these uses are the course's own.
SENSE = {
    "step": r"(?:prefill|decode|scheduler|engine)(?:'s)? steps?|steps? of the (?:engine|scheduler)",
    "written": r"(?:reserved|allocated)(?:,| and| or) written|written (?:slots?|positions?|prefix)",
}
# Everyday uses, allowed anywhere.
EVERYDAY = (
    r"web pages?",
    r"this page",
    r"spare keys?",
    r"(?:arrow|tab|enter|escape|shift|space) keys?",
    r"values? of (?:the|your|a) (?:cell|variable|function)s?",
    r"(?:browser|other|new) windows?",
    r"time limits?",
    r"refuses? to (?:read|write)",
    r"KV Cache Explained",  # the article's title
)
# Tables that quote words before their time, by how they begin: the article's five lines, the same in every chapter, and
# the titles and questions of all chapters, in 00.
QUOTED = ("| step | The incident, as the article tells it |", "| no. | chapter | the question |")


def glossary() -> dict[str, int]:
    """Each word and the chapter in which it comes first."""
    words: dict[str, int] = {}
    chapter = -1
    for line in (DOCS / "glossary.md").read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"## (\d\d) ", line):
            chapter = int(heading[1])
        elif entry := re.match(r"\* \*\*([^*]+)\*\*: \S", line):
            assert entry[1] not in words, f"{entry[1]} twice"
            words[entry[1]] = chapter
    return words


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The Markdown lines of a source, with their numbers; without code, links' targets, tags and quoted tables."""
    inside = fenced = quoted = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("# %%"):
            inside, fenced = "[markdown]" in line, False
        elif inside:
            text = line.removeprefix("#")
            quoted = text.strip().startswith(QUOTED) or (quoted and text.strip().startswith("|"))
            if text.strip().startswith("```"):
                fenced = not fenced
            elif not fenced and not quoted:
                yield number, re.sub(r"`[^`]*`|\]\([^)]*\)|<[^>]+>", " ", text)


def too_early(path: Path, words: dict[str, int]) -> list[str]:
    """Where a chapter's source uses a word of a later one, as `file:line: word (its chapter): the line`."""
    chapter = int(path.name[:2])
    found = []
    for number, line in prose(path):
        text = re.sub(rf"\b(?:{'|'.join(EVERYDAY)})\b", " ", line, flags=re.IGNORECASE)
        for word, first in words.items():
            forms = SENSE.get(word) or "|".join(re.escape(form) for form in (word, *FORMS.get(word, ())))
            if first > chapter and re.search(rf"\b(?:{forms})s?\b", text, flags=re.IGNORECASE):
                found.append(f"{path.relative_to(ROOT)}:{number}: {word} ({first:02}): {line.strip()}")
    return found


def chapters() -> list[Path]:
    found = [path for folder in SOURCES for path in sorted(folder.glob("[0-9][0-9]_*.py"))]
    return [path for path in found if int(path.name[:2]) <= LAST]


def test_every_word_has_its_chapter() -> None:
    words = glossary()
    assert len(words) >= 40
    assert all(1 <= chapter <= 10 for chapter in words.values())
    assert list(words.values()) == sorted(words.values())
    for word in ("token", "page", "owner", "writer", "page table", "slot mapping", "handoff", "generation", "canary"):
        assert word in words


def test_no_meaning_uses_a_later_word_unexplained() -> None:
    """The glossary is read from the top: a meaning may use its own chapter's words and earlier ones."""
    words = glossary()
    chapter = 0
    for line in (DOCS / "glossary.md").read_text(encoding="utf-8").split("## 01 ")[1].splitlines():
        if heading := re.match(r"## (\d\d) ", line):
            chapter = int(heading[1])
        text = re.sub(r"`[^`]*`", " ", line)
        for word, first in words.items():
            if chapter and first > chapter:
                assert not re.search(rf"\b{re.escape(word)}s?\b", text, re.IGNORECASE), f"{word}: {line}"


@pytest.mark.parametrize("path", chapters(), ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_no_word_before_its_chapter(path: Path) -> None:
    found = too_early(path, glossary())
    assert not found, "\n" + "\n".join(found)


def test_an_early_word_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_glossary.ROOT", tmp_path)
    source = tmp_path / "01_what.py"
    lines = [
        "# %% [markdown]",
        "# A web page, and `page_size`.",
        "# ```",
        "# a page",
        "# ```",
        "#",
        "# Pages are lent.",
    ]
    lines += [
        f"# {QUOTED[0]} state |",
        "# | 1 | 8 pages | yes |",
        "# %%",
        "# a page",
        "# %% [markdown]",
        "# The next step.",
    ]
    source.write_text("\n".join(lines), encoding="utf-8")
    assert [line.split(": ")[:2] for line in too_early(source, {"page": 3, "lend": 3, "token": 1, "step": 5})] == [
        ["01_what.py:7", "page (03)"],
        ["01_what.py:7", "lend (03)"],
    ]


def test_our_names_exist() -> None:
    """The second column of the table of names: each symbol is in the file that is named."""
    rows = [line.split("|") for line in (DOCS / "names.md").read_text(encoding="utf-8").splitlines() if "|" in line]
    assert all(len(row) == 6 for row in rows)
    ours = [pair for row in rows for pair in re.findall(r"`(\w+)` in `([\w/]+\.py)`", row[2])]
    assert len(ours) >= 30
    for symbol, file in ours:
        source = (ROOT / "minikv" / file).read_text(encoding="utf-8")
        assert re.search(rf"\b{symbol}\b", source), f"{symbol} is not in {file}"
