"""A text finds pictures, in a file that the same two towers made."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from nearfar.modalities.image.views.prepare import Preparation
from nearfar.model.encoder import Encoder
from nearfar.model.foreign.towers import ForeignModel, as_encoder
from nearfar.search.embed import embed
from nearfar.search.files import Embeddings
from nearfar.search.query import encode_query
from nearfar.search.search import search
from tests.search.pictures import encoder_in, folder_of
from tests.support.facts import facts

COLORS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


class Colors(nn.Module):
    """The mean colour of a picture, and the colour that a text names."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3))


def color_towers() -> Encoder:
    def see(network: Colors, x: Tensor) -> Tensor:
        return x.mean((2, 3)) @ network.weight

    def tokenize(texts: list[str]) -> Tensor:
        return torch.tensor([[float(name in text) for name in COLORS] for text in texts])

    def read(network: Colors, tokens: Tensor) -> Tensor:
        return 7 * tokens @ network.weight

    plain = Preparation(16, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    return as_encoder(ForeignModel("colours", Colors(), see, tokenize, read, 100.0, plain))


@pytest.fixture
def file(tmp_path: Path) -> Embeddings:
    for name, color in COLORS.items():
        (tmp_path / "pictures").mkdir(exist_ok=True)
        Image.new("RGB", (24, 24), color).save(tmp_path / "pictures" / f"{name}.png")
    return Embeddings(embed(color_towers(), tmp_path / "pictures", tmp_path / "x.parquet", progress=False).path)


@pytest.mark.parametrize("name", COLORS)
def test_a_text_finds_its_picture(file: Embeddings, name: str, tmp_path: Path) -> None:
    hits = search(encode_query(color_towers(), file, f"a {name} square", "text"), file, k=3)
    assert Path(file.names()[int(hits.rows[0, 0])]).stem == name
    assert float(hits.similarities[0, 0]) == pytest.approx(1, abs=1e-5)
    seen = encode_query(color_towers(), file, tmp_path / "pictures" / f"{name}.png", "image")
    assert int(search(seen, file, k=1).rows) == int(hits.rows[0, 0])


def test_what_cannot_be_asked_is_told_in_a_line(file: Embeddings, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=facts("encoder text")):
        encode_query(encoder_in(tmp_path / "run"), file, "a red square", "text")
    with pytest.raises(ValueError, match=facts("text empty")):
        encode_query(color_towers(), file, "  ", "text")
    other = color_towers()
    nn.init.zeros_(other.backbone.network.weight)  # type: ignore[union-attr, arg-type]
    with pytest.raises(ValueError, match=facts("encoder")):
        encode_query(other, file, "red", "text")
    foreign = Embeddings(embed(encoder_in(tmp_path / "run2"), folder_of(tmp_path / "b", 2), tmp_path / "y.npz").path)
    foreign.about.clear()
    with pytest.raises(ValueError, match=facts("text (1, 3)")):
        encode_query(color_towers(), foreign, "red", "text")
