"""Nothing phones home: a whole session looks up no name, and connects to nothing but this machine."""

from pathlib import Path

import pytest

from tests.search.pictures import folder_of
from tests.support.network_watch import contacts

SESSION = """
from nearfar.cli import main
settings = ["--weights", "none", "--backbone", "micro", "--steps", "3", "--batch-size", "8", "--image-size", "32"]
def run(*words): assert main(list(words)) == 0, words
run("train", "photos", "--out", "run", "--device", "cpu", *settings)
run("evaluate", "run", "--data", "photos")
run("embed", "run", "photos", "-o", "photos.parquet")
run("report", "run")
run("doctor", "photos")
run("export", "run")
import nearfar, urllib.request, time
with nearfar.explore("run") as page:
    assert urllib.request.urlopen(page.address).status == 200
nearfar.load("run").encode(["photos/class0/0000.png"])
time.sleep(1)
"""


def test_the_watch_sees_what_is_asked_of_the_network(tmp_path: Path) -> None:
    code = "import socket\ntry: socket.create_connection(('example.invalid', 80))\nexcept OSError: pass\n"
    code += "try: socket.create_connection(('192.0.2.1', 80), 0.01)\nexcept OSError: pass"
    assert contacts(code, tmp_path) == ["looked up example.invalid", "looked up 192.0.2.1"]


def test_the_doors_to_libraries_ask_nothing(tmp_path: Path) -> None:
    """onnxruntime, which torchmetrics imports, looked up a host of Microsoft's."""
    code = "import time\nfrom nearfar.training._lightning import lightning\nimport timm\ntime.sleep(1)"
    assert contacts(code, tmp_path) == []


@pytest.mark.slow
def test_a_session_asks_nothing(tmp_path: Path) -> None:
    folder_of(tmp_path / "photos", 40)
    assert contacts(SESSION, tmp_path) == []
