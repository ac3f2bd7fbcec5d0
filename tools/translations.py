"""Are the Chinese pages in step with the English ones?

python tools/translations.py                  what is not, a line each; the exit status is 1 if there is any
python tools/translations.py diff PAGE [N]    what changed, in both languages, since section N of PAGE was stamped
python tools/translations.py stamp [PAGE [N]] note that sections, or the N-th alone, translate the English as it is now

Under each heading of a Chinese page is a comment with a hash of the English section that it was made from, and one of
the Chinese section itself: whoever changes either looks at both and stamps again. Headings, code, formulas, links,
numbers and rows of tables must be the same in both and in the same order, rows cell by cell; words are looked at by
their hash alone. Sections in which something differs are not stamped.
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
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOL = "python tools/translations.py"

_HEADING = re.compile(r"(#{1,6}) (.+)")
_STAMP = re.compile(r"<!-- en ([0-9a-f]{8})(?: zh ([0-9a-f]{8}))? -->\n?")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`[^`\n]+(?:\n[^`\n]+)?`")  # a span may go over the end of a line
_FORMULA = re.compile(r"\$\$.+?\$\$|\$[^$\n]+\$", re.DOTALL)
_LINK = re.compile(r"(?<=\]\()[^)\s]+(?=\))|(?<=src=\")[^\"]+(?=\")")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORD = re.compile(r"[A-Za-z0-9.,_-]+|.", re.DOTALL)  # a Chinese character is a word


@dataclass(frozen=True)
class Section:
    """A heading and what follows it, up to the next one."""

    level: int
    title: str
    text: str  # heading included, stamp not
    stamp: str | None = None  # hash of the English that this is a translation of
    own: str | None = None  # hash of this when it was stamped

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
        made.append(Section(level, title, _STAMP.sub("", words), *(stamp.groups() if stamp else ())))
    return made


def facts(section: Section, page: str) -> dict[str, list[str]]:
    """What must be the same in both languages, by kind, in its order."""
    text = _FENCE.sub("", section.text)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    text = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    return {
        "blocks of code": _FENCE.findall(section.text),
        **_facts_of_words(text, page),
        "rows of tables": [_row(line, page) for line in rows],
    }


def _facts_of_words(text: str, page: str) -> dict[str, list[str]]:
    """By kind, each taken out before the next is looked for: a number in a formula is no number."""
    found = {}
    for kind, pattern in (("code", _SPAN), ("formulas", _FORMULA), ("links", _LINK), ("numbers", _NUMBER)):
        each = [" ".join(one.split()) for one in pattern.findall(text)]
        found[kind] = [_target(one, page) for one in each] if kind == "links" else each
        text = pattern.sub("", text)
    return found


def _row(line: str, page: str) -> str:
    """A row of a table without its words.

    >>> _row("| `moco` | 65,536 keys | found |", "README.md")
    '| `moco` | 65,536 | … |'
    """
    cells = (_facts_of_words(cell, page).values() for cell in line.strip().strip("|").split("|"))
    return f"| {' | '.join(' '.join(chain.from_iterable(cell)) or '…' for cell in cells)} |"


def _target(link: str, page: str) -> str:
    """What a link means, as the English page; a link to the other language's page is one to the page."""
    if re.match(r"[a-z]+:", link):
        return link
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link.partition("#")[0]))
    return english_of(path)


def differences(chinese: Section, english: Section, page: str) -> str:
    """In words, what the translation lacks, has beyond the English or has elsewhere; empty where nothing."""
    ours, theirs = facts(chinese, page), facts(english, english_of(page))
    said = []
    for kind, expected in theirs.items():
        missing, beyond = Counter(expected) - Counter(ours[kind]), Counter(ours[kind]) - Counter(expected)
        if missing or beyond:
            parts = [(_few(missing), "missing"), (_few(beyond), "not in the English")]
            said.append(f"{kind}: " + ", ".join(f"{words} {what}" for words, what in parts if words))
        elif ours[kind] != expected:
            mine, yours = next(pair for pair in zip(ours[kind], expected, strict=True) if pair[0] != pair[1])
            said.append(f"{kind}: {mine} where the English has {yours}; put them in the order of the English")
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
        elif mine.own is None:
            found.append(f"{place} has no hash of the Chinese in its stamp; {TOOL} stamp {page} {number}")
        elif mine.own != mine.hash:
            see, then = f"{TOOL} diff {page} {number}", f"{TOOL} stamp {page} {number}"
            found.append(f"{place} was changed after its stamp; see {see}, and if it is a translation, {then}")
    return found


def read(page: str, root: Path = ROOT) -> list[Section]:
    return sections((root / page).read_text(encoding="utf-8"))


def stamped(page: str, root: Path = ROOT, only: Sequence[int] = ()) -> tuple[list[str], list[str]]:
    """Write the hashes of English and Chinese under each heading.

    Returns:
        What was stamped, with what changed since the last time, and what was not since it cannot be a translation yet.
    """
    ours, theirs = read(page, root), read(english_of(page), root)
    if [s.level for s in ours] != [s.level for s in theirs]:
        return [], problems(page, root)
    done, refused, text = [], [], ""
    for number, (mine, yours) in enumerate(zip(ours, theirs, strict=True), 1):
        place, now = f"{page}: section {number}, {mine.title!r},", (yours.hash, mine.hash)
        if said := differences(mine, yours, page):
            refused.append(f"{place} was not stamped: {said}")
        elif (mine.stamp, mine.own) != now and (not only or number in only):
            done.append(f"{place} stamped: {_news(mine, yours, page, root)}")
            mine = replace(mine, stamp=now[0], own=now[1])
        heading, _, rest = mine.text.partition("\n")
        stamp = f"<!-- en {mine.stamp} zh {mine.own} -->" if mine.own else f"<!-- en {mine.stamp} -->"
        text += f"{heading}\n{stamp}\n{rest}" if mine.stamp else mine.text
    (root / page).write_text(text, encoding="utf-8")
    return done, refused


def _news(mine: Section, yours: Section, page: str, root: Path) -> str:
    """What changed since the last stamp, in a line."""
    said = []
    both = ("English", english_of(page), mine.stamp, yours), ("Chinese", page, mine.own, mine)
    for language, name, hashed, now in both:
        if hashed is None:
            said.append(f"the {language} for the first time")
        elif hashed != now.hash:
            old = _earlier(name, hashed, root)
            said.append(f"the {language} changed" + (f", {_replaced(old.text, now.text)}" if old else ""))
    return "; ".join(said)


def _replaced(old: str, new: str) -> str:
    """The first words that changed.

    >>> _replaced("对数是凹的。", "对数是凸的。")
    "'凹' to '凸'"
    """
    before, after = _WORD.findall(" ".join(old.split())), _WORD.findall(" ".join(new.split()))
    places = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    changed = [("".join(before[a:b]), "".join(after[c:d])) for what, a, b, c, d in places if what != "equal"]
    first = ", ".join(f"{was[:40]!r} to {now[:40]!r}" for was, now in changed[:3])
    return first + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")


def changes(page: str, number: int, root: Path = ROOT) -> str:
    """Both sections now against those that section `number` was stamped with, which git's history has."""
    mine, english = read(page, root)[number - 1], read(english_of(page), root)
    yours = english[number - 1] if number <= len(english) else Section(0, "", "")
    both = (english_of(page), mine.stamp, yours), (page, mine.own, mine)
    return "\n".join(filter(None, (_since(*each, root) for each in both))) or "nothing changed"


def _since(name: str, hashed: str | None, now: Section, root: Path) -> str:
    if hashed in (None, now.hash):
        return ""
    old = _earlier(name, hashed, root)
    if old is None:
        return f"{now.title!r} of {name}, as it was with hash {hashed}, is in no commit; now it is\n\n{now.text}"
    lines = old.text.splitlines(), now.text.splitlines()
    return "\n".join(difflib.unified_diff(*lines, f"{name}, stamped", f"{name}, now", lineterm=""))


def _earlier(name: str, hashed: str | None, root: Path) -> Section | None:
    """The section with this hash in git's history; none without a history, too."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False).stdout

    for commit in git("log", "--format=%H", "--", name).split():
        for section in sections(git("show", f"{commit}:{name}")):
            if section.hash == hashed:
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
        behind = [n for n, (mine, yours) in enumerate(pairs, 1) if (mine.stamp, mine.own) != (yours.hash, mine.hash)]
        print("\n".join(changes(chosen[0], number) for number in numbers or behind) or "nothing changed")
        return 0
    done, said = [], []
    for page in chosen:
        new, wrong = stamped(page, only=numbers) if options.what == "stamp" else ([], problems(page))
        done, said = done + new, said + wrong
    print("\n".join(done + said) or f"in step: {', '.join(chosen)}")
    return bool(said)


if __name__ == "__main__":
    sys.exit(main())
