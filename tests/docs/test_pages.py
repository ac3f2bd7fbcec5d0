"""What the README and the docs tell their reader works as it stands: code, links, figures, and the site itself."""

import doctest
import html
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from markdown_it import MarkdownIt

from nearfar.cli import COMMANDS, main
from tests.docs.pages import LANGUAGES, PAGES, ROOT, Block, Reader, blocks, commands_in_text
from tests.support.browser import found_by_axe, kept
from tests.support.hub import connect
from tests.support.small_data import write_small_data

RUN = ["train", "--data", "photos/", "--backbone", "micro", "--epochs", "1", "--batch-size", "32", "--out", "RUN"]


@pytest.fixture(scope="module")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data under the names that the pages use, and RUN, a run on the pictures."""
    folder = write_small_data(tmp_path_factory.mktemp("docs"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("NEARFAR_CACHE", str(folder.parent / "cache"))
        assert main(RUN) == 0
    return folder


@pytest.fixture
def place(small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in which a page is followed."""
    folder = shutil.copytree(small_data, tmp_path / "place", symlinks=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NEARFAR_CACHE", str(small_data.parent / "cache"))
    connect(tmp_path / "hub", monkeypatch)
    return folder


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


# Chinese pages follow the English ones, and may be some commits behind: the last line of each says of which it is.
ENGLISH = [page for page in PAGES if not named(page).startswith(("README.zh", "docs/zh"))]
WITH_CODE = [page for page in ENGLISH if any(block.language != "text" for block in blocks(page))]


@pytest.mark.parametrize("page", WITH_CODE, ids=named)
def test_the_code_of_a_page_works(page: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Reader(monkeypatch, everything=False).follow(page)


@pytest.mark.parametrize("page", [page for page in ENGLISH if commands_in_text(page)], ids=named)
def test_commands_in_the_text_are_right(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reader = Reader(monkeypatch, everything=False)
    for command in commands_in_text(page):
        reader.obey(shlex.split(command), alone=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=named)
def test_all_of_a_page_works(page: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Reader(monkeypatch, everything=True).follow(page)


def test_the_demo_runs(tmp_path: Path) -> None:
    """Fewer letters and one epoch; `test_demo.py` has the whole, among the slow tests."""
    run = tmp_path / "run"
    words = ["make", "demo", f"DEMO=--data glyphs:300 --epochs 1 --out {run}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (run / "report.html").is_file() and (run / "model.safetensors").is_file()


# A block that cannot be run is found


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("", "nearfar train", "is of the language ''"),
        ("bash", "nearfar train", "is of the language 'bash'"),
        ("python", "import nearfar.nothing", "nearfar.nothing"),
        ("python", "1 +", "invalid syntax"),
        ("sh", "nearfar train --epochz 3 --out new", "status 2"),
        ("sh", "nearfar trian", "status 2"),
        ("sh", "nearfar lab bounds", "status 2"),
        ("sh", "nearfar explore", "status 2"),
        ("sh", "nearfar search RUN photos.parquet", "status 2"),
        ("sh", "nearfar plan --memory 8GB --options.tau 3", "has no option {'tau'}"),
        ("sh", "nearfar plan --memory 8GB --backbone resnet19", "no backbone resnet19"),
        ("sh", "if [ -e x ]; then nearfar train --method simclrr; fi", "simclrr"),
        ("sh", "if [ -e x ]; then nearfar evaluate RUN --protocol ctcc; fi", "there is no protocol ctcc"),
        ("sh", "torchrun --nnodes 2 -m nearfar train --batchsize 3", "status 2"),
        ("sh", "curl http://127.0.0.1:8642/api/serch?k=5", "no GET /api/serch"),
        ("sh", "curl 'http://127.0.0.1:8642/api/neighbours?rows=1'", "not rows=1"),
        ("sh", "frobnicate photos/", "frobnicate is no program"),
        ("sh", "make nothing", "No rule"),
        ("sh", "pip install 'nearfar[nothing]'", "there is no extra nothing"),
        ("sh", "python examples/nothing.py", "there is no file"),
        ("sh", "python benchmarks/series.py --methodd cpc", "benchmarks/series.py takes no --methodd"),
        ("python", "print(1 / 3)  # 0.3334", "gives 0.3333, the page says 0.3334"),
        ("python", "import torch\nprint(f'{torch.ones(2).mean():.2f}')  # 2.00", "gives 1.00, the page says 2.00"),
        ("sh", "if true; then make test", "syntax error"),
        ("yaml", "methd: simclr\nepochs: 3", "methd"),
        ("yaml", "a: [", "parsing"),
        ("json", "{", "Expecting"),
    ],
)
def test_a_block_that_does_not_work_is_found(
    language: str, text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n```{language}\n{text}\n```\n")
    with pytest.raises(AssertionError, match=re.escape(words)) as found:
        Reader(monkeypatch, everything=False).follow(page)
    assert "page.md:3" in str(found.value)


def test_code_is_in_fences(tmp_path: Path) -> None:
    """Code by indentation alone would be shown and not seen by those who look for languages."""
    page = tmp_path / "page.md"
    page.write_text("1. A list:\n\n    ```sh\n    nearfar check\n    ```\n\nAnd\n\n    nearfar train\n")
    assert blocks(page) == [
        Block(page, 3, "sh", None, "nearfar check\n"),
        Block(page, 9, "", None, "nearfar train\n"),
    ]
    assert all(block.language in LANGUAGES for each in PAGES for block in blocks(each))


@pytest.mark.parametrize("page", ["README.md", "docs/design.md"])
def test_pages_that_are_read_in_one_sitting_are_short(page: str) -> None:
    """The README is for a newcomer with a minute, the design for a new contributor with an hour."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= (150 if page == "README.md" else 250)
    assert page != "README.md" or max(map(len, lines)) <= 100


# Links and figures


def links(page: Path) -> list[tuple[str, str]]:
    """The kind, "link" or "image", and the target of each link of a page, in HTML, too."""
    found = []
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        for inner in [token, *(token.children or [])]:
            if inner.type == "link_open":
                found.append(("link", str(inner.attrs["href"])))
            elif inner.type == "image":
                found.append(("image", str(inner.attrs["src"])))
            elif inner.type in ("html_block", "html_inline"):
                found += [("image", each) for each in re.findall(r'src="([^"]+)"', inner.content)]
    return found


OTHERS = [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md")]
ROOMS = {"losses", "methods", "modalities", "nn", "data", "evaluation", "search", "model", "distributed", "lab"}
MADE = {"command", "config", *ROOMS}  # pages of the reference


@pytest.mark.parametrize("page", [*PAGES, *OTHERS, *sorted((ROOT / "benchmarks/results").glob("*.md"))], ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    """To files that are there; `make docs` looks at the anchors, too. Addresses elsewhere have the form of one."""
    for _, target in links(page):
        address = urlsplit(target)
        if address.scheme:
            local = address.hostname in ("127.0.0.1", "localhost")
            assert address.scheme == "https" or (address.scheme == "http" and local), target
            assert (
                address.hostname and (local or "." in address.hostname) and not re.search(r"[\s<>\"`]|[.,;]$", target)
            )
        elif address.path:
            file = (page.parent / address.path).resolve()
            made = file.parent == ROOT / "docs/reference" and file.stem in MADE
            assert made or file.exists(), f"{named(page)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_figure_names_the_command_that_makes_it(page: Path) -> None:
    """The page has a command that writes to the figure's folder, or a script that lies there."""
    text = page.read_text(encoding="utf-8")
    for kind, target in links(page):
        if kind == "image":
            figure = (page.parent / target).resolve()
            folder = re.escape(str(figure.parent.relative_to(ROOT)))
            made = re.search(rf"nearfar [^\n`]*--out {folder}\b|python (?P<script>{folder}/\w+\.py)", text)
            assert figure.is_file() and made, f"{named(page)} does not say by which command {target} is made"
            assert made["script"] is None or (ROOT / made["script"]).is_file()


# The site


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    """docs/hooks.py, which mkdocs loads by its path."""
    return loaded(ROOT / "docs/hooks.py")


def loaded(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["hooks", "doctests"])
def test_examples_of_the_sites_own_code(name: str) -> None:
    found = doctest.testmod(loaded(ROOT / "docs" / f"{name}.py"))
    assert found.attempted and not found.failed


@pytest.mark.parametrize(
    "text",
    [
        "<script defer src='https://cdn.example/x.js'></script>",
        '<img alt="a" src="http://example.org/x.png">',
        '<link rel="stylesheet" href="https://fonts.example/css">',
        '<link href="//fonts.example" rel="preconnect" crossorigin>',
        "<style>@import url(https://example.org/x.css)</style>",
        "a { background: url('https://example.org/x.png') }",
        '<iframe src="https://example.org"></iframe>',
    ],
)
def test_what_a_page_would_fetch_is_found(text: str, hooks: ModuleType, tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "page.html").write_text(f'<a href="https://example.org">links may lead out</a>{text}')
    hooks.on_post_build(SimpleNamespace(site_dir=tmp_path))
    assert [record.levelname for record in caplog.records] == ["WARNING"]  # with --strict, the end of the build
    assert "page.html fetches" in caplog.text


@pytest.mark.parametrize("formula", [r"x_1_2", r"\nosuchcommand x", r"\begin{matrix} 1"])
def test_a_formula_that_cannot_be_shown_is_told(formula: str, hooks: ModuleType, caplog: Any) -> None:
    hooks.with_formulas(rf'<span class="arithmatex">\({formula}\)</span>', "a page")
    assert "a page: the formula" in caplog.text


def test_formulas_are_mathml(hooks: ModuleType) -> None:
    shown = hooks.with_formulas(r'<p>So <span class="arithmatex">\(\log N - L \le I(x;c)\)</span>.</p>', "a page")
    assert shown.startswith('<p>So <span class="whole"><math') and "≤" in html.unescape(shown)
    assert shown.endswith("</math>.</span></p>") and "arithmatex" not in shown  # the full stop stays with its formula


@pytest.mark.parametrize(("place", "language"), [("zh/concepts/index.md", "zh-CN"), ("concepts/index.md", "en")])
def test_a_page_says_its_language(place: str, language: str, hooks: ModuleType) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri=place))
    assert hooks.on_post_page('<html lang="en" class="no-js">', page, None) == f'<html lang="{language}" class="no-js">'


def test_results_without_their_command_are_told(
    hooks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(hooks, "ROOT", tmp_path)
    (tmp_path / hooks.RESULTS).mkdir(parents=True)
    (tmp_path / hooks.RESULTS / "one.md").write_text("# One\n\nMade by `python benchmarks/one.py --data x`.\n")
    (tmp_path / hooks.RESULTS / "two.md").write_text("# Two\n\nMeasured.\n")
    assert hooks.results() == {"one.md": ("One", "python benchmarks/one.py --data x"), "two.md": ("Two", "")}
    assert "two.md does not name the command" in caplog.text


def test_the_pages_of_the_reference_are_complete(hooks: ModuleType) -> None:
    assert set(hooks.ROOMS) == ROOMS
    command, keys = hooks.command_page(), hooks.config_page()
    for name in COMMANDS:
        assert f"## nearfar {name}\n" in command and f"````text\nusage: nearfar {name} " in command
    assert "| `optimizer.lr` |" in keys and "| `protocols.finetune.label_fractions` |" in keys
    for room in ROOMS:
        module = importlib.import_module(f"nearfar.{room}")
        shown = re.findall(r"^::: nearfar\.[\w.]*?(\w+)$", hooks.room_page(room), re.MULTILINE)
        offered = [name for name in module.__all__ if callable(getattr(module, name))]
        assert set(offered) <= set(shown) and len(shown) == len(set(shown)) and len(offered) > 5, room


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = built("--site-dir", str(folder))
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    return folder


def built(*words: str, place: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    """The site of a folder, by the command of `make docs`."""
    shown = subprocess.run(["make", "--dry-run", "--always-make", "docs"], cwd=ROOT, capture_output=True, text=True)
    (line,) = [line for line in shown.stdout.splitlines() if "mkdocs build" in line]
    flags = shlex.split(line.partition("mkdocs ")[2])
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    program = [sys.executable, "-m", "mkdocs", *flags, *words]
    return subprocess.run(program, cwd=place, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("link", ["other.md", "#nowhere", "index.md#nowhere"])
def test_a_link_to_nowhere_fails_the_build(link: str, tmp_path: Path) -> None:
    """With the settings of the real site; without its plugins, which take long."""
    (tmp_path / "docs").mkdir()
    own = "hooks: []\nplugins: []\nextra_css: []\nextra_javascript: []\nnav: [index.md]\n"
    (tmp_path / "mkdocs.yml").write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\n{own}")
    for target, status in {"index.md": 0, link: 1}.items():
        (tmp_path / "docs/index.md").write_text(f"# Start\n\nA [link]({target}).\n")
        done = built(place=tmp_path)
        assert done.returncode == status and ("WARNING" in done.stderr) == bool(status), done.stderr


@pytest.mark.slow
def test_the_site_works_from_a_folder(site: Path, browser: Any) -> None:
    """In a browser, from files: nothing is asked of any server, the search finds, no page has a serious fault."""
    page, asked, errors = browser.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((site / "index.html").as_uri())
    for words, marked, found in (
        ("collapse", "collapse", "how-to/collapse"),
        ("互信息", "互信息", "zh/concepts/information"),
        ("--optimizer.lr", "optimizer.lr", "reference/config"),
    ):
        page.click(".md-search__input")
        page.fill(".md-search__input", words)
        page.keyboard.press("End")  # the theme searches when a key is let go
        page.wait_for_selector(f'.md-search-result__link[href*="{found}"] mark:has-text("{marked}")')
    for name in ("index", "how-to/temperature", "reference/losses", "reference/command", "benchmarks/losses", "lab"):
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.goto((site / f"{name}.html").as_uri())
            assert not found_by_axe(page), name
    page.set_viewport_size({"width": 390, "height": 800})
    for name, moved in {
        "lab": ["formula", "table"],  # what is too wide is moved sideways, by keyboard, too
        "zh/concepts/information": ["公式"],
        "how-to/recipes": [],
        "reference/config": ["table"],
    }.items():
        page.goto((site / f"{name}.html").as_uri())
        for each in moved:
            page.wait_for_selector(f'[tabindex="0"][role="group"][aria-label="{each}"]')
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth") and not found_by_axe(page), name
        kept(page, f"site-{name.replace('/', '-')}-phone")
    assert all(address.startswith(("file:", "data:")) for address in asked) and not errors
    page.close()
