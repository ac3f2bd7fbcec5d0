"""What the site has beside its pages: results of the benchmarks, files of the repository, the command's own help, the
configuration's keys, formulas as MathML, figures that open in full size. `mkdocs.yml` names this file; all of it is
made when the site is built.

- **A page is a story.** Its blocks are run in order, in one folder and one namespace, so that a command may use what
  the one before it made. Runs are made small where the configuration is built, behind the parser: flags stay as the
  page has them, and all are checked. What takes longer than seconds (`check`, `lab`, `plan`) is read by its own
  parser in `make docs-check`, and run by the slow tests.
- **What a page names in passing is looked up** (`tests/docs/test_named_on_pages.py`): numbers in a paragraph that
  links to results, and in tables beside it, are in those results; flags are flags of a command; a recipe's numbers
  are of its settings by a sum.
- **Nothing is written twice.** Help, keys of the configuration and the reference are made from the code when the site
  is built, benchmark pages from `benchmarks/results`. Links to files of the repository lead to copies of them on the
  site, so that it needs no address of a repository.
- **Hardly a script but the theme's.** Formulas become MathML when the site is built. From a folder a browser starts
  no worker, so the search runs in a frame; what the theme would fetch for that is 25 lines of our own. Some 15 more
  let the keyboard reach formulas and tables that are wider than the window.
- **Chinese is searched by words.** The theme cuts it by jieba where that is installed; the words of the field that
  jieba does not know are in `docs/zh/words.txt`.
"""

import ast
import contextlib
import html
import io
import logging
import os
import posixpath
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path, PurePosixPath
from typing import Any, get_type_hints

import jieba  # the theme's search cuts Chinese into words by it
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
RESULTS = "benchmarks/results/"
ROOMS = ("losses", "methods", "modalities", "nn", "data", "evaluation", "search", "model", "distributed", "lab")
LANGUAGES = {".yaml": "yaml", ".yml": "yaml", ".py": "python", ".toml": "toml", ".txt": "text", "": "make"}
_CODE = re.compile(r"^(?P<fence>`{3,}).*?^(?P=fence)`*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<before>\]\(|\]: +|(?:src|href)=\")(?P<target>[^)\s\"#]+)(?=[)#\s\"])")
_COMMAND = re.compile(r"`((?:python benchmarks/|make bench|nearfar train )[^`]*)`")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
# A function's name, with what ends right before it, and whether something other than a bracket follows.
_FUNCTION = re.compile(
    r"(?P<before></(?:mi|mn|msub|msup|msubsup|mfrac|mrow)>|&#x00029;</mo>)?"
    r"(?P<name><mi>(?:log|exp|max|min|sup|inf|sin|cos)</mi>)(?P<after><m(?!o\b|space))?"
)
_SPACE = '<mspace width="0.17em" />'
_SIGN = re.compile(r"(<mo>&#x(?:0003D|02264|02265|02192);</mo>)<mo>&#x02212;</mo>")  # a minus behind =, ≤, ≥, →
# A formula within a sentence, with the marks that may not part from it; behind one in Chinese the page has a space.
_IN_SENTENCE = re.compile(
    r'(?P<open>[(（“]*)(?P<math><math [^>]*display="inline">.*?</math>)'
    r"(?P<close>(?: ?[，。；：、）？！”]|[,.;:)?!])*)"
)
_TAB = re.compile(r"<!-- tab: ([^>]+?) -->\n")
_TABS = re.compile(r"((?:<!-- tab: [^>]+? -->\n.*?)+)<!-- tabs end -->", re.DOTALL)
_FIGURE = re.compile(r'<p>(<img [^>]*?src="([^"]+)"[^>]*>)</p>')
_CODE_SPAN = re.compile(r"(?<!<span></span>)<code>[^<]+(?=</code>)")  # in a sentence, not a block
_CELL = re.compile(r"<t[dh]\b.*?</t[dh]>", re.DOTALL)
_WORD = re.compile(r"[^\s<>]*[-/?][^\s<>]*")  # a browser would break it
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|track)\b[^>]*?\s(?:src|srcset)=[\"']?(?P<src>(?:https?:)?//[^\s\"'>]+)"
    r"|<link\b(?=[^>]*rel=[\"']?(?:stylesheet|icon|preload|preconnect|prefetch|modulepreload|dns-prefetch))[^>]*?"
    r"\shref=[\"']?(?P<href>(?:https?:)?//[^\s\"'>]+)"
    r"|@import\s+(?:url\()?[\"']?(?P<imported>(?:https?:)?//[^\s\"')]+)"
    r"|url\([\"']?(?P<url>(?:https?:)?//[^\s\"')]+)",
    re.IGNORECASE,
)
log = logging.getLogger("mkdocs.hooks.nearfar")
jieba.setLogLevel(logging.WARNING)


# Files of the repository


def place_of(path: str) -> str:
    """Where a file of the repository is on the site.

    >>> place_of("docs/lab.md"), place_of("benchmarks/results/views.md"), place_of("CHANGELOG.md")
    ('lab.md', 'benchmarks/views.md', 'files/CHANGELOG.md')
    >>> place_of("recipes/ucr-cpc.yaml"), place_of("docs/images/explore.py")
    ('files/recipes/ucr-cpc.yaml.md', 'files/docs/images/explore.py.md')
    """
    if path.startswith("docs/") and not path.endswith(".py"):
        return path.removeprefix("docs/")
    if path.startswith(RESULTS):
        return "benchmarks/" + path.removeprefix(RESULTS)
    return f"files/{path}" if path.endswith((".md", ".png")) else f"files/{path}.md"


def linked(markdown: str, origin: str) -> Iterator[str]:
    """Files and folders of the repository, outside of docs, that a text links to.

    >>> list(linked("[a](../recipes) `[b](c)` [d](lab.md#nce) [e](https://example.org)", "docs/index.md"))
    ['recipes']
    """
    for part in _CODE.split(markdown)[::2]:
        for found in _LINK.finditer(part):
            path = repository_path(found["target"], origin)
            if path is not None and not (path.startswith("docs/") and not path.endswith(".py")):
                yield path


def repository_path(target: str, origin: str) -> str | None:
    """The file or folder that a link in `origin` means, from the top of the repository; None where there is none."""
    if re.match(r"[a-z][a-z0-9+.-]*:|/", target):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
    return path if not path.startswith("..") and (ROOT / path).exists() else None


def as_page(path: str) -> str:
    """A file or folder of the repository as a page."""
    place = ROOT / path
    if place.is_dir():
        names = sorted(
            each.name + "/" * each.is_dir() for each in place.iterdir() if not each.name.startswith(("_", "."))
        )
        lines = [f"- [{name}]({PurePosixPath(path).name}/{name})" for name in names]
        return f"# {path}\n\n" + "\n".join(lines) + "\n"
    text = place.read_text(encoding="utf-8")
    if place.suffix == ".md":
        return text
    return f"# {path}\n\n````{LANGUAGES.get(place.suffix, 'text')}\n{text.rstrip()}\n````\n"


# Pages that are made


def results() -> dict[str, tuple[str, str]]:
    """Title, and the command that made it, of each benchmark by its file."""
    found = {}
    for place in sorted((ROOT / RESULTS).glob("*.md")):
        text = place.read_text(encoding="utf-8")
        command = _COMMAND.search(text)
        if command is None:
            log.warning(f"{RESULTS}{place.name} does not name the command that made it")
        found[place.name] = (text.splitlines()[0].lstrip("# "), command[1] if command else "")
    return found


def results_table() -> str:
    lines = [f"| [{title}]({name}) | `{command}` |" for name, (title, command) in results().items()]
    return "\n".join(["| | made by |", "|---|---|", *lines])


def command_page() -> str:
    """The help of `nearfar` and of each of its commands."""
    from nearfar.cli import COMMANDS, usage

    parts = ["# The command line", f"````text\n{usage()}\n````"]
    for name, what in COMMANDS.items():
        parts += [f"## nearfar {name}", f"{what[0].upper()}{what[1:]}.", f"````text\n{help_of(name)}\n````"]
    return "\n\n".join(parts) + "\n"


def help_of(command: str) -> str:
    from nearfar.cli import main

    said, before = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "94"
    try:
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            main([command, "--help-all"])
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    return said.getvalue().strip()


def config_page() -> str:
    """Every key of a run and of an evaluation: what it is set to, and what it is."""
    from nearfar.config import TrainConfig
    from nearfar.evaluation.protocols import ProtocolConfig

    about = (
        "A run is a function of these keys: as flags (`--optimizer.lr 0.03`), in a file (`--config run.yaml`), or as\n"
        "arguments of `nearfar.train`. A run folder holds all of them in `config.yaml`. What is left out is taken\n"
        "from the modality (`Modality.defaults`), which also knows the built-in data, then from the table.\n\n"
        "A section with a main key may be given as a plain value: `data: photos/` is `data: {path: photos/}`,\n"
        "`--views simclr` is `--views.preset simclr`, and both forms together work."
    )
    parts = [
        "# The configuration",
        about,
        *keys_of(TrainConfig, "", "nearfar train"),
        *keys_of(ProtocolConfig, "protocols.", "nearfar evaluate"),
    ]
    return "\n\n".join(parts) + "\n"


def keys_of(kind: type[Any], prefix: str, title: str) -> Iterator[str]:
    from nearfar.cli.flags import first_line
    from nearfar.settings import help_texts

    said, hints = help_texts(kind), get_type_hints(kind)
    yield f"## {title}"
    yield f"{first_line(kind)}."
    inner = {
        f.name: hints[f.name] for f in fields(kind) if isinstance(hints[f.name], type) and is_dataclass(hints[f.name])
    }
    rows = ["| key | default | |", "|---|---|---|"]
    for field in fields(kind):
        if field.name not in inner:
            default = field.default if field.default is not MISSING else field.default_factory()  # type: ignore[misc]
            shown = "" if default is None else f"`{default}`"
            words = re.sub(r"[{}_*<|]", r"\\\g<0>", said.get(field.name, ""))  # as they are, not as Markdown
            rows.append(f"| `{prefix}{field.name}` | {shown} | {words} |")
    yield "\n".join(rows)
    for name, each in inner.items():
        yield from keys_of(each, f"{prefix}{name}.", f"{prefix}{name}")


def room_page(room: str) -> str:
    """What a room of the package offers, by the file that it is written in."""
    tree = parsed(f"nearfar.{room}")
    offered: list[str] = []
    origins: dict[str, str] = {}
    for node in ast.walk(tree):  # also below `if TYPE_CHECKING`
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nearfar."):
            origins |= {alias.asname or alias.name: str(node.module) for alias in node.names}
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "__all__":
            offered = ast.literal_eval(node.value)
    parts = [f"# nearfar.{room}", ast.get_docstring(tree) or ""]
    groups = [f"nearfar.{room}", *dict.fromkeys(origins.values())]
    for module in groups:
        constants = {target.id for node in parsed(module).body for target in assigned(node) if target.id.isupper()}
        names = [name for name in offered if origins.get(name, groups[0]) == module and name not in constants]
        if names and module != groups[0]:
            parts.append(f"## {first_sentence(module)}")
        parts += [f"::: {module}.{name}" for name in sorted(names, key=lambda n: (n[0].islower(), n))]
    return "\n\n".join(parts) + "\n"


def parsed(module: str) -> ast.Module:
    place = ROOT / "src" / Path(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def assigned(node: ast.stmt) -> list[ast.Name]:
    """The names that a line gives a value."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target for target in targets if isinstance(target, ast.Name)]


def first_sentence(module: str) -> str:
    """Of the docstring of a module, as a heading."""
    docstring = ast.get_docstring(parsed(module)) or module
    words = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"(?<=\w)[.:;] ", words)[0].rstrip(".:")


# What mkdocs calls


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The benchmarks into the navigation, and the search worker's stand-in from here instead of from a server."""
    sys.path.insert(0, str(ROOT / "src"))
    for item in config.nav or []:
        if isinstance(item, dict) and "Benchmarks" in item:
            item["Benchmarks"] += [f"benchmarks/{name}" for name in results()]
    config.extra_javascript = [each for each in config.extra_javascript if "://" not in str(each)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    def add(place: str, **given: Any) -> None:
        level = InclusionLevel.NOT_IN_NAV if place.startswith("files/") else InclusionLevel.UNDEFINED
        files.append(File.generated(config, place, inclusion=level, **given))

    add("reference/command.md", content=command_page())
    add("reference/config.md", content=config_page())
    for room in ROOMS:
        add(f"reference/{room}.md", content=room_page(room))
    pages = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    waiting = [*sorted(f"{RESULTS}{name}" for name in results()), "CHANGELOG.md", "CONTRIBUTING.md"]
    waiting += [name for name in ("examples/README.md",) if (ROOT / name).exists()]
    for origin, text in pages.items():
        waiting += linked(text, origin)
    known: set[str] = set()
    while waiting:
        path = waiting.pop(0)
        if path in known:
            continue
        known.add(path)
        if path.endswith(".png"):
            add(place_of(path), abs_src_path=str(ROOT / path))
            continue
        text = as_page(path)
        add(place_of(path), content=text)
        waiting += linked(text, path)
    config.extra["origins"] = {place_of(path): path for path in known}
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to files of the repository lead to their pages here."""
    place = page.file.src_uri
    origin = config.extra["origins"].get(place, f"docs/{place}")

    def led(found: re.Match[str]) -> str:
        path = repository_path(found["target"], origin)
        if path is None or path == f"docs/{found['target']}":
            return found[0]
        return found["before"] + posixpath.relpath(place_of(path), posixpath.dirname(place) or ".")

    done, last = [], 0
    for code in [*_CODE.finditer(markdown), None]:
        end = len(markdown) if code is None else code.start()
        done.append(_LINK.sub(led, markdown[last:end]))
        if code is not None:
            done.append(code[0])
            last = code.end()
    whole = "".join(done).replace("<!-- results -->", results_table() if "<!-- results -->" in markdown else "")
    return with_tabs(whole)


def with_tabs(markdown: str) -> str:
    """Parts between `<!-- tab: NAME -->` and `<!-- tabs end -->` as tabs; elsewhere they are read one after the other.

    >>> print(with_tabs("<!-- tab: One -->\\na\\n<!-- tab: Two -->\\nb\\n<!-- tabs end -->"))
    === "One"
    <BLANKLINE>
        a
    <BLANKLINE>
    === "Two"
    <BLANKLINE>
        b
    """

    def tabs(found: re.Match[str]) -> str:
        names_and_texts = _TAB.split(found[1])[1:]
        parts = zip(names_and_texts[::2], names_and_texts[1::2], strict=True)
        return "\n\n".join(f'=== "{name}"\n\n{textwrap.indent(text.strip(), "    ")}' for name, text in parts)

    return _TABS.sub(tabs, markdown)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return with_whole_words(with_figures(with_formulas(content, page.file.src_uri)))


def with_figures(content: str) -> str:
    """A picture that stands alone leads to itself in full size.

    >>> with_figures('<p><img alt="Loss" src="lab/nce.png" /></p>')
    '<p><a class="figure" href="lab/nce.png"><img alt="Loss" src="lab/nce.png" /></a></p>'
    """
    return _FIGURE.sub(r'<p><a class="figure" href="\2">\1</a></p>', content)


def with_whole_words(content: str) -> str:
    """Words of code are not broken at a hyphen, a slash or a question mark; outside of tables, where nothing can be
    moved sideways, those that a telephone has room for.

    >>> with_whole_words("<td><code>nearfar train --batch-size 64</code></td>")
    '<td><code>nearfar train <span class="whole">--batch-size</span> 64</code></td>'
    """

    def words(code: re.Match[str], most: int = 32) -> str:
        whole = r'<span class="whole">\g<0></span>'
        return _WORD.sub(lambda word: word.expand(whole) if len(word[0]) <= most else word[0], code[0])

    content = _CELL.sub(lambda cell: _CODE_SPAN.sub(lambda code: words(code, 10_000), cell[0]), content)
    return _CODE_SPAN.sub(words, content)


def with_formulas(content: str, where: str) -> str:
    """What stands between dollars, as MathML, which browsers show without a script.

    >>> with_formulas('<span class="arithmatex">\\\\(a_1 &lt; 2\\\\)</span>', "a page").count("<msub>")
    1
    """

    def shown(found: re.Match[str]) -> str:
        formula = html.unescape(found[3]).strip()
        try:
            done = str(convert(formula, display="block" if found[2] == "[" else "inline"))
        except Exception as error:
            log.warning(f"{where}: the formula {formula!r} cannot be shown: {type(error).__name__} {error}")
            return found[0]
        if unknown := re.search(r"\\[A-Za-z]+", done):
            log.warning(f"{where}: the formula {formula!r} has {unknown[0]}, which is not known")
        if found[2] == "(":
            return spaced(done)
        return f'<div class="formula">{spaced(done)}</div>'

    return _IN_SENTENCE.sub(beside, _FORMULA.sub(shown, content))


def beside(found: re.Match[str]) -> str:
    """A formula and the marks beside it, which would else begin the next line."""
    close = found["close"].replace(" ", "")
    whole = f"{found['open']}{found['math']}{close}"
    return f'<span class="whole">{whole}</span>' if found["open"] or close else whole


def spaced(mathml: str) -> str:
    """Names of functions set apart from what is beside them, and a sign near to what it is of, as in print.

    >>> spaced("<mi>p</mi><mi>log</mi><mi>q</mi>").count("mspace"), spaced("<mi>log</mi><mo>(</mo>").count("mspace")
    (2, 0)
    """

    def apart(found: re.Match[str]) -> str:
        before, after = found["before"] or "", found["after"] or ""
        return before + _SPACE * bool(before) + found["name"] + _SPACE * bool(after) + after

    mathml = _SIGN.sub(r'\1<mo form="prefix">&#x02212;</mo>', mathml)
    return _FUNCTION.sub(apart, mathml.replace("<mo>&#x0002F;</mo>", '<mo lspace="0" rspace="0">&#x0002F;</mo>'))


def is_chinese(place: str) -> bool:
    """
    >>> is_chinese("zh/concepts/index.md"), is_chinese("files/README.zh-CN.md"), is_chinese("lab.md")
    (True, True, False)
    """
    return place.startswith("zh/") or place.endswith(".zh-CN.md")


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """A page says which language it is in. The theme's search has no name for those who hear the page."""
    if is_chinese(page.file.src_uri):
        output = output.replace('<html lang="en"', '<html lang="zh-CN"', 1)
    return output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )


def on_post_build(config: MkDocsConfig) -> None:
    """Nothing that a page needs is fetched from elsewhere."""
    for place in sorted(Path(config.site_dir).rglob("*")):
        if place.suffix in (".html", ".css"):
            for address in fetched(place.read_text(encoding="utf-8")):
                log.warning(f"{place.relative_to(config.site_dir)} fetches {address}")


def fetched(text: str) -> list[str]:
    """Addresses elsewhere from which a page or a style would load something.

    >>> fetched('<script src="https://cdn.example/x.js"></script> <a href="https://example.org">a link is none</a>')
    ['https://cdn.example/x.js']
    """
    return [next(filter(None, found.groups())) for found in _FETCHED.finditer(text)]
