"""Every export opens in a process that never imports nearfar, by the programs that the how-to page gives."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nearfar._torchvision import COMPILED
from nearfar.model.export import FORMATS
from nearfar.model.export.export import export
from nearfar.model.load import load
from tests.model.test_export import images, run_of

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r'```python title="(\w+)\.py"\n(.*?)```', PAGE, re.DOTALL))
REFUSE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        assert name.split(".")[0] != "nearfar", "nearfar was imported"
sys.meta_path.insert(0, Refuse())
"""
CHECK = """
import torch
torch.testing.assert_close(torch.as_tensor(features), torch.load("expected.pt"), rtol=1e-3, atol=1e-4)
"""


def test_the_page_has_a_program_for_every_format() -> None:
    assert {f"open_{kind.replace('-', '_')}" for kind in FORMATS} <= PROGRAMS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_an_export_opens_without_nearfar(kind: str, tmp_path: Path) -> None:
    run = run_of("torchvision:resnet18" if kind == "torchvision" else "resnet10t", 96, tmp_path / "run")
    known = FORMATS[kind]
    export(run, kind, tmp_path / f"photos{'' if known.kind == 'graph' else f'-{kind}'}{Path(known.path).suffix}")
    prepared = images(2, 96)
    torch.save(prepared, tmp_path / "prepared.pt")
    torch.save(load(run)(prepared).detach(), tmp_path / "expected.pt")
    shim = "" if COMPILED else PROGRAMS["torchvision_on_cpu"]
    (tmp_path / "torchvision_on_cpu.py").write_text(shim)
    program = REFUSE + PROGRAMS[f"open_{kind.replace('-', '_')}"] + (CHECK if kind != "nearfar" else "")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-1500:]
