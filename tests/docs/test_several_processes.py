"""Each program of the page on several processes says the same on one process and on two, and what the page says."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "several-processes.md"
NEEDS = {"hugging_face_trainer.py": ("transformers", "accelerate")}
PROGRAMS = {block.title: block.text for block in blocks(PAGE) if block.language == "python" and block.title}
SAID = dict(zip(PROGRAMS, re.findall(r"prints `([a-z ]*loss [\d.]+)`", PAGE.read_text(encoding="utf-8")), strict=True))
START = "import sys, runpy\nfrom nearfar import _torchvision\nrunpy.run_path(sys.argv[1], run_name='__main__')\n"


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_processes_say_what_one_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in NEEDS.get(name, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / name).write_text(PROGRAMS[name])
    (tmp_path / "start.py").write_text(START)  # Lightning imports torchvision, whose binary may not fit
    two = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for launcher, times in (([], 1), (two, 2)):
        words = [sys.executable, *launcher, "start.py", name]
        try:
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=150)
        except subprocess.TimeoutExpired:  # processes that did not find each other, seen once on a busy machine
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count(SAID[name]) == times, done.stdout
        assert "the loss compares" not in done.stderr
