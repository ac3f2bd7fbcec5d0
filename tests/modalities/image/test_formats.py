"""Kinds of pictures: what is read is a list, whatever a file is called."""

import ast
import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import nearfar
from nearfar.doctor.scan import scan
from nearfar.modalities.image.data.decode import decode, opened, readable_formats, why
from nearfar.modalities.image.data.opening import image_files, open_images
from tests.search.pictures import encoder_in
from tests.support.facts import tells

PACKAGE = Path(nearfar.__file__).parent
POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 40 40\n%%EndComments\nshowpage\n%%EOF\n"


@pytest.fixture
def ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `gs` that leaves a mark when it is run."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path / 'RUN'}\nexit 1\n")
    (programs / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)
    return tmp_path / "RUN"


@pytest.mark.parametrize("content", [POSTSCRIPT, b"\xc5\xd0\xd3\xc6" + POSTSCRIPT, b"\n" + POSTSCRIPT])
def test_postscript_reaches_no_program(content: bytes, ghostscript: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    Image.fromarray(np.full((40, 40, 3), 90, np.uint8)).save(folder / "a.png")
    (folder / "photo.jpg").write_bytes(content)
    with pytest.raises(Exception) as error:
        decode(folder / "photo.jpg", 16)
    assert tells(why(error.value), "kind JPEG PNG")
    data = open_images(folder, stored_size=16, cache=tmp_path / "cache")
    assert [Path(skipped.path).name for skipped in data.skipped] == ["photo.jpg"]
    assert len(scan(image_files(folder), label=False).broken) == 1
    with pytest.raises(ValueError, match="photo"):
        encoder_in(tmp_path / "run").encode([folder / "photo.jpg"])
    assert not ghostscript.exists()


@pytest.mark.parametrize("kind", ["JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF"])
def test_all_usual_kinds_are_read(kind: str) -> None:
    if kind not in readable_formats():
        pytest.skip(f"this Pillow has no {kind}")
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(file, kind)
    assert decode(file, 8)[4, 4, 0] > 240


def test_pixels_are_limited_before_they_are_decoded() -> None:
    file = io.BytesIO()
    Image.new("1", (300, 200)).save(file, "PNG")
    with pytest.raises(ValueError, match="300×200"):
        opened(file, pixel_limit=50_000)


def test_every_picture_is_opened_by_one_function() -> None:
    found = [
        file.name
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "Image.open"
        and not any(keyword.arg == "formats" for keyword in node.keywords)
    ]
    assert not found
