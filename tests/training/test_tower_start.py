"""Projections of towers with weights, fitted before the first step."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from rich.console import Console

import nearfar
from nearfar.config import TrainConfig, completed
from nearfar.nn.first_features import keep_first
from nearfar.nn.towers import Tower, TwoTowers
from nearfar.settings import build
from nearfar.training.setup import TrainingSetup
from nearfar.training.tower_start import centred_hidden, fit_projections, ridge, whitening_matrix
from nearfar.weights.packages import is_installed

WORDS = ["red", "green", "blue", "white", "black", "yellow", "purple", "gray"]
SHADES = ["red", "lime", "blue", "white", "black", "yellow", "purple", "gray"]
installed = pytest.mark.skipif(not is_installed("minilm"), reason="needs the extra weights")


def test_a_whitened_projection_makes_the_strongest_directions_equally_large() -> None:
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(4000, 6, generator=generator) @ torch.diag(torch.tensor([30.0, 9.0, 8.0, 8.0, 7.0, 0.01])) + 3
    z = h @ whitening_matrix(h, 4)
    torch.testing.assert_close(z.T @ z / len(z), torch.eye(4), atol=0.15, rtol=0)  # shrinkage makes weak ones smaller
    assert whitening_matrix(h, 9).shape == (6, 9)


def test_ridge_finds_a_linear_map() -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(500, 5, generator=generator), torch.randn(5, 3, generator=generator)
    torch.testing.assert_close(ridge(x, x @ weight), weight / 1.03, atol=0.02, rtol=0.02)


def setup_of(folder: Path, method: str, *, towers: bool = True) -> TrainingSetup:
    lines = ["path,caption"]
    for i in range(48):
        shade = SHADES[i % 8]
        picture = Image.new("RGB", (48, 48), shade)
        picture.paste("orange", (i // 8 * 6, 3, i // 8 * 6 + 8, 12))
        picture.save(folder / f"{i}.png")
        lines.append(f"{i}.png,a {WORDS[i % 8]} square")
    (folder / "pairs.csv").write_text("\n".join(lines))
    given = {"data": {"path": str(folder / "pairs.csv"), "validation": 0.0}, "method": method, "device": "cpu"}
    given |= {"weights": "package:efficientnet-lite0", "steps": 2, "batch_size": 16}
    given |= {"text": {"weights": "package:minilm"}} if towers else {"text": {"encoder": "text-micro"}}
    config: TrainConfig = build(TrainConfig, completed(given), "train")
    return TrainingSetup(config, Console(quiet=True))


@installed
def test_fitted_towers_find_captions_before_the_first_step_and_again_after_a_resume(tmp_path: Path) -> None:
    setup = setup_of(tmp_path, "lit")
    assert setup.config.adapt.projections == "fitted" and setup.config.text.projection_width > 1000
    assert fit_projections(setup, Console(quiet=True)) > 0
    towers = setup.method.encoder.eval()
    features = setup.train.tower_features
    assert features is not None and len(features) == 48
    with torch.no_grad():
        z = F.normalize(towers.first(features), dim=1)
        t = F.normalize(
            towers.second(setup.modality.batch([f"a {word} square" for word in WORDS], "text").long()), dim=1
        )
    assert (z @ t.T).argmax(1).tolist() == [i % 8 for i in range(48)]
    again = setup_of(tmp_path, "lit")
    fit_projections(again, Console(quiet=True))
    for name, x in setup.method.state_dict().items():
        assert torch.equal(x, again.method.state_dict()[name]), name


def test_a_hidden_layer_gives_more_names_their_places_than_the_text_has_features() -> None:
    """200 names of 8 features, whose images lie anywhere: no matrix can tell them apart."""
    generator = torch.Generator().manual_seed(0)
    texts, images = (F.normalize(torch.randn(200, n, generator=generator), dim=1) for n in (8, 64))
    right = {}
    for width in (0, 1024):
        torch.manual_seed(0)
        tower = Tower(Features(8), 64, hidden=width)
        with torch.no_grad():
            tower.last.weight.copy_(ridge(centred_hidden(tower, texts), images).T)
            found = F.normalize(tower(texts), dim=1) @ images.T
        right[width] = float((found.argmax(1) == torch.arange(200)).double().mean())
    assert right[0] < 0.5 and right[1024] > 0.9
    assert keep_first(TwoTowers(Features(8), Features(8), embed_dim=6, second_hidden=4), 2).second(texts).shape[1] == 2


class Features(torch.nn.Module):
    """Features as they are."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.num_features = features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@installed
def test_a_locked_tower_trains_on_its_features_and_another_on_views(tmp_path: Path) -> None:
    index = torch.arange(4)
    for method, dims in (("lit", 2), ("clip", 4)):
        setup = setup_of(tmp_path, method)
        fit_projections(setup, Console(quiet=True))
        samples = setup.train.fetch(index)
        views = setup.modality.views(samples, setup.train, index, seed=0, step=0)
        rows = setup.modality.views_of_rows(samples, setup.train, index, seed=0, step=0)(slice(1, 3))
        assert views[0].ndim == rows[0].ndim == dims
        assert method == "clip" or torch.equal(rows[0], views[0][1:3])
        assert torch.equal(rows[1], views[1][1:3])


@installed
def test_a_run_from_two_towers_ends_and_opens(tmp_path: Path) -> None:
    config = setup_of(tmp_path, "lit").config
    encoder = nearfar.train(config.data.path, method="lit", weights=config.weights, text={"weights": "package:minilm"},
                            steps=2, batch_size=16, device="cpu", out=tmp_path / "run")  # fmt: skip
    assert encoder.encode(["a red square"], kind="text").shape[1] == encoder.encode([tmp_path / "1.png"]).shape[1]


@installed
def test_only_towers_with_weights_are_fitted(tmp_path: Path) -> None:
    setup = setup_of(tmp_path, "clip", towers=False)
    assert fit_projections(setup, Console(quiet=True)) == 0
    assert setup.train.tower_features is None
