"""Are the Chinese pages in step with the English ones?

python tools/translations.py                  what is not, a line each; the exit status is 1 if there is any
python tools/translations.py diff PAGE [N]    what changed in the English since section N of PAGE was translated
python tools/translations.py stamp [PAGE [N]] note that sections, or the N-th alone, translate the English as it is now

Under each heading of a Chinese page is a comment with a hash of the English section that it was made from. Headings,
code, formulas, links, numbers and rows of tables must be the same in both; prose is looked at by its hash alone.
Sections whose code, links or numbers differ are not stamped.
"""

import argparse
import difflib
import hashlib
import posixpath
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOL = "python tools/translations.py"

_HEADING = re.compile(r"(#{1,6}) (.+)")
_STAMP = re.compile(r"<!-- en ([0-9a-f]{8}) -->\n?")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`[^`\n]+(?:\n[^`\n]+)?`")  # a span may go over the end of a line
_FORMULA = re.compile(r"\$\$.+?\$\$|\$[^$\n]+\$", re.DOTALL)
_LINK = re.compile(r"(?<=\]\()[^)\s]+(?=\))|(?<=src=\")[^\"]+(?=\")")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class Section:
    """A heading and what follows it, up to the next one."""

    level: int
    title: str
    text: str  # heading included, stamp not
    stamp: str | None  # of the English that this is a translation of

    @property
    def hash(self) -> str:
        """Of the words; how lines are broken does not matter."""
        return hashlib.sha256(" ".join(self.text.split()).encode()).hexdigest()[:8]


def english_of(page: str) -> str:
    """
    >>> english_of("docs/zh/concepts/index.md"), english_of("README.zh-CN.md")
    ('docs/concepts/index.md', 'README.md')
    """
    return page.replace("docs/zh/", "docs/").replace(".zh-CN.md", ".md")


def chinese_of(page: str) -> str:
    """
    >>> chinese_of("docs/concepts/index.md"), chinese_of("README.md")
    ('docs/zh/concepts/index.md', 'README.zh-CN.md')
    """
    return page.replace("docs/", "docs/zh/", 1) if page.startswith("docs/") else page.replace(".md", ".zh-CN.md")


def pages(root: Path = ROOT) -> list[str]:
    """The Chinese pages that there are, and those that should be: of the README and of the concepts."""
    concepts = [str(p.relative_to(root)) for p in (root / "docs" / "concepts").glob("*.md")]
    there = [str(p.relative_to(root)) for p in (root / "docs" / "zh").rglob("*.md")]
    return sorted({chinese_of(page) for page in ("README.md", *concepts)} | set(there))


def sections(text: str) -> list[Section]:
    """
    >>> [(s.level, s.title) for s in sections("# A\\nwords\\n```sh\\n# no heading\\n```\\n## B\\n")]
    [(1, 'A'), (2, 'B')]
    """
    found: list[list[str]] = [[]]
    fenced = False
    for line in text.splitlines(keepends=True):
        fenced ^= line.startswith("```")
        if not fenced and _HEADING.match(line):
            found.append([])
        found[-1].append(line)
    made = []
    for lines in found:
        words = "".join(lines)
        if not words.strip():
            continue
        heading, stamp = _HEADING.match(words), _STAMP.search(words)
        level, title = (len(heading[1]), heading[2].strip()) if heading else (0, "")
        made.append(Section(level, title, _STAMP.sub("", words), stamp[1] if stamp else None))
    return made


def facts(section: Section, page: str) -> dict[str, Counter[str]]:
    """What must be the same in both languages, by kind."""
    text = section.text
    code = Counter(_FENCE.findall(text))
    text = _FENCE.sub("", text)
    spans = Counter(" ".join(each.split()) for each in _SPAN.findall(text))
    text = _SPAN.sub("", text)
    formulas = Counter(" ".join(each.split()) for each in _FORMULA.findall(text))
    text = _FORMULA.sub("", text)
    links = Counter(_target(each, page) for each in _LINK.findall(text))
    text = _LINK.sub("", text)
    rows = sum(line.startswith("|") for line in text.splitlines())
    return {
        "blocks of code": code,
        "code": spans,
        "formulas": formulas,
        "links": links,
        "numbers": Counter(_NUMBER.findall(text)),
        "rows of tables": Counter({"row": rows}),
    }


def _target(link: str, page: str) -> str:
    """What a link means, as the English page; a link to the other language's page is one to the page."""
    if re.match(r"[a-z]+:", link):
        return link
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link.partition("#")[0]))
    return english_of(path)


def differences(chinese: Section, english: Section, page: str) -> str:
    """In words, what the translation lacks or has beyond the English; empty where nothing."""
    ours, theirs = facts(chinese, page), facts(english, english_of(page))
    said = []
    for kind, expected in theirs.items():
        missing, beyond = expected - ours[kind], ours[kind] - expected
        if missing or beyond:
            parts = [(_few(missing), "missing"), (_few(beyond), "not in the English")]
            said.append(f"{kind}: " + ", ".join(f"{words} {what}" for words, what in parts if words))
    return "; ".join(said)


def _few(counted: Counter[str]) -> str:
    first = [" ".join(each.split())[:60] for each in list(counted.elements())[:3]]
    return ", ".join(first) + (" …" if sum(counted.values()) > 3 else "")


def problems(page: str, root: Path = ROOT) -> list[str]:
    """What is not in step on a page, a line each."""
    english_page = english_of(page)
    for name in (page, english_page):
        if not (root / name).is_file():
            return [f"{name} is missing: {english_page} and {page} belong together"]
    ours, theirs = read(page, root), read(english_page, root)
    levels = [s.level for s in ours], [s.level for s in theirs]
    if levels[0] != levels[1]:
        known = {s.stamp for s in ours}
        new = next((s.title for s in theirs if s.hash not in known), theirs[-1].title)
        counts = f"{len(ours)} sections, {english_page} has {len(theirs)} or other levels of headings"
        return [f"{page}: {counts}; the first that was not translated is {new!r}"]
    found = []
    for number, (mine, yours) in enumerate(zip(ours, theirs, strict=True), 1):
        place = f"{page}: section {number}, {mine.title!r},"
        if mine.stamp is None:
            found.append(f"{place} has no stamp; {TOOL} stamp {page} when it is a translation of {yours.title!r}")
        elif mine.stamp != yours.hash:
            found.append(f"{place} is behind {english_page}, {yours.title!r}; see {TOOL} diff {page} {number}")
        elif said := differences(mine, yours, page):
            found.append(f"{place} differs from {english_page}: {said}")
    return found


def read(page: str, root: Path = ROOT) -> list[Section]:
    return sections((root / page).read_text(encoding="utf-8"))


def stamped(page: str, root: Path = ROOT, only: Sequence[int] = ()) -> list[str]:
    """Write the hash of the English under each heading; what cannot be a translation yet is told, and left alone."""
    ours, theirs = read(page, root), read(english_of(page), root)
    if [s.level for s in ours] != [s.level for s in theirs]:
        return problems(page, root)
    refused, text = [], ""
    for number, (mine, yours) in enumerate(zip(ours, theirs, strict=True), 1):
        stamp = yours.hash if not only or number in only else mine.stamp or ""
        if said := differences(mine, yours, page):
            refused.append(f"{page}: section {number}, {mine.title!r}, was not stamped: {said}")
            stamp = mine.stamp or ""
        heading, _, rest = mine.text.partition("\n")
        text += f"{heading}\n<!-- en {stamp} -->\n{rest}" if stamp else mine.text
    (root / page).write_text(text, encoding="utf-8")
    return refused


def changes(page: str, number: int, root: Path = ROOT) -> str:
    """The English section now against the one that section `number` was made from, which git's history has."""
    mine, name = read(page, root)[number - 1], english_of(page)
    english = read(name, root)
    yours = english[number - 1] if number <= len(english) else Section(0, "", "", None)
    old = _earlier(name, mine.stamp, root)
    if old is None:
        return f"the English of {mine.title!r}, hash {mine.stamp}, is in no commit; now it is\n\n{yours.text}"
    lines = difflib.unified_diff(old.text.splitlines(), yours.text.splitlines(), "translated", "now", lineterm="")
    return "\n".join(lines) or "nothing changed"


def _earlier(name: str, stamp: str | None, root: Path) -> Section | None:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout

    for commit in git("log", "--format=%H", "--", name).split():
        for section in sections(git("show", f"{commit}:{name}")):
            if section.hash == stamp:
                return section
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=TOOL, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", default="check", choices=["check", "diff", "stamp"])
    parser.add_argument("page", nargs="*", help="of the Chinese pages, and numbers of its sections")
    options = parser.parse_args(arguments)
    chosen = [each for each in options.page if not each.isdigit()] or pages()
    numbers = [int(each) for each in options.page if each.isdigit()]
    if unknown := [page for page in chosen if page not in pages()]:
        parser.error(f"{unknown[0]} is no Chinese page, expected one of {', '.join(pages())}")
    if len(chosen) > 1 and (numbers or options.what == "diff"):
        parser.error(f"{len(chosen)} pages, expected one, such as {TOOL} {options.what} {chosen[0]}")
    if numbers and not 1 <= min(numbers) <= max(numbers) <= len(read(chosen[0])):
        parser.error(f"section {max(numbers)} of {chosen[0]}, expected 1 to {len(read(chosen[0]))}")
    if options.what == "diff":
        pairs = zip(read(chosen[0]), read(english_of(chosen[0])), strict=False)
        behind = [number for number, (mine, yours) in enumerate(pairs, 1) if mine.stamp != yours.hash]
        print("\n".join(changes(chosen[0], number) for number in numbers or behind) or "nothing changed")
        return 0
    stamping = options.what == "stamp"
    said = [line for page in chosen for line in (stamped(page, only=numbers) if stamping else problems(page))]
    print("\n".join(said) or f"in step: {', '.join(chosen)}")
    return bool(said)


if __name__ == "__main__":
    sys.exit(main())
