"""The Chinese pages are in step with the English; where one is behind, a line says which section, and how to see it."""

import re
import subprocess
from pathlib import Path

import pytest

from tools import translations
from tools.translations import chinese_of, pages, problems, sections, stamped

ENGLISH = """# Title

[中文](README.zh-CN.md) Words, 65,536 of them, $N - 1$ and [a paper](https://arxiv.org/abs/1). See `nearfar check`.

## Second

```sh
# not a heading
nearfar check
```

| a | 1 |
|---|---|
"""
CHINESE = """# 标题

[English](README.md) 文字，共 65,536 个， $N - 1$ 与[论文](https://arxiv.org/abs/1)。见 `nearfar check`。

## 第二节

```sh
# not a heading
nearfar check
```

| 甲 | 1 |
|---|---|
"""


@pytest.mark.parametrize("page", pages())
def test_a_page_is_in_step(page: str) -> None:
    found = problems(page)
    assert not found, "\n" + "\n".join(found)


def test_there_is_a_chinese_page_of_the_readme_and_of_each_concept() -> None:
    assert {"README.zh-CN.md", *(f"docs/zh/concepts/{n}.md" for n in ("index", "information", "methods"))} <= set(
        pages()
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text(ENGLISH)
    (tmp_path / "README.zh-CN.md").write_text(CHINESE)
    assert problems("README.zh-CN.md", tmp_path) and "no stamp" in problems("README.zh-CN.md", tmp_path)[0]
    done, refused = stamped("README.zh-CN.md", tmp_path)
    assert len(done) == 2 and refused == [] and problems("README.zh-CN.md", tmp_path) == []
    return tmp_path


def change(page: Path, old: str, new: str) -> None:
    text = page.read_text()
    assert old in text
    page.write_text(text.replace(old, new))


def test_stamping_twice_changes_nothing(place: Path) -> None:
    before = (place / "README.zh-CN.md").read_text()
    assert stamped("README.zh-CN.md", place) == ([], []) and (place / "README.zh-CN.md").read_text() == before


def test_one_section_can_be_stamped_alone(place: Path) -> None:
    change(place / "README.md", "Words,", "Other words,")
    change(place / "README.md", "## Second", "## The second")
    assert len(problems("README.zh-CN.md", place)) == 2
    (done,), refused = stamped("README.zh-CN.md", place, [1])
    assert done == "README.zh-CN.md: section 1, '标题', stamped: the English changed" and refused == []
    (said,) = problems("README.zh-CN.md", place)
    assert "section 2" in said


def test_new_words_are_told_with_their_section_and_the_command(place: Path) -> None:
    change(place / "README.md", "Words,", "Other words,")
    (said,) = problems("README.zh-CN.md", place)
    assert said == (
        "README.zh-CN.md: section 1, '标题', is behind README.md, 'Title'; "
        "see python tools/translations.py diff README.zh-CN.md 1"
    )


def test_other_breaks_of_lines_are_nothing_new(place: Path) -> None:
    change(place / "README.md", "Words, 65,536", "Words,\n65,536")
    assert problems("README.zh-CN.md", place) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("65,536", "65536", "numbers: 65,536 missing, 65536 not in the English"),
        ("abs/1)", "abs/2)", "links: https://arxiv.org/abs/1 missing, https://arxiv.org/abs/2 not in the English"),
        ("见 `nearfar check`", "见 `nearfar chek`", "code: `nearfar check` missing, `nearfar chek` not in the English"),
        ("$N - 1$", "$N + 1$", "formulas: $N - 1$ missing, $N + 1$ not in the English"),
        ("\nnearfar check\n", "\nnearfar doctor\n", "blocks of code: ```sh # not a heading nearfar check ``` missing"),
        ("| 甲 | 1 |\n", "| 甲 | 1 |\n| 乙 |\n", "rows of tables: | … | not in the English"),
        ("| 甲 | 1 |", "| 1 | 甲 |", "rows of tables: | … | 1 | missing, | 1 | … | not in the English"),
    ],
)
def test_what_differs_is_told_and_not_stamped(place: Path, old: str, new: str, said: str) -> None:
    page = place / "README.zh-CN.md"
    change(page, old, new)
    (found,) = problems("README.zh-CN.md", place)
    assert said in found and "differs from README.md" in found
    change(place / "README.md", "# Title", "# A title")
    change(place / "README.md", "## Second", "## The second")
    (done,), (refused,) = stamped("README.zh-CN.md", place)
    assert "stamped: the English changed" in done
    assert "was not stamped" in refused and len(problems("README.zh-CN.md", place)) == 1


def test_a_new_section_is_told_by_its_name(place: Path) -> None:
    change(place / "README.md", "## Second", "## Between\n\nNew.\n\n## Second")
    (said,) = problems("README.zh-CN.md", place)
    assert "2 sections, README.md has 3" in said and "'Between'" in said
    assert stamped("README.zh-CN.md", place) == ([], [said])


def test_a_missing_page_is_told(place: Path) -> None:
    assert problems(chinese_of("docs/concepts/x.md"), place) == [
        "docs/zh/concepts/x.md is missing: docs/concepts/x.md and docs/zh/concepts/x.md belong together"
    ]


def git(place: Path, *words: str) -> None:
    name = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *name, *words], cwd=place, check=True, capture_output=True)


def test_what_changed_is_found_in_the_history(place: Path) -> None:
    git(place, "init")
    git(place, "add", "README.md")
    git(place, "commit", "-m", "first")
    change(place / "README.md", "Words,", "Other words,")
    git(place, "commit", "-am", "second")
    lines = translations.changes("README.zh-CN.md", 1, place).splitlines()
    assert any(line.startswith("-[中文](README.zh-CN.md) Words,") for line in lines)
    assert any(line.startswith("+[中文](README.zh-CN.md) Other words,") for line in lines)
    assert translations.changes("README.zh-CN.md", 2, place) == "nothing changed"


METHODS = """# Methods

The logarithm is concave: $a \\le b$, so $b \\ge a$. It is fitted a hundred times, and the errors are compared.

| name | temperature |
|---|---|
| `moco_v1` | 0.07 |
| `moco` | 0.2 |
"""
METHODS_IN_CHINESE = """# 方法

对数是凹的： $a \\le b$ ，所以 $b \\ge a$ 。拟合一百次，并比较误差。

| 名称 | 温度 |
|---|---|
| `moco_v1` | 0.07 |
| `moco` | 0.2 |
"""


@pytest.fixture
def methods(tmp_path: Path) -> Path:
    """A repository with a page that is in step."""
    (tmp_path / "README.md").write_text(METHODS)
    (tmp_path / "README.zh-CN.md").write_text(METHODS_IN_CHINESE)
    assert stamped("README.zh-CN.md", tmp_path)[1] == [] == problems("README.zh-CN.md", tmp_path)
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "| `moco_v1` | 0.07 |\n| `moco` | 0.2 |",
            "| `moco_v1` | 0.2 |\n| `moco` | 0.07 |",
            "rows of tables: | `moco_v1` | 0.07 |, | `moco` | 0.2 | missing",
        ),
        (
            "| `moco_v1` | 0.07 |\n| `moco` | 0.2 |",
            "| `moco` | 0.2 |\n| `moco_v1` | 0.07 |",
            "rows of tables: | `moco` | 0.2 | where the English has | `moco_v1` | 0.07 |; put them in the order",
        ),
        (
            "$a \\le b$ ，所以 $b \\ge a$",
            "$b \\ge a$ ，所以 $a \\le b$",
            "formulas: $b \\ge a$ where the English has $a \\le b$; put them in the order of the English",
        ),
    ],
)
def test_what_changed_places_is_told_and_not_stamped(methods: Path, old: str, new: str, said: str) -> None:
    change(methods / "README.zh-CN.md", old, new)
    (found,) = problems("README.zh-CN.md", methods)
    assert said in found and "differs from README.md" in found
    done, (refused,) = stamped("README.zh-CN.md", methods)
    assert done == [] and said in refused


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [("凹", "凸", "'凹' to '凸'"), ("，并比较误差", "", "'，并比较误差' to ''"), ("一百", "一千", "'百' to '千'")],
)
def test_other_chinese_words_need_a_stamp_which_says_what_changed(methods: Path, old: str, new: str, said: str) -> None:
    change(methods / "README.zh-CN.md", old, new)
    (found,) = problems("README.zh-CN.md", methods)
    assert found == (
        "README.zh-CN.md: section 1, '方法', was changed after its stamp; see python tools/translations.py diff "
        "README.zh-CN.md 1, and if it is a translation, python tools/translations.py stamp README.zh-CN.md 1"
    )
    lines = translations.changes("README.zh-CN.md", 1, methods).splitlines()
    assert any(line.startswith("-") and old in line for line in lines)
    assert stamped("README.zh-CN.md", methods) == (
        [f"README.zh-CN.md: section 1, '方法', stamped: the Chinese changed, {said}"],
        [],
    )
    assert problems("README.zh-CN.md", methods) == []


def test_a_stamp_of_the_english_alone_is_told(methods: Path) -> None:
    page = methods / "README.zh-CN.md"
    page.write_text(re.sub(r" zh \w+ -->", " -->", page.read_text()))
    (said,) = problems("README.zh-CN.md", methods)
    assert "has no hash of the Chinese in its stamp; python tools/translations.py stamp README.zh-CN.md 1" in said
    (done,), _ = stamped("README.zh-CN.md", methods)
    assert done.endswith("stamped: the Chinese for the first time") and problems("README.zh-CN.md", methods) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["diff"], "pages, expected one"),
        (["stamp", "README.md"], "README.md is no Chinese page, expected one of README.zh-CN.md"),
        (["diff", "README.zh-CN.md", "99"], "section 99 of README.zh-CN.md, expected 1 to"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        translations.main(arguments)
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_a_heading_in_code_is_none() -> None:
    assert [section.title for section in sections(ENGLISH)] == ["Title", "Second"]
