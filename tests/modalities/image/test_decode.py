"""Every kind of picture comes out with the right pixels; every broken one with a reason."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from nearfar.data.config import ReadConfig
from nearfar.data.python_data import as_data
from nearfar.modalities.image.data.decode import decode, why
from nearfar.modalities.image.data.opening import open_images
from tests.support.facts import facts, tells

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def quarters(*colors: tuple[int, ...], side: int = 16) -> NDArray[np.uint8]:
    """A square of four plain quarters: top left, top right, bottom left, bottom right."""
    corners = np.array(colors, np.uint8).reshape(2, 2, -1)
    return corners.repeat(side // 2, 0).repeat(side // 2, 1)


def corners(image: NDArray[np.uint8]) -> list[tuple[int, ...]]:
    """The middle pixel of each quarter."""
    near, far = len(image) // 4, 3 * len(image) // 4
    return [tuple(image[y, x].tolist()) for y in (near, far) for x in (near, far)]


def close(seen: list[tuple[int, ...]], expected: list[tuple[int, ...]], tolerance: int = 0) -> bool:
    return bool(np.abs(np.array(seen) - np.array(expected)).max() <= tolerance)


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".tif", ".tiff", ".webp"])
def test_lossless_kinds_keep_every_pixel(tmp_path: Path, suffix: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / f"a{suffix}", lossless=True)  # a word for WebP; the others ignore it
    assert np.array_equal(decode(tmp_path / f"a{suffix}", 16), pixels)


def test_jpeg(tmp_path: Path) -> None:
    Image.fromarray(quarters(RED, GREEN, BLUE, WHITE, side=64)).save(tmp_path / "a.jpg", quality=95, subsampling=0)
    for size in (64, 32, 8):  # 8: the decoder halves as it decodes
        assert close(corners(decode(tmp_path / "a.jpg", size)), [RED, GREEN, BLUE, WHITE], 6)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "1", "I;16"])
def test_short_side_to_size_then_the_middle(tmp_path: Path, mode: str) -> None:
    """A wide picture, black - white - black: only the white middle square is kept."""
    wide = np.zeros((20, 60), np.uint8)
    wide[:, 20:40] = 255
    image = Image.fromarray(wide)
    if mode == "I;16":
        image = Image.fromarray(wide.astype(np.uint16) * 257)
    image = image if image.mode == mode else image.convert(mode)
    image.save(tmp_path / "a.png")
    image.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "b.png")
    for name in ("a.png", "b.png"):
        for size in (20, 10, 40):
            assert decode(tmp_path / name, size)[1:-1, 1:-1].min() >= 254  # the outermost blend with what was cut off


def test_shrinking_is_antialiased(tmp_path: Path) -> None:
    checks = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
    Image.fromarray(checks).save(tmp_path / "a.png")
    small = decode(tmp_path / "a.png", 8)
    assert small.min() >= 120 and small.max() <= 135


def test_palette(tmp_path: Path) -> None:
    Image.fromarray(quarters(RED, GREEN, BLUE, WHITE)).convert("P", palette=Image.Palette.ADAPTIVE).save(
        tmp_path / "a.png"
    )
    assert Image.open(tmp_path / "a.png").mode == "P"
    assert close(corners(decode(tmp_path / "a.png", 16)), [RED, GREEN, BLUE, WHITE], 1)


def test_transparent_palette_lies_on_white(tmp_path: Path) -> None:
    image = Image.fromarray(quarters((0,), (1,), (2,), (0,))[:, :, 0], "P")
    image.putpalette([0, 0, 0, *RED, *BLUE])
    image.save(tmp_path / "a.png", transparency=0)
    assert corners(decode(tmp_path / "a.png", 16)) == [WHITE, RED, BLUE, WHITE]


def test_transparency_lies_on_white(tmp_path: Path) -> None:
    pixels = quarters((0, 0, 0, 0), (255, 0, 0, 255), (0, 0, 0, 128), (0, 0, 255, 51))
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert close(corners(decode(tmp_path / "a.png", 16)), [WHITE, RED, (127, 127, 127), (204, 204, 255)], 1)
    Image.fromarray(quarters((0, 0), (0, 255), (100, 255), (100, 0))).save(tmp_path / "la.png")
    assert corners(decode(tmp_path / "la.png", 16)) == [WHITE, (0, 0, 0), (100, 100, 100), WHITE]


def test_transparent_color_of_a_png_without_alpha(tmp_path: Path) -> None:
    Image.fromarray(quarters(RED, GREEN, BLUE, RED)).save(tmp_path / "a.png", transparency=RED)
    assert corners(decode(tmp_path / "a.png", 16)) == [WHITE, GREEN, BLUE, WHITE]


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_sixteen_bits_keep_the_high_byte(tmp_path: Path, suffix: str) -> None:
    values = np.array([[0, 0x1234], [0x80FF, 0xFFFF]], np.uint16).repeat(8, 0).repeat(8, 1)
    Image.fromarray(values).save(tmp_path / f"a{suffix}")
    seen = corners(decode(tmp_path / f"a{suffix}", 16))
    assert [pixel[0] for pixel in seen] == [0, 0x12, 0x80, 0xFF]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.2, 0.6, 1.0], [0, 51, 153, 255]),
        ([0.0, 10.0, 200.0, 255.0], [0, 10, 200, 255]),
        ([-1.0, 0.0, 0.5, 1.0], [0, 128, 191, 255]),
    ],
)
def test_real_numbers(tmp_path: Path, values: list[float], expected: list[int]) -> None:
    Image.fromarray(np.array(values, np.float32).reshape(2, 2).repeat(8, 0).repeat(8, 1)).save(tmp_path / "a.tif")
    assert Image.open(tmp_path / "a.tif").mode == "F"
    assert [pixel[0] for pixel in corners(decode(tmp_path / "a.tif", 16))] == expected


def test_wide_whole_numbers(tmp_path: Path) -> None:
    values = np.array([0, 256, 0x8000, 0xFFFF], np.int32).reshape(2, 2).repeat(8, 0).repeat(8, 1)
    Image.fromarray(values).save(tmp_path / "a.tif")
    assert [pixel[0] for pixel in corners(decode(tmp_path / "a.tif", 16))] == [0, 1, 0x80, 0xFF]


def test_one_bit_and_gray(tmp_path: Path) -> None:
    one = np.array([[0, 1], [1, 0]], bool).repeat(8, 0).repeat(8, 1)
    Image.fromarray(one).save(tmp_path / "a.png")
    assert corners(decode(tmp_path / "a.png", 16)) == [(0, 0, 0), WHITE, WHITE, (0, 0, 0)]
    Image.fromarray(quarters((0,), (77,), (200,), (255,))[:, :, 0]).save(tmp_path / "b.png")
    assert [pixel for pixel, *_ in corners(decode(tmp_path / "b.png", 16))] == [0, 77, 200, 255]


@pytest.mark.parametrize("suffix", [".jpg", ".tif"])
def test_cmyk(tmp_path: Path, suffix: str) -> None:
    image = Image.fromarray(quarters(RED, GREEN, BLUE, WHITE)).convert("CMYK")
    image.save(tmp_path / f"a{suffix}", quality=95)
    assert close(corners(decode(tmp_path / f"a{suffix}", 16)), [RED, GREEN, BLUE, WHITE], 12)


@pytest.mark.parametrize(
    ("orientation", "order"),
    [(1, (0, 1, 2, 3)), (2, (1, 0, 3, 2)), (3, (3, 2, 1, 0)), (6, (2, 0, 3, 1)), (8, (1, 3, 0, 2))],
)
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_exif_turns_the_picture_upright(tmp_path: Path, suffix: str, orientation: int, order: tuple[int, ...]) -> None:
    colors = [RED, GREEN, BLUE, WHITE]
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(quarters(*colors, side=64)).save(tmp_path / f"a{suffix}", exif=exif, quality=95)
    assert close(corners(decode(tmp_path / f"a{suffix}", 16)), [colors[i] for i in order], 12)


@pytest.mark.parametrize("suffix", [".gif", ".webp", ".png", ".tif"])
def test_first_frame_of_the_animated(tmp_path: Path, suffix: str) -> None:
    frames = [Image.new("RGB", (16, 16), color) for color in (RED, GREEN, BLUE)]
    frames[0].save(tmp_path / f"a{suffix}", save_all=True, append_images=frames[1:])
    assert close(corners(decode(tmp_path / f"a{suffix}", 16)), [RED] * 4, 3)


def bomb(side: int) -> bytes:
    """A PNG whose header alone claims side × side pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))


def reason(path: Path) -> str:
    with pytest.raises(Exception) as error:  # which kind is Pillow's choice; the words are ours
        decode(path, 16)
    assert isinstance(error.value, Exception)
    assert "\n" not in why(error.value)
    return why(error.value)


def test_broken_files_say_why(tmp_path: Path) -> None:
    whole = tmp_path / "whole.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)).save(whole)
    Image.open(whole).save(tmp_path / "whole.jpg")
    for kind in ("png", "jpg"):
        data = (tmp_path / f"whole.{kind}").read_bytes()
        (tmp_path / f"cut.{kind}").write_bytes(data[: len(data) // 2])
        assert "truncated" in reason(tmp_path / f"cut.{kind}")
    (tmp_path / "text.jpg").write_text("this is no picture")
    assert tells(reason(tmp_path / "text.jpg"), "image")
    (tmp_path / "empty.png").touch()
    assert tells(reason(tmp_path / "empty.png"), "image")
    (tmp_path / "bomb.png").write_bytes(bomb(60_000))
    assert "bomb" in reason(tmp_path / "bomb.png")
    assert tells(reason(tmp_path / "gone.png"), "not found")


def test_pixel_limit(tmp_path: Path) -> None:
    Image.new("RGB", (20, 30)).save(tmp_path / "a.png")
    Image.new("RGB", (20, 30)).save(tmp_path / "a.jpg")
    decode(tmp_path / "a.jpg", 8, pixel_limit=600)
    with pytest.raises(ValueError, match=facts("20×30 599")):
        decode(tmp_path / "a.jpg", 8, pixel_limit=599)
    decode(tmp_path / "a.png", 8, pixel_limit=2400)  # what is decoded whole takes more memory: a quarter
    with pytest.raises(ValueError, match=facts("20×30 599")):
        decode(tmp_path / "a.png", 8, pixel_limit=2399)


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (3, 2)])
def test_tiny_and_thin(tmp_path: Path, shape: tuple[int, int]) -> None:
    Image.new("RGB", shape, (10, 200, 30)).save(tmp_path / "a.png")
    assert np.array_equal(decode(tmp_path / "a.png", 8), np.full((8, 8, 3), (10, 200, 30), np.uint8))


@pytest.mark.parametrize(("most", "bits"), [(1000, 10), (4095, 12), (16_383, 14), (65_535, 16)])
def test_wide_numbers_keep_their_highest_bits(tmp_path: Path, most: int, bits: int) -> None:
    values = np.linspace(0, most, 64, dtype=np.uint16).reshape(8, 8)
    Image.fromarray(values).save(tmp_path / "wide.png")
    found = decode(tmp_path / "wide.png", 8)[..., 0]
    np.testing.assert_array_equal(found, values >> (bits - 8))


def test_avif_is_read_and_heic_without_its_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nearfar.modalities.image.data import decode as module

    Image.new("RGB", (16, 16), RED).save(tmp_path / "a.avif")
    assert decode(tmp_path / "a.avif", 8)[4, 4].astype(int).tolist() == pytest.approx(RED, abs=8)
    monkeypatch.setattr(module, "read_heif", lambda: False)
    (tmp_path / "b.heic").write_bytes(b"\0\0\0\x18ftypheic")
    with pytest.raises(ValueError, match=facts("HEIC pillow-heif nearfar[heic]")):
        decode(tmp_path / "b.heic", 8)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_no_picture(tmp_path: Path, value: float) -> None:
    """They came out black: with values below 0 beside them, as dB, almost white."""
    values = np.full((8, 8), 0.5, np.float32)
    values[3, 3] = value
    Image.fromarray(values).save(tmp_path / "a.tif")
    with pytest.raises(ValueError, match=facts("finite")):
        decode(tmp_path / "a.tif", 8)
    several = [np.full((8, 8, 3), 0.5, np.float32) for _ in range(3)]
    several[1][2, 2, 0] = value
    data = open_images(as_data(several).path, ReadConfig(stored_size=8))
    assert data.names == ["0", "2"] and [each.path for each in data.skipped] == ["1"]
    assert int(data.fetch(torch.arange(2)).max()) == 128  # the scale is that of the others
    with pytest.raises(ValueError, match=facts("image 1 finite")):
        open_images(as_data(np.stack(several)).path, ReadConfig(stored_size=8))
