"""One Encoder and one verb: every form of an item gives the same features, and what is no item is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image
from torch import Tensor

import nearfar
from nearfar.model.encoder import Encoder
from tests.support.facts import facts
from tests.support.models import KINDS, save_untrained_of
from tests.support.sounds import RATE

Models = Callable[[str], Encoder]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("encoders")


@pytest.fixture(scope="module")
def model(place: Path) -> Models:
    """The encoder of an untrained run of each modality."""
    found: dict[str, Encoder] = {}

    def of(kind: str) -> Encoder:
        if kind not in found:
            (place / kind).mkdir()
            found[kind] = nearfar.load(save_untrained_of(kind, place / kind))
        return found[kind]

    return of


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def pictures() -> list[Image.Image]:
    """Of several sizes and shapes."""
    rng = np.random.default_rng(0)
    sizes = ((40, 40), (60, 35), (37, 37), (90, 50), (20, 30))
    return [Image.fromarray(rng.integers(0, 256, (h, w, 3), np.uint8)) for w, h in sizes]


def items(kind: str) -> list[Any]:
    """Five items as a user has them, of unequal size or length."""
    if kind.startswith("image"):
        return list(pictures())
    if kind == "sound":
        return [(0.1 * noise(length, seed=n)).numpy() for n, length in enumerate((2000, 900, 2400, 1600, 2000))]
    if kind == "series":
        return [noise(length, seed=n).numpy() for n, length in enumerate((60, 41, 80, 60, 33))]
    return ["a dog runs", "the cat", "the cat sleeps in the rain", "one", "a dog runs in the rain"]


def batch(kind: str) -> Tensor:
    """Raw samples as a tensor."""
    if kind.startswith("image"):
        return torch.randint(0, 256, (4, 3, 40, 50), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    if kind == "sound":
        return (3000 * noise(4, 2000)).to(torch.int16)
    if kind == "series":
        return noise(4, 1, 50)
    return torch.tensor([[1, 9, 12, 2], [1, 7, 2, 0], [1, 5, 2, 0], [1, 2, 0, 0]])


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_gives_what_prepare_and_forward_give(kind: str, model: Models) -> None:
    encoder = model(kind)
    with torch.no_grad():
        wanted = encoder(encoder.prepare(batch(kind)))
    found = encoder.encode(batch(kind))
    assert torch.equal(found, wanted) and found.shape == (4, encoder.num_features)
    assert found.dtype == torch.float32 and not found.requires_grad and found.device.type == "cpu"


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_of_the_batches_does_not_matter(kind: str, model: Models) -> None:
    encoder = model(kind)
    whole = encoder.encode(items(kind))
    assert whole.shape == (5, encoder.num_features) and bool(whole.isfinite().all())
    assert len({tuple(row) for row in whole.tolist()}) == 5
    for size in (1, 2, 4):
        torch.testing.assert_close(encoder.encode(items(kind), batch_size=size), whole, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(encoder.encode(items(kind)[1:2]), whole[1:2], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(encoder.encode(tuple(items(kind)), progress=True), whole)
    if kind == "image-text":
        texts = encoder.encode(items("text"))
        assert texts.shape == whole.shape
        torch.testing.assert_close(encoder.encode(items("text"), batch_size=2), texts, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["image", "image-text"])
def test_every_form_of_an_image(kind: str, model: Models, tmp_path: Path) -> None:
    encoder, wanted = model(kind), model(kind).encode(pictures())
    paths = [tmp_path / f"{number}.png" for number in range(5)]
    for path, picture in zip(paths, pictures(), strict=True):
        picture.save(path)
    arrays = [np.asarray(picture) for picture in pictures()]
    tensors = [torch.from_numpy(array.copy()).permute(2, 0, 1) for array in arrays]
    forms: list[list[Any]] = [
        paths,
        [str(path) for path in paths],
        [path.read_bytes() for path in paths],
        [path.open("rb") for path in paths],
        arrays,
        tensors,
        [x / 255 for x in tensors],
        [array[::-1].copy()[::-1] for array in arrays],
        [picture.convert("RGBA") for picture in pictures()],
    ]
    for form in forms:
        assert torch.equal(encoder.encode(form), wanted), type(form[0])
    grays = [picture.convert("L") for picture in pictures()]
    assert torch.equal(encoder.encode([np.asarray(gray) for gray in grays]), encoder.encode(grays))
    square = np.stack([arrays[0], arrays[0][::-1]])
    assert torch.equal(encoder.encode(square), encoder.encode(list(square)))


def test_every_form_of_a_sound(model: Models, tmp_path: Path) -> None:
    encoder = model("sound")
    waves = [(3000 * noise(length, seed=length)).to(torch.int16) for length in (2000, 900, 4000)]
    wanted = encoder.encode(waves)
    paths = [tmp_path / f"{number}.wav" for number in range(3)]
    for path, wave in zip(paths, waves, strict=True):
        soundfile.write(path, wave.numpy(), RATE, subtype="PCM_16")
    forms: list[list[Any]] = [
        paths,
        [str(path) for path in paths],
        [path.open("rb") for path in paths],
        [wave.numpy() for wave in waves],
        [wave.flip(0).numpy()[::-1] for wave in waves],
        [wave / 32_767 for wave in waves],
        [wave.numpy() / 32_767 for wave in waves],
    ]
    for form in forms:
        torch.testing.assert_close(encoder.encode(form), wanted, atol=1e-5, rtol=1e-4)
    both = torch.stack([waves[0], waves[0].flip(0)])
    assert torch.equal(encoder.encode(both / 32_767), encoder.encode(list(both)))
    assert encoder.has_frames and not encoder.reads_texts


def test_every_form_of_a_series(model: Models) -> None:
    encoder = model("series")
    series = [noise(length, seed=length) for length in (60, 41)]
    wanted = encoder.encode(series)
    forms: list[list[Any]] = [
        [x.numpy() for x in series],
        [x.flip(0).numpy()[::-1] for x in series],
        [x.double().numpy() for x in series],
        [x[None] for x in series],
        [x.tolist() for x in series],
    ]
    for form in forms:
        assert torch.equal(encoder.encode(form), wanted), type(form[0])
    padded = torch.full((2, 1, 60), torch.nan)
    padded[0, 0], padded[1, 0, :41] = series
    assert torch.equal(encoder.encode(padded), wanted)


def test_an_encoder_of_both_finds_out_what_the_items_are(model: Models, tmp_path: Path) -> None:
    encoder, picture = model("image-text"), tmp_path / "cat.png"
    pictures()[0].save(picture)
    seen, read = encoder.encode(pictures()[:1]), encoder.encode(["cat.png"], kind="text")
    assert torch.equal(encoder.encode([str(picture)]), seen) and torch.equal(encoder.encode([picture]), seen)
    assert torch.equal(encoder.encode(["cat.png"]), read)  # not a file here
    assert not torch.equal(encoder.encode([str(picture)], kind="text"), seen)
    for size in (1, 2):
        with pytest.raises(ValueError, match=facts("image text")):
            encoder.encode(["a cat", str(picture)], batch_size=size)
    with pytest.raises(ValueError, match=facts("gone.png picture")):
        encoder.encode(["gone.png"], kind="image")
    tokens = encoder.modality.batch(["a cat"], "text")
    assert torch.equal(encoder.encode(tokens, kind="text"), encoder.encode(["a cat"]))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_list_of_items_is_refused(kind: str, model: Models) -> None:
    encoder = model(kind)
    for none in ([], (), torch.zeros(0, 3, 32, 32), np.zeros((0, 4))):
        with pytest.raises(ValueError, match=facts("empty")):
            encoder.encode(none)
    with pytest.raises(ValueError, match=facts("batch_size 0")):
        encoder.encode(items(kind), batch_size=0)
    with pytest.raises(ValueError, match=facts("'smell'")):
        encoder.encode(items(kind), kind="smell")
    if kind != "image-text":
        other = "image" if kind == "text" else "text"
        with pytest.raises(ValueError, match=facts(f"'{other}' {kind}")):
            encoder.encode(items(kind), kind=other)


@pytest.mark.parametrize(
    ("kind", "given", "error", "told"),
    [
        ("image", [3], TypeError, "int"),
        ("image", ["gone.png"], ValueError, "gone.png"),
        ("image", [b"no picture"], ValueError, "picture"),
        ("image", [np.zeros((6, 6, 5), np.uint8)], ValueError, "(6, 6, 5)"),
        ("image", torch.zeros(2, 5, 6, 7), ValueError, "(2, 5, 6, 7)"),
        ("image", np.zeros((2, 2, 8, 8, 3), np.uint8), ValueError, "(2, 2, 8, 8, 3)"),
        ("sound", ["gone.wav"], ValueError, "gone.wav"),
        ("sound", [b"no sound"], ValueError, "sound"),
        ("sound", [np.zeros((2, 9), np.int16)], ValueError, "(2, 9)"),
        ("sound", [np.zeros(0, np.int16)], ValueError, "(0,)"),
        ("sound", torch.zeros(900), ValueError, "(900,)"),
        ("sound", torch.zeros(2, 1, 900), ValueError, "(2, 1, 900)"),
        ("series", ["a.csv"], TypeError, "array"),
        ("series", [np.zeros((2, 9))], ValueError, "(2, 9) 1"),
        ("series", [np.zeros(0)], ValueError, "(1, 0)"),
        ("series", torch.zeros(2, 50), ValueError, "(2, 50)"),
        ("series", torch.zeros(2, 3, 50), ValueError, "(2, 3, 50) 1"),
        ("text", [3], TypeError, "int"),
        ("text", [None], TypeError, "NoneType"),
        ("text", torch.zeros(2, 4), TypeError, "float32"),
        ("text", torch.zeros(4, dtype=torch.long), ValueError, "(4,)"),
    ],
)
def test_what_is_no_item_is_refused_in_a_line(
    kind: str, given: Any, error: type[Exception], told: str, model: Models
) -> None:
    with pytest.raises(error, match=facts(told)) as raised:
        model(kind).encode(given)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", KINDS)
def test_the_encoder_is_left_as_it_was(kind: str, model: Models) -> None:
    encoder = model(kind)
    wanted, before = encoder.encode(items(kind)), {name: x.clone() for name, x in encoder.state_dict().items()}
    encoder.train()
    try:
        assert torch.equal(encoder.encode(items(kind)), wanted)  # without dropout, by the statistics of training
        with pytest.raises((TypeError, ValueError)):
            encoder.encode([object()])
        assert encoder.training
    finally:
        encoder.eval()
    assert all(torch.equal(x, before[name]) for name, x in encoder.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
def test_untrained_is_the_same_network_with_other_weights(kind: str, model: Models, place: Path) -> None:
    fresh, again = (nearfar.load(place / kind / "run", untrained=True) for _ in range(2))
    assert fresh.digest() == again.digest() and fresh.num_features == model(kind).num_features
    assert torch.equal(fresh.encode(items(kind)), again.encode(items(kind)))
    assert nearfar.load(place / kind / "run").digest() == model(kind).digest()


def test_an_unknown_device_is_told_by_its_name(model: Models, place: Path) -> None:
    model("image")
    with pytest.raises(ValueError, match=facts("device 'tpu' cpu")):
        nearfar.load(place / "image" / "run", device="tpu")
    assert nearfar.load(place / "image" / "run", device="auto").device.type
