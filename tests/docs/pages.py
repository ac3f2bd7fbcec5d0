"""The README and the docs as what they tell their reader to type: blocks of code, and how each is run or checked.

A page is a story. Its blocks are taken in order, in a folder that holds small data under the names that the pages use,
with one namespace for its Python. A block says in which language it is:

- `python` is run. Runs that it starts are made small. A number beside an expression, as in `f(x)  # 0.881`, is its
  value.
- `sh`: each command of nearfar is run in this process on the small data, its run made small, or, where it takes longer
  than a few seconds, read by its own parser; the slow tests run those, too. Of other programs the form is checked, and
  the nearfar command in them is read.
- `yaml` and `json` are read; what is of a run's configuration must be one.
- `text` is what a command prints.

A recipe is not run again (`--rerun`): it takes minutes, and the slow tests do so elsewhere.

Commands within sentences and tables are read by their own parser.

Where a block has a title, as in ```` ```yaml title="run.yaml" ````, it is a file of that name for what follows.
"""

import argparse
import ast
import contextlib
import io
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from markdown_it import MarkdownIt
from torch import Tensor

from nearfar.cli import COMMANDS, main
from nearfar.config import TrainConfig
from nearfar.evaluation.evaluate_run import evaluate_run
from nearfar.evaluation.protocols import PROTOCOLS, ProtocolConfig
from nearfar.evaluation.results import Results
from nearfar.settings import build

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("README*.md"), *ROOT.glob("examples/*.md"), *(ROOT / "docs").rglob("*.md")],
    key=lambda page: (page.parent != ROOT, str(page)),
)
LANGUAGES = ("python", "sh", "yaml", "json", "text")
# Commands that take seconds even on small data: in `make test` their arguments are read, the slow tests run them.
LONG = ("check", "explore", "lab", "plan")
_EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
_BETWEEN = {";", "&&", "||", "|", "&", "(", ")"}
_WORDS_OF_SHELL = {"if", "then", "else", "elif", "fi", "do", "done", "while", "for", "in", "!"}
_CHECKS_OF_PATHS = (
    *((command, "check_there") for command in ("train", "evaluate", "embed", "doctor")),
    *((command, "check_run_there") for command in ("evaluate", "embed")),
)
_HARMLESS = {".", "source", "cd", "git", "[", "ssh"}  # whose form alone is looked at
_LAUNCHERS = {"torchrun", "srun"}


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    title: str | None  # the file that it is
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Every block of code of a page, in order."""
    found = []
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type not in ("fence", "code_block"):
            continue
        language, _, rest = token.info.strip().partition(" ")
        title = re.search(r'title="([^"]+)"', rest)
        line = (token.map or [0])[0] + 1
        found.append(Block(page, line, language, title[1] if title else None, token.content))
    return found


def code_in_text(page: Path) -> list[str]:
    """What stands as code within sentences and tables, each once."""
    inner = (child for token in MarkdownIt().parse(page.read_text(encoding="utf-8")) for child in token.children or [])
    return list(dict.fromkeys(token.content for token in inner if token.type == "code_inline"))


def commands_in_text(page: Path) -> list[str]:
    """Commands of nearfar and of its scripts; those with a gap (…), or a flag's name alone, are none yet."""
    begun = re.compile(rf"nearfar ({'|'.join(COMMANDS)}) (?!--[\w.-]+$)|python (?!-m|FILE)")
    return [each for each in code_in_text(page) if begun.match(each) and "…" not in each]


def commands(script: str) -> Iterator[list[str]]:
    """The simple commands of a shell script, each as its words.

    >>> list(commands("A=1 nearfar train --out 'my run' \\\\\\n  --seed 1  # once\\nif [ -e x ]; then make test; fi"))
    [['nearfar', 'train', '--out', 'my run', '--seed', '1'], ['[', '-e', 'x', ']'], ['make', 'test']]
    """
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word not in _BETWEEN:
                words.append(word)
                continue
            while words and (words[0] in _WORDS_OF_SHELL or re.fullmatch(r"[A-Za-z_]\w*=.*", words[0])):
                words.pop(0)
            if words:
                yield words
            words = []


class Reader:
    """Does what a page says, as its reader would.

    Args:
        everything: run what takes long, too.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, everything: bool) -> None:
        self.monkeypatch, self.everything = monkeypatch, everything
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        monkeypatch.setattr("nearfar.training.train.build", small)
        monkeypatch.setattr("nearfar.cli.train.build", small)
        monkeypatch.setattr("nearfar.cli.evaluate.build", small)
        monkeypatch.setattr("nearfar.training.final_evaluation.evaluate_run", quickly)  # at the end of a run
        monkeypatch.setattr("nearfar.explore.serve.serve", lambda *_, **__: None)  # which would never end

    def follow(self, page: Path) -> None:
        for block in blocks(page):
            try:
                self.take(block)
            except (Exception, SystemExit) as error:
                raise AssertionError(f"{block.place}: {type(error).__name__}: {error}") from error

    def take(self, block: Block) -> None:
        if block.language not in LANGUAGES:
            expected = ", ".join(LANGUAGES)
            raise ValueError(f"the block is of the language {block.language!r}, expected a fence of one of {expected}")
        if block.title is not None:
            Path(block.title).write_text(block.text)
        if block.language == "python" and block.title is not None:
            compile(block.text, block.title, "exec")  # what follows runs it, or a test of its own
        elif block.language == "python":
            self._python(block)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "yaml":
            self._yaml(block)
        elif block.language == "sh":
            self._shell(block)

    def _python(self, block: Block) -> None:
        lines = block.text.splitlines()
        for statement in ast.parse(block.text).body:
            beside = re.search(r"  # (-?\d+\.(\d+))", lines[(statement.end_lineno or 1) - 1])
            if not isinstance(statement, ast.Expr) or beside is None:
                exec(compile(ast.Module([statement], []), block.place, "exec"), self.namespace)
                continue
            value = eval(compile(ast.Expression(_printed(statement.value)), block.place, "eval"), self.namespace)
            value = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
            found = f"{value:.{len(beside[2])}f}" if isinstance(value, float) else str(value)
            right = found == beside[1] if isinstance(value, float) else beside[1] in found
            assert right, f"line {statement.lineno} gives {found}, the page says {beside[1]}"

    def _yaml(self, block: Block) -> None:
        known = {field.name for field in fields(TrainConfig)}
        for document in yaml.safe_load_all(block.text):
            if isinstance(document, dict) and "apiVersion" not in document:
                assert set(document) & known, f"{list(document)} are no keys of a run"
                build(TrainConfig, document, block.place)
        for found in re.finditer(r"\bnearfar (?:[a-z]+) --[^'\"\n]*", block.text):
            self.read(shlex.split(found[0])[1:])

    def _shell(self, block: Block) -> None:
        form = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True)
        assert form.returncode == 0, form.stderr
        alone = block.title is None and not re.search(r"^\s*if ", block.text, re.MULTILINE)
        for words in commands(block.text):
            self.obey(words, alone=alone)

    def obey(self, words: list[str], *, alone: bool = True) -> None:
        """One command: run or read, by what it is.

        Args:
            alone: it is for the reader to type, not a line of a script for elsewhere.
        """
        program, *rest = words
        rest, into = (rest[:-2], rest[-1]) if rest[-2:-1] == [">"] else (rest, None)
        briefly = bool(rest) and "--rerun" not in rest and (self.everything or rest[0] not in LONG)
        if program == "nearfar" and alone and briefly:
            self.run(rest, into)
        elif program == "nearfar":
            self.read(rest)
        elif program in _LAUNCHERS:
            if Path(words[-1]).suffix == ".py":
                assert Path(words[-1]).is_file(), f"{words[-1]} is no file of this page"
                return
            assert "nearfar" in words, f"{shlex.join(words)} starts nothing of nearfar"
            self.read(words[words.index("nearfar") + 1 :])
        elif program == "make":
            form = subprocess.run([*words, "--dry-run"], cwd=ROOT, capture_output=True, text=True)
            assert form.returncode == 0, form.stderr
        elif program == "pip":
            extras = re.findall(r"nearfar\[([\w,]+)\]", " ".join(words))
            whole = words == ["pip", "install", "nearfar"]
            assert words[:2] == ["pip", "install"] and (extras or whole), (
                f"{shlex.join(words)} installs nothing of ours"
            )
            assert whole or set(extras[0].split(",")) <= set(_EXTRAS), f"there is no extra {extras[0]}"
        elif program == "curl":
            asked_of_the_explorer(rest)
        elif program == "python":
            assert (ROOT / rest[0]).is_file(), f"there is no file {rest[0]}"
            source = (ROOT / rest[0]).read_text(encoding="utf-8")
            for flag in (word.partition("=")[0] for word in rest if word.startswith("--")):
                assert f'"{flag}"' in source, f"{rest[0]} takes no {flag}"
        else:
            assert program in _HARMLESS, f"{program} is no program that the docs may name: there is no way to check it"

    def run(self, words: list[str], into: str | None = None) -> None:
        """As typed, in this process; what it prints goes into a file where one is named."""
        if words[:2] == ["train", "--resume"]:
            words = words[:3]  # with another number of epochs or processes it would take longer
        elif "--seeds" in words:
            words = [*words, "--seeds", "1"]
        elif words[0] == "lab" and "--help" not in words:
            words = [*words, *([] if "--quick" in words else ["--quick"]), "--out", "lab"]
        elif words[0] == "check" and len(words) == 1:
            words = [*words, "--pairs", "256"]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed) if into else contextlib.nullcontext():
            status, said = typed(words)
        assert status == 0, f"nearfar {shlex.join(words)} ends with status {status}: {said}"
        if into:
            Path(into).write_text(printed.getvalue())

    def read(self, words: list[str]) -> None:
        """Every flag and value by the command's own parser, and no further."""
        assert words and words[0] in COMMANDS, f"there is no command {words[:1]}"
        with self.monkeypatch.context() as patch:
            for place in (
                "nearfar.training.train.run",
                "nearfar.training.train.resume_run",
                "nearfar.training.memory_plan.plan",
            ):
                patch.setattr(place, _stop)
            patch.setattr("nearfar.report.refresh.evaluate_to_folder", _stop)
            for command, check in _CHECKS_OF_PATHS:  # pages name files that their readers have
                patch.setattr(f"nearfar.cli.{command}.{check}", lambda *given, **how: None)
            if words[0] not in ("train", "plan", "evaluate"):
                patch.setattr(argparse.ArgumentParser, "parse_args", _stopping(argparse.ArgumentParser.parse_args))
            status, said = typed(words)
        read = status is READ or (status == 0 and "--help" in words)
        assert read, f"nearfar {shlex.join(words)} is refused with status {status}: {said}"


def _printed(expression: ast.expr) -> ast.expr:
    """What a call of print shows, if it is one thing; else the expression."""
    if isinstance(expression, ast.Call) and ast.unparse(expression.func) == "print" and len(expression.args) == 1:
        return expression.args[0]
    return expression


def asked_of_the_explorer(words: list[str]) -> None:
    """A request that curl sends: its address, method and parameters are those of the API."""
    from nearfar.explore.app import make_app

    app = make_app([])
    app.state.service.close()
    address = urlsplit(next(word for word in words if word.startswith("http")))
    assert address.hostname == "127.0.0.1", f"curl asks {address.netloc}, expected the explorer on this machine"
    method = "post" if {"-d", "--data-binary"} & set(words) else "get"
    routes = app.openapi()["paths"]
    assert method in routes.get(address.path, {}), f"there is no {method.upper()} {address.path}"
    known = {each["name"] for each in routes[address.path][method].get("parameters", [])}
    assert set(parse_qs(address.query)) <= known, f"{address.path} takes {sorted(known)}, not {address.query}"


def typed(words: list[str]) -> tuple[object, str]:
    """The exit status of a command, and the last that it said of an error."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            status: object = main(words)
        except SystemExit as end:  # of --help, of a flag that is not known, and of what is read
            status = end.code or 0
    return status, said.getvalue().strip()[-500:]


READ = object()  # the status of a command whose arguments were read, and no more


def _stop(*given: Any, **named: Any) -> None:
    """In place of the work: what the parser let through is looked at once more."""
    config = next((each for each in given if isinstance(each, TrainConfig)), None)
    if config is not None:
        check_names(config)
    unknown = set(named.get("protocols", ())) - {"all", *PROTOCOLS}
    assert not unknown, f"there is no protocol {', '.join(sorted(unknown))}"
    raise SystemExit(READ)


def _stopping(parse: Callable[..., Any]) -> Callable[..., Any]:
    def parsed(*given: Any, **named: Any) -> None:
        parse(*given, **named)
        raise SystemExit(READ)

    return parsed


def check_names(config: TrainConfig) -> None:
    """Method, its options and backbone are there; what is not known is else told only when the run is made."""
    from nearfar import _torchvision  # noqa: F401  before timm
    from nearfar.methods import METHODS
    from nearfar.modalities.image.backbones import OWN
    from nearfar.modalities.sound.backbones import AUDIO
    from nearfar.modalities.table.modality import BACKBONES as TABLES
    from nearfar.modalities.text.encoders import BAG
    from nearfar.nn.sequence import PRESETS as SEQUENCES
    from nearfar.nn.text import PRESETS as TEXTS

    known = METHODS[config.method].options()
    assert set(config.options) <= set(known), f"{config.method} has no option {set(config.options) - set(known)}"
    name = config.backbone
    elsewhere = ("torchvision:", "transformers:", "python:")  # the last is a network of the page itself
    if name not in (*OWN, *AUDIO, *SEQUENCES, BAG, *TABLES, *TEXTS) and not name.startswith(elsewhere):
        import timm

        assert timm.is_model(name), f"there is no backbone {name}"


_SMALLEST = {"image": "micro", "image-text": "micro", "sound": "audio-micro", "text": "text-micro"}
_HEADS = {"dim": 16, "hidden": 32, "predictor_hidden": 32, "queue_size": 64, "noise": 16}


def small(kind: type[Any], values: Any, where: str) -> Any:
    """`nearfar.config.build`, and of what it gives the smallest of its kind: a run of two or three steps."""
    config = build(kind, values, where)
    if isinstance(config, ProtocolConfig):
        return replace(
            config,
            bootstrap=20,
            geometry=replace(config.geometry, views=2),
            sgd=replace(config.sgd, epochs=1),
            finetune=replace(config.finetune, epochs=1, label_fractions=[1.0], per_class=config.finetune.per_class[:1]),
            detection=replace(config.detection, epochs=1, size=64),
            ctc=replace(config.ctc, epochs=1, train_sequences=4, test_sequences=4, hidden=8),
        )
    if not isinstance(config, TrainConfig):
        return config
    check_names(config)
    from nearfar.methods import METHODS

    known = METHODS[config.method].options()
    heads = {name: value for name, value in _HEADS.items() if name in known}
    fixed = config.method == "cpc" or config.weights is not None  # weights are of one backbone
    text = {} if config.text.weights is not None else {"encoder": "text-micro", "vocab_size": 300}
    backbone = config.backbone if fixed else _SMALLEST.get(config.kind, config.backbone)
    return replace(
        config,
        epochs=1,
        steps=None,
        time=None,
        batch_size=min(config.batch_size, 32),
        micro_batch_size=None if config.micro_batch_size is None else 16,
        backbone=backbone,
        image_size=32,
        processes=1,
        options={**config.options, **heads},
        text=replace(config.text, embed_dim=16, **text),
    )


def quickly(encoders: Any, splits: Any, protocols: Sequence[str], **named: Any) -> Results:
    """The evaluation at the end of a run, by the first of its protocols alone."""
    return evaluate_run(encoders, splits, protocols[:1], small(ProtocolConfig, {}, ""), **named)
