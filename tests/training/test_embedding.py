"""The transform of a run: chosen without labels at its end, stored, and the same after a resume."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nearfar.data.dataset import ArrayDataset
from nearfar.evaluation.embedding_transform import EmbeddingChoice, choose_transform, retrieval
from nearfar.evaluation.evaluate_run import evaluate_run
from nearfar.modalities import make_modality
from nearfar.model.card import make_card
from nearfar.model.encoder import Encoder
from nearfar.model.load import load
from nearfar.nn.whitening import fit_transform
from nearfar.training.run import Run
from tests.support.facts import tells
from tests.training.runs import QUIET, config


def finished(folder: Path, **settings: Any) -> Run:
    run = Run(config("simclr", **settings), folder, resume=False, console=QUIET)
    run.execute()
    return run


def test_a_run_stores_what_it_chose_and_a_resume_finds_the_same(tmp_path: Path, train_only: None) -> None:
    run = finished(tmp_path / "run")
    stated = json.loads((tmp_path / "run" / "card.json").read_text())["embedding"]
    assert stated["setting"] == "auto" and stated["kind"] in stated["scores"] and set(stated["scores"]) >= {"plain"}
    first = load(tmp_path / "run")
    assert torch.equal(first(torch.zeros(1, 3, 16, 16)), run.trained_encoder()(torch.zeros(1, 3, 16, 16)))
    again = Run(run.setup.config, tmp_path / "run", resume=True, console=QUIET)
    again.execute()
    assert load(tmp_path / "run").digest() == first.digest()
    assert json.loads((tmp_path / "run" / "card.json").read_text())["embedding"] == stated


@pytest.mark.parametrize("kind", ["plain", "centered", "standardized", "whitened"])
def test_a_kind_may_be_asked_for(kind: str, tmp_path: Path, train_only: None) -> None:
    finished(tmp_path / "run", embedding=kind, epochs=1)
    encoder = load(tmp_path / "run")
    assert (encoder.transform.kind if encoder.transform is not None else "plain") == kind
    assert encoder.card["embedding"]["kind"] == encoder.card["embedding"]["setting"] == kind
    assert (tmp_path / "run" / "embedding.safetensors").exists() == (kind != "plain")


def test_labels_do_not_matter(tmp_path: Path, train_only: None) -> None:
    run = finished(tmp_path / "run", epochs=1)
    encoder, train, validation = run._encoder(), run.setup.train, run.setup.validation
    assert train.labels is not None and validation is not None
    before, _ = choose_transform(encoder, train, validation, "whitened")
    train.labels = validation.labels = None
    after, _ = choose_transform(encoder, train, validation, "whitened")
    assert before is not None and after is not None and torch.equal(before.weight, after.weight)  # type: ignore[arg-type]


class Columns(nn.Module):
    """The mean colour of each column of an image, times its loudness: (B, 3, S, S) to (B, 3 · S)."""

    def __init__(self, loudness: Tensor, nonsense: bool = False) -> None:
        super().__init__()
        self.loudness, self.num_features, self.nonsense = loudness, len(loudness), nonsense

    def forward(self, x: Tensor) -> Tensor:
        h = x.mean(2).flatten(1) * self.loudness
        return h * float("nan") if self.nonsense else h


def pictures(count: int) -> ArrayDataset:
    values = np.random.default_rng(0).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)
    return ArrayDataset(values, labels=torch.arange(count) % 3)


def encoder_of(network: nn.Module) -> Encoder:
    settings = config("simclr")
    modality = make_modality(settings)
    return Encoder(network, modality, make_card(settings, modality.card(), embedding={"kind": "plain"}))


@pytest.mark.parametrize("count", [1, 2, 12])
def test_too_few_samples_keep_the_network_as_it_is(count: int) -> None:
    transform, choice = choose_transform(encoder_of(Columns(torch.ones(48))), pictures(count), None, "auto")
    assert transform is None and choice.kind == "plain" and choice.note is not None
    assert tells(choice.line() or "", "plain")


def test_nonsense_keeps_the_network_as_it_is_and_says_why() -> None:
    broken = encoder_of(Columns(torch.ones(48), nonsense=True))
    for setting in ("auto", "whitened"):
        transform, choice = choose_transform(broken, pictures(40), None, setting)  # type: ignore[arg-type]
        assert transform is None and choice.kind == "plain" and choice.setting == setting and choice.note is not None
    collapsed = encoder_of(Columns(torch.zeros(48)))
    assert choose_transform(collapsed, pictures(40), None, "whitened")[1].kind == "plain"


def test_the_untrained_encoder_has_its_own_transform_by_the_same_rule(tmp_path: Path, train_only: None) -> None:
    run = finished(tmp_path / "run", embedding="whitened", epochs=1, data="glyphs:200")
    encoder, fresh = load(tmp_path / "run"), load(tmp_path / "run", untrained=True)
    assert fresh.transform is None
    results = evaluate_run({"trained": encoder}, run.setup.splits, ["knn"], data="glyphs", untrained=fresh)
    assert fresh.transform is not None and fresh.transform.kind == "whitened"
    assert not torch.equal(fresh.transform.mean, encoder.transform.mean)  # type: ignore[union-attr]
    assert {row.encoder for row in results.rows} >= {"trained", "untrained", "raw"}
    older = Encoder(encoder.backbone, encoder.modality, {**encoder.card, "embedding": None})
    evaluate_run({"trained": older}, run.setup.splits, ["knn"], data="glyphs", untrained=fresh)
    assert fresh.transform is None


def test_neighbors_are_of_the_embeddings_and_probes_of_the_features(tmp_path: Path, train_only: None) -> None:
    run = finished(tmp_path / "run", embedding="whitened", epochs=1, data="glyphs:300")
    encoder = load(tmp_path / "run")
    values = [
        evaluate_run({"trained": each}, run.setup.splits, ["knn", "linear", "geometry"], data="glyphs")
        for each in (encoder, encoder.without_transform())
    ]
    transformed, plain = (
        {(row.protocol, row.metric): row.value for row in found.rows if row.encoder == "trained"} for found in values
    )
    same = {key for key, value in plain.items() if transformed[key] == value}
    assert same >= {key for key in plain if key[0] in ("linear", "geometry")}
    assert not same >= {key for key in plain if key[0] == "knn"}


def test_images_and_texts_stay_in_one_space() -> None:
    encoder = encoder_of(Columns(torch.ones(48)))
    encoder.modality = make_modality(replace(config("clip"), modality="image-text", options={}))
    assert choose_transform(encoder, pictures(40), None, "auto")[1].kind == "plain"


def test_retrieval_by_hand() -> None:
    h = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert retrieval(h, h) == 1
    turned = h[[1, 2, 0]]  # cosines with its own: 0, 0.71, 0.71; ranks 3, 2, 3 with ties against
    assert retrieval(h, turned) == pytest.approx((1 / 3 + 1 / 2 + 1 / 3) / 3)
    assert retrieval(h, torch.ones(3, 2)) == pytest.approx(1 / 3)  # collapsed: all are last


def test_the_line_of_a_choice() -> None:
    told = EmbeddingChoice("whitened", "auto", 500, {"plain": 0.31, "whitened": 0.52}, 90).line()
    assert tells(told or "", "whitened 0.31 0.52 90 --embedding")
    assert EmbeddingChoice("plain", "plain").line() is None
    assert fit_transform(torch.eye(3), "plain") is None
