"""Given weights, trained further: what moves, how fast, what stays, and what is kept at the end."""

import copy
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from torch import Tensor, nn

from nearfar.methods import Pairs, SimCLR
from nearfar.modalities.config import ViewsConfig
from nearfar.modalities.image.backbones import backbone
from nearfar.nn.layers import layers
from nearfar.nn.norm import fix_statistics, forward_in_groups
from nearfar.training.adaptation import adapted_groups, freeze_pretrained, pretrained_parts
from nearfar.training.build_method import build_method
from nearfar.training.config import AdaptConfig, OptimizerConfig
from nearfar.training.model_selection import ModelSelection
from nearfar.training.optimizers import make_optimizer, pretrained_factor, rate_factor, set_rates
from nearfar.training.run import Run
from nearfar.training.signals import TrainingStopped
from nearfar.training.start_comparison import (
    StartComparison,
    geometric_mean,
    nearest_others,
    overlap,
    paired_gain,
)
from tests.support.facts import facts, tells
from tests.training.runs import QUIET, config, stop_after, weights

ADAPT = AdaptConfig(layer_decay=0.5, head_lr=4.0, head_warmup=0.3, batch_norm="frozen", freeze_blocks=1)


class Given(nn.Module):
    """Three blocks, each a matrix and its bias, that say that they began with given weights."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)))
        self.num_features = 4
        self.loaded = "weights.pt"

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.blocks(x)
        return h


def given_file(folder: Path, name: str = "micro") -> str:
    """Weights of a network with BatchNorm statistics of its own."""
    torch.manual_seed(5)
    network = backbone(name, size=16)
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(std=0.1)
            part.running_var.uniform_(0.5, 1.5)
    torch.save(network.state_dict(), folder / "given.pt")
    return str(folder / "given.pt")


def adapting(folder: Path, method: str = "simclr", **settings: Any) -> Any:
    return config(method, weights=given_file(folder), **{"adapt": ADAPT, **settings})


def test_each_given_block_has_its_own_rate_and_every_weight_is_in_one_group() -> None:
    method = SimCLR(Given(), features=4, dim=3).double()
    groups = adapted_groups(method.encoder, method.parameter_groups(0.1), AdaptConfig(layer_decay=0.5, head_lr=4.0))
    scale = {p: group["lr_scale"] for group in groups for p in group["params"]}
    assert sum(len(group["params"]) for group in groups) == len(scale) == len(list(method.parameters()))
    for number, block in enumerate(method.encoder.blocks):
        assert {scale[p] for p in block.parameters()} == {0.5 ** (2 - number)}
    assert {scale[p] for p in method.projector.parameters()} == {4.0}
    assert {group["pretrained"] for group in groups if group["lr_scale"] < 4} == {True}
    assert {group["weight_decay"] for group in groups for p in group["params"] if p.ndim > 1} == {0.1}


def test_a_step_moves_each_given_block_by_its_rate() -> None:
    torch.manual_seed(0)
    method = SimCLR(Given(), features=4, dim=3).double()
    before = copy.deepcopy(method)
    adapt = AdaptConfig(layer_decay=0.5, head_lr=4.0)
    settings = OptimizerConfig(name="sgd", lr=0.1, scale_lr="none", weight_decay=0.0, momentum=0.0)
    optimizer = make_optimizer(method, settings, 256, adapt)
    for parameter in method.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for number in range(3):
        moved = before.encoder.blocks[number].weight - method.encoder.blocks[number].weight
        torch.testing.assert_close(moved, torch.full_like(moved, 0.1 * 0.5 ** (2 - number)))
    moved = before.projector[0].weight - method.projector[0].weight
    torch.testing.assert_close(moved, torch.full_like(moved, 0.4))


def test_without_given_weights_or_without_settings_groups_stay_as_they_are() -> None:
    drawn = Given()
    del drawn.loaded
    for encoder, adapt in ((drawn, ADAPT), (Given(), AdaptConfig(batch_norm="frozen", freeze_blocks=1, keep="best"))):
        method = SimCLR(encoder, features=4, dim=3)
        groups = method.parameter_groups(0.1)
        assert adapted_groups(method.encoder, groups, adapt) is groups
    freeze_pretrained(drawn, ADAPT)
    assert not pretrained_parts(drawn) and all(p.requires_grad for p in drawn.parameters())


def test_given_weights_wait_while_new_layers_are_trained_and_then_have_a_schedule_of_their_own() -> None:
    adapt, settings = AdaptConfig(head_warmup=0.25), OptimizerConfig(warmup_ratio=0.1)
    assert [pretrained_factor(step, 40, settings, adapt) for step in range(10)] == [0.0] * 10
    rest = [pretrained_factor(step, 40, settings, adapt) for step in range(10, 40)]
    assert rest == [rate_factor(step, 30, settings, 0.75) for step in range(30)]
    assert pretrained_factor(7, 40, settings, AdaptConfig()) == rate_factor(7, 40, settings)
    given, new = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([{"params": [given], "pretrained": True}, {"params": [new]}])
    for group in optimizer.param_groups:
        group["initial_lr"] = 2.0
    set_rates(optimizer, 0.5, 0.0)
    assert [group["lr"] for group in optimizer.param_groups] == [0.0, 1.0]


def test_given_weights_wait_for_nothing_where_no_layer_is_new() -> None:
    method = Pairs(Given(), features=4)
    groups = adapted_groups(method.encoder, method.parameter_groups(0.1), ADAPT)
    assert {group["pretrained"] for group in groups} == {False}
    optimizer = torch.optim.SGD([{**group, "initial_lr": 1.0} for group in groups], lr=1.0)
    set_rates(optimizer, 0.5, pretrained=0.0)
    assert {group["lr"] for group in optimizer.param_groups} == {0.5}


def test_fixed_statistics_are_those_of_evaluation_in_copies_groups_and_after_train() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).double()
    network[1].running_mean.normal_()
    expected = copy.deepcopy(network).eval()
    fix_statistics(network)
    x = torch.randn(6, 3, 5, 5, dtype=torch.float64)
    for each in (network, copy.deepcopy(network)):
        each.train()
        torch.testing.assert_close(each(x), expected(x), rtol=0, atol=0)
        each.train()
        torch.testing.assert_close(forward_in_groups(each, x, 2), expected(x))
        assert all(torch.equal(a, b) for a, b in zip(each.buffers(), expected.buffers(), strict=True))
        assert each.state_dict().keys() == expected.state_dict().keys()


def test_a_key_network_has_the_statistics_that_were_given(tmp_path: Path) -> None:
    method = build_method(adapting(tmp_path, "moco"), 100)
    given = torch.load(tmp_path / "given.pt", weights_only=True)
    method.train()
    x = torch.randn(8, 3, 16, 16)
    before = method.key_network(x)
    torch.testing.assert_close(method.key_network.train()(x[:2]), before[:2], rtol=1e-4, atol=1e-5)
    method.after_step(0.5)
    for name, buffer in method.key_network[0].named_buffers():
        torch.testing.assert_close(buffer, given[name])


def test_lower_blocks_stay_and_more_than_there_are_is_refused() -> None:
    network = Given()
    freeze_pretrained(network, AdaptConfig(freeze_blocks=2))
    assert [all(p.requires_grad for p in block) for block in layers(network)] == [False, False, True]
    with pytest.raises(ValueError, match=facts("freeze-blocks 4 3")):
        freeze_pretrained(Given(), AdaptConfig(freeze_blocks=4))


@pytest.mark.parametrize("method", ["simclr", "moco", "byol"])
def test_an_adapted_run_resumes_to_the_same_weights(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_only: None
) -> None:
    adapt = AdaptConfig(**{**vars(ADAPT), "keep": "best", "anchor": 0.5})
    settings = adapting(tmp_path, method, adapt=adapt)
    whole = Run(settings, tmp_path / "whole", resume=False, console=QUIET)
    whole.execute()
    for steps in (2, 7):  # while given weights wait, and afterwards
        folder = tmp_path / f"stopped-{steps}"
        with monkeypatch.context() as patch:
            stop_after(steps, patch)
            with pytest.raises(TrainingStopped):
                Run(settings, folder, resume=False, console=QUIET).execute()
        resumed = Run(settings, folder, resume=True, console=QUIET)
        resumed.execute()
        for name, x in weights(whole).items():
            assert torch.equal(x, weights(resumed)[name]), (steps, name)
        assert load_card(folder)["adaptation"] == load_card(tmp_path / "whole")["adaptation"]


def test_views_may_be_smaller_than_what_the_encoder_sees_afterwards(tmp_path: Path, train_only: None) -> None:
    settings = adapting(tmp_path, image_size=24, views=ViewsConfig(size=16), epochs=1)
    run = Run(settings, tmp_path / "run", resume=False, console=QUIET)
    setup = run.setup
    samples, index = setup.train.fetch(torch.arange(4)), torch.arange(4)
    made = setup.modality.views(samples, setup.train, index, seed=0, step=0)
    assert {tuple(view.shape[2:]) for view in made} == {(16, 16)}
    assert setup.modality.prepare(samples).shape[2:] == (24, 24)
    run.execute()
    assert load_card(tmp_path / "run")["image_size"] == 24
    with pytest.raises(ValueError, match=facts("views.size 4 8")):
        ViewsConfig(size=4)


def load_card(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "card.json").read_text())
    return found


def test_gradient_caching_gives_the_weights_of_an_undivided_run(tmp_path: Path, train_only: None) -> None:
    """Also with BatchNorm, whose statistics are fixed, and with an anchor; the head has no BatchNorm."""
    adapt = AdaptConfig(**{**vars(ADAPT), "anchor": 0.5})
    settings = {
        "adapt": adapt,
        "options": {"queue_size": 96, "group": 0},
        "optimizer": OptimizerConfig(name="sgd", lr=0.01),
    }
    found = []
    for micro in (None, 6):
        made = adapting(tmp_path, "moco", micro_batch_size=micro, **settings)
        run = Run(made, tmp_path / str(micro), resume=False, console=QUIET)
        run.execute()
        found.append(weights(run))
    for name, x in found[0].items():
        torch.testing.assert_close(found[1][name], x, rtol=1e-3, atol=1e-5)


def test_neighbors_and_what_is_shared_are_those_of_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    query, keys = torch.randn(2, 9, 4, generator=generator, dtype=torch.float64)
    found = nearest_others(query, keys, 3)
    cosine = nn.functional.cosine_similarity(query[:, None], keys[None], dim=2)
    expected = torch.tensor(
        [sorted((j for j in range(9) if j != i), key=lambda j: -float(cosine[i, j]))[:3] for i in range(9)]
    )
    assert torch.equal(found, expected)
    other = nearest_others(keys, keys, 3)
    parts = [len(set(a) & set(b)) / 3 for a, b in zip(found.tolist(), other.tolist(), strict=True)]
    torch.testing.assert_close(overlap(found, other), torch.tensor(parts, dtype=torch.float64))
    score = paired_gain(overlap(found, other), overlap(other, other))
    gain = torch.tensor(parts, dtype=torch.float64) - 1
    assert score.start == 1 and abs(score.gain - float(gain.mean())) < 1e-12
    assert abs(score.error - float(gain.std() / 3)) < 1e-12


def test_the_score_is_the_root_of_two_means_and_its_error_that_of_many_draws() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b, start = torch.rand(3, 400, generator=generator, dtype=torch.float64)
    b = (a + b) / 2
    score = paired_gain(geometric_mean(a, b), start)
    assert score.encoder == pytest.approx(math.sqrt(float(a.mean() * b.mean())), rel=1e-12)
    draws = torch.randint(400, (4000, 400), generator=generator)
    drawn = (a[draws].mean(1) * b[draws].mean(1)).sqrt() - start[draws].mean(1)
    assert score.error == pytest.approx(float(drawn.std()), rel=0.05)
    assert float(geometric_mean(0 * a, b).abs().sum()) == 0


def test_the_start_is_no_better_than_itself_and_a_broken_encoder_is_worse(tmp_path: Path) -> None:
    setup = Run(adapting(tmp_path), tmp_path / "run", resume=False, console=QUIET).setup
    encoder = setup.method.encoder
    comparison = StartComparison(lambda: copy.deepcopy(encoder), setup.modality, setup.train)
    same = comparison.compare(encoder)
    assert same is not None and abs(same.neighbors.gain) < 1e-12
    assert same.own.gain == 0 and same.remembered == 1
    score = comparison.score(comparison.measure(setup.method))
    assert score is not None and score < 0  # the start is kept
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.fill_(math.nan)
    found = comparison.compare(encoder)
    assert found is not None and found.remembered == 0 and found.own.encoder == 0
    broken = found.neighbors
    assert broken.encoder == 0.0 and broken.gain < -broken.error


def test_what_forgets_little_may_be_better_by_its_own_samples_alone() -> None:
    base = {"gain": -0.05, "gain_error": 0.01, "own_gain": 0.04, "own_error": 0.01, "remembered": 0.8}
    score = StartComparison.score
    little, much, chance = (score({**base, **change}) for change in ({}, {"remembered": 0.4}, {"own_error": 0.05}))
    assert little == pytest.approx(0.03) and much == chance == pytest.approx(-0.06)
    by_neighbors = score({**base, "gain": 0.02})
    assert by_neighbors is not None and little is not None and by_neighbors > 1 > little  # comes first
    line = ModelSelection(40, 40, 40, 500, 0.64, 0.6, -0.04, 0.01, 0.878, 0.918, 0.04, 0.01, 0.777).line()
    assert tells(line, "end better 91.8% 87.8% 78%") and "no better" not in line


def test_a_start_that_training_would_destroy_is_what_is_kept_and_said(tmp_path: Path) -> None:
    hostile = OptimizerConfig(name="adamw", lr=0.5, scale_lr="none", warmup_ratio=0.0)
    adapt = AdaptConfig(batch_norm="frozen", keep="best")
    made = adapting(tmp_path, data="glyphs:200", optimizer=hostile, adapt=adapt, embedding="plain")
    console = Console(record=True, width=200, file=io.StringIO())
    results = Run(made, tmp_path / "run", resume=False, console=console).execute()
    given = torch.load(tmp_path / "given.pt", weights_only=True)
    kept = load_file(tmp_path / "run" / "model.safetensors")
    assert kept.keys() == given.keys() and all(torch.equal(kept[name], x) for name, x in given.items())
    card = load_card(tmp_path / "run")
    assert card["adaptation"]["kept"] == "start" and card["adaptation"]["gain"] < 0
    assert tells(card["verdict"], "start kept") and card["verdict_level"] in ("warning", "error")
    assert tells(console.export_text(), "start kept") and tells((tmp_path / "run" / "report.html").read_text(), "kept")
    assert results.value("trained", "knn") == results.value("untrained", "knn")
    assert results.value("random", "knn") is not None and results.value("random", "linear") is not None
    origins = results.provenance[0].encoders
    assert tells(origins["untrained"], "start given.pt") and tells(origins["random"], "random")


def test_an_end_that_is_better_is_kept(tmp_path: Path, train_only: None) -> None:
    """A random start: after a few steps views of glyphs are alike, and neighbors stay."""
    made = adapting(tmp_path, data="glyphs:300", epochs=4, adapt=AdaptConfig(keep="best", batch_norm="frozen"))
    run = Run(made, tmp_path / "run", resume=False, console=QUIET)
    run.execute()
    assert run.selection is not None and run.selection.step > 0 and run.selection.gain > run.selection.gain_error
    kept = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(kept[name], x) for name, x in run.setup.method.encoder.state_dict().items())
