"""Runs with --views.count and --views.local: views as ever, more beside them, resumed to the same bits."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from nearfar.cli import main
from nearfar.config import TrainConfig, completed
from nearfar.distributed.grad_cache import equal_chunks
from nearfar.modalities import make_modality
from nearfar.modalities.base import Modality
from nearfar.modalities.config import ViewsConfig
from nearfar.nn.shard import Shard
from nearfar.settings import build
from nearfar.training.check_run import subject_of_run
from nearfar.training.memory_plan import costs_of
from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped
from tests.support.facts import facts, tells
from tests.support.models import fitted
from tests.training.runs import QUIET, config, stop_after, weights

OF_EACH = [
    {"data": "glyphs:40", "views": "simclr"},
    {"data": "glyphs:40", "views": "byol"},
    {"data": "waves:40"},
    {"data": "melodies:40", "method": "byol_a"},
    {"data": "melodies:40"},
]


def of(**settings: Any) -> TrainConfig:
    made: TrainConfig = build(TrainConfig, completed(settings), "test")
    return fitted(made).config


def with_views(settings: dict[str, Any], **views: int | None) -> TrainConfig:
    return of(**{**settings, "views": {"preset": settings.get("views"), **views}})


def made_of(modality: Modality, step: int = 5, rows: int = 17) -> list[torch.Tensor]:
    source = modality.open(modality.config.data.path, "train")
    index = torch.arange(rows)
    return [x.clone() for x in modality.views(source.fetch(index), source, index, seed=3, step=step)]


@pytest.mark.parametrize("settings", OF_EACH, ids=lambda settings: "-".join(map(str, settings.values())))
def test_the_first_views_are_those_of_a_run_with_two(settings: dict[str, Any]) -> None:
    two, many = (fitted(with_views(settings, **views)) for views in ({}, {"count": 4, "local": 3}))
    assert (two.local_views, many.local_views) == (0, 3)
    plain, views = made_of(two), made_of(many)
    assert len(plain) == 2 and len(views) == 7
    for a, b in zip(plain, views, strict=False):
        if settings.get("method") == "byol_a":  # whose views are normalized together: the same but for that
            torch.testing.assert_close((b - b.mean()) / b.std(), (a - a.mean()) / a.std(), rtol=1e-4, atol=1e-4)
        else:
            assert torch.equal(a.nan_to_num(-9.0), b.nan_to_num(-9.0))
    shapes = [tuple(x.shape) for x in views]
    assert len(set(shapes[:4])) == 1 and len(set(shapes[4:])) == 1
    assert shapes[4][:-1] == shapes[0][:-1] or settings["data"] == "glyphs:40"
    assert 0.3 * shapes[0][-1] <= shapes[4][-1] <= 0.5 * shapes[0][-1]
    for a in range(7):
        for b in range(a):
            assert views[a].shape != views[b].shape or not torch.equal(views[a], views[b])


@pytest.mark.parametrize("settings", OF_EACH, ids=lambda settings: "-".join(map(str, settings.values())))
def test_views_of_parts_and_of_processes_are_those_of_the_whole(settings: dict[str, Any]) -> None:
    modality = fitted(with_views(settings, count=3, local=2))
    source = modality.open(modality.config.data.path, "train")
    index = torch.arange(17)
    samples = source.fetch(index)
    whole = [x.clone() for x in modality.views(samples, source, index, seed=3, step=5)]
    views = modality.views_of_rows(samples, source, index, seed=3, step=5)
    parts = [[x.clone() for x in views(rows)] for rows in equal_chunks(17, 6)]
    for number, expected in enumerate(whole):
        torch.testing.assert_close(torch.cat([part[number] for part in parts]), expected, equal_nan=True)
    if settings.get("method") == "byol_a":
        return  # it mixes sounds of other processes into its views, which takes these processes
    shard = Shard(1, (9, 8))
    own = modality.views(samples[9:], source, index[9:], seed=3, step=5, shard=shard)
    for a, b in zip(own, whole, strict=True):
        torch.testing.assert_close(a, b[9:], equal_nan=True)


def test_recipes_take_turns_and_local_ones_are_small() -> None:
    made = make_modality(TrainConfig(method="byol", image_size=32, views=ViewsConfig("byol", 3, 2)))
    first, second, third, *local = made.recipes  # type: ignore[attr-defined]
    assert first == third != second and local[0] == local[1]
    assert (local[0].size, local[0].crop_scale, local[0].blur) == (16, (0.05, 0.4), 0.5)
    dino = make_modality(TrainConfig(views=ViewsConfig("dino")))
    assert len(dino.recipes) == 10 and dino.local_views == 8  # type: ignore[attr-defined]
    for local_views in (0, 3):
        fewer = make_modality(TrainConfig(views=ViewsConfig("dino", local=local_views)))
        assert len(fewer.recipes) == 2 + local_views == 2 + fewer.local_views  # type: ignore[attr-defined]


def test_a_pair_for_validation_has_no_local_view() -> None:
    modality = fitted(of(data="glyphs:40", views={"preset": "instdisc", "local": 2}, method="instdisc"))
    source = modality.open("glyphs:40", "train")
    pair = modality.pair_of_views(source.fetch(torch.arange(4)), source, torch.arange(4), seed=0, step=0)
    assert len(pair) == 2 and pair[0].shape == pair[1].shape and not torch.equal(*pair)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"method": "clip", "views": {"count": 2}}, "--views.count 2 clip 1"),
        ({"method": "clip", "views": {"local": 2}}, "--views.local 2 clip none"),
        ({"data": "waves:40", "method": "cpc", "views": {"count": 2}}, "--views.count 2 cpc 1"),
        ({"data": "waves:40", "method": "cpc", "views": {"local": 1}}, "--views.local"),
        ({"data": "x.txt", "method": "simcse", "views": {"local": 1}}, "--views.local 1 sentences"),
        ({"method": "simclr", "views": {"count": 1}}, "--views.count 1 simclr 2"),
        ({"data": "glyphs:40", "views": {"preset": "shapes", "local": 1}}, "--views.local 1 'shapes' simclr byol dino"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=facts(said)) as refused:
        make_modality(build(TrainConfig, completed(settings), "test"))
    assert "\n" not in str(refused.value)


def test_a_backbone_of_one_size_is_refused_and_a_flexible_one_is_not() -> None:
    views = ViewsConfig("simclr", local=1)
    made = make_modality(TrainConfig(backbone="vit_tiny_patch16_224", image_size=64, views=views))
    assert made.recipes[-1].size == 24  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=facts("vit_tiny_patch16_224 24 --views.local")):
        made.encoder()  # no whole number of patches
    flexible = make_modality(TrainConfig(backbone="vit_tiny_patch16_224", image_size=32, views=views)).encoder()
    assert flexible(torch.zeros(2, 3, 16, 16)).shape == flexible(torch.zeros(2, 3, 32, 32)).shape


@pytest.mark.parametrize(
    ("method", "views"),
    [
        ("simclr", ViewsConfig("simclr", count=4)),
        ("byol", ViewsConfig("byol", count=2, local=2)),
        ("moco", ViewsConfig("moco_v2", count=3, local=1)),
    ],
)
def test_a_stopped_run_resumes_to_the_same_weights(
    method: str, views: ViewsConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    settings = config(method, views=views)
    whole = Run(settings, tmp_path / "whole", resume=False, console=QUIET)
    whole.execute()
    with monkeypatch.context() as patch:
        stop_after(4, patch)
        with pytest.raises(TrainingStopped):
            Run(settings, tmp_path / "stopped", resume=False, console=QUIET).execute()
    resumed = Run(settings, tmp_path / "stopped", resume=True, console=QUIET)
    resumed.execute()
    for name, x in weights(whole).items():
        assert torch.equal(x, weights(resumed)[name]), name


def test_views_png_has_a_column_for_each_view(tmp_path: Path, train_only: None) -> None:
    settings = config("simsiam", options={"dim": 16}, views=ViewsConfig("simclr", 3, 2), epochs=1)
    Run(settings, tmp_path / "run", resume=False, console=QUIET).execute()
    sheet = Image.open(tmp_path / "run" / "views.png")
    assert sheet.width == 6 * 98 + 2  # the original, three views, two local ones


@pytest.fixture
def one_thread() -> Iterator[None]:
    """With two threads torch's bfloat16 gradients of networks this small are NaN now and then."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_a_run_of_many_views_is_certified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # of local views of 8 pixels, whose last maps have one, torch's bfloat16 gradients are NaN now and then
    settings = config("byol", views=ViewsConfig("byol", 3, 2), image_size=64)
    (tmp_path / "config.yaml").write_text(settings.to_yaml())
    batch = subject_of_run(tmp_path, rows=9).batches[0]
    assert len(batch.views) == 5 and batch.local == 2 and batch.views[-1].shape[-1] < batch.views[0].shape[-1]
    assert main(["check", str(tmp_path), "--processes", "1", "--rows", "9"]) == 0
    assert tells(capsys.readouterr().out, "training agrees")


def test_more_views_cost_more_memory() -> None:
    views = ViewsConfig("simclr"), ViewsConfig("simclr", 4)
    two, four = (costs_of(config("simclr", views=each)) for each in views)
    assert four.views.end(64) == 2 * two.views.end(64)
    assert four.peak(4096, None).activations > 1.5 * two.peak(4096, None).activations


@pytest.mark.parametrize("count", [None, 3])
def test_a_sentence_is_read_as_often_as_asked(count: int | None, tmp_path: Path, train_only: None) -> None:
    lines = [f"word{i} and word{i * 7 % 40} near word{i * 3 % 11}" for i in range(60)]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")
    given = {"data": str(tmp_path / "lines.txt"), "method": "simcse", "epochs": 1, "batch_size": 16}
    settings = build(TrainConfig, completed({**given, "views": {"count": count}}), "test")
    run = Run(settings, tmp_path / "run", resume=False, console=QUIET)
    index = torch.arange(4)
    modality, train = run.setup.modality, run.setup.train
    batch = modality.as_batch(modality.views(train.fetch(index), train, index, seed=0, step=0), train, index, index)
    assert len(batch.views) == (count or 2) and batch.negatives == 0
    run.execute()


def test_pairs_of_sentences_have_the_views_they_have(tmp_path: Path) -> None:
    rows = "".join(f"one {i},two {i}\n" for i in range(60))
    (tmp_path / "pairs.csv").write_text("text,partner\n" + rows)
    data = {"path": str(tmp_path / "pairs.csv"), "text_column": "text", "positive_column": "partner"}
    given = {"data": data, "method": "simcse", "views": {"count": 3}}
    with pytest.raises(ValueError, match=facts("--views.count 3 pairs")):
        Run(build(TrainConfig, completed(given), "test"), tmp_path / "run", resume=False, console=QUIET)
