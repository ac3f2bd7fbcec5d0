"""What holds for each method of one encoder, on images and on plain vectors."""

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.config import kind_of
from nearfar.methods import METHODS, Batch, Method

OF_IMAGES = [name for name in METHODS if kind_of("", name, None) == "image"]  # or of any other single thing
PICTURES = {name for name in OF_IMAGES if METHODS[name].modalities == ("image",)}  # and of nothing else
SMALL: dict[str, dict[str, Any]] = {  # the papers' widths, cut down
    "barlow_twins": {"dim": 16, "hidden": 32},
    "byol": {"dim": 16, "hidden": 32},
    "cmc": {"dim": 16},
    "densecl": {"dim": 16, "queue_size": 40},
    "diet": {},
    "dino": {"dim": 16, "hidden": 32, "prototypes": 20},
    "instdisc": {"dim": 16, "noise": 32},
    "invaspread": {"dim": 16},
    "moco": {"dim": 16, "queue_size": 40},
    "moco_v1": {"dim": 16, "queue_size": 40},
    "moco_v3": {"dim": 16, "hidden": 32},
    "nnclr": {"dim": 16, "hidden": 32, "predictor_hidden": 32, "queue_size": 40},
    "pirl": {"dim": 16, "noise": 32},
    "simclr": {"dim": 16},
    "simclr_v2": {"dim": 16},
    "simsiam": {"dim": 16},
    "supcon": {"dim": 16},
    "swav": {"dim": 16, "hidden": 32, "prototypes": 20},
    "vicreg": {"dim": 16, "hidden": 32},
}
WITH_NEGATIVES = {
    *("cmc", "densecl", "instdisc", "invaspread", "moco", "moco_v1", "moco_v3", "nnclr", "pirl"),
    *("simclr", "simclr_v2", "supcon"),
}
SAMPLES, ROWS = 96, 16


def image_encoder() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AvgPool2d(2, ceil_mode=True),  # a map for densecl; pieces of a picture are smaller
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
    )


def vector_encoder() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32))


ENCODERS = {"image": (image_encoder, (3, 8, 8)), "vector": (vector_encoder, (10,))}


def usual(name: str) -> str:
    return "image" if name in PICTURES else "vector"


def make(name: str, modality: str | None = None) -> Method:
    torch.manual_seed(0)
    return METHODS[name](ENCODERS[modality or usual(name)][0](), features=32, samples=SAMPLES, **SMALL[name])


def make_batch(step: int, modality: str = "vector", ids: Tensor | None = None) -> Batch:
    generator = torch.Generator().manual_seed(step)
    shape = (ROWS, *ENCODERS[modality][1])
    x = torch.randn(shape, generator=generator)
    views = [x + 0.3 * torch.randn(shape, generator=generator) for _ in range(2)]
    index = torch.arange(ROWS) + ROWS * (step % (SAMPLES // ROWS))
    return Batch(views, index, index if ids is None else ids, labels=torch.arange(ROWS) % 4)


def batch_for(name: str, step: int, ids: Tensor | None = None) -> Batch:
    return make_batch(step, usual(name), ids)


def one_view(batch: Batch) -> Batch:
    return replace(batch, views=batch.views[:1])


def train(method: Method, steps: range, *, fixed: bool = False, modality: str | None = None) -> list[float]:
    modality = modality or usual(method.name)
    parameters = [p for p in method.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.02)
    losses = []
    for step in steps:
        loss = method(make_batch(0 if fixed else step, modality)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        method.after_step(step / 100)
        losses.append(loss.item())
    return losses


def test_the_small_settings_name_each_method() -> None:
    assert SMALL.keys() == set(OF_IMAGES)


@pytest.mark.parametrize(
    ("name", "modality"), [(n, m) for n in OF_IMAGES for m in ENCODERS if m == "image" or n not in PICTURES]
)
def test_training_lowers_the_loss_of_a_fixed_batch(name: str, modality: str) -> None:
    method = make(name, modality)
    if name in (
        "densecl",
        "moco",
        "moco_v1",
        "nnclr",
        "instdisc",
        "pirl",
    ):  # fill what they contrast with, so that the task stays one
        train(method, range(5), modality=modality)
    if name == "dino":  # until its centre, at first 0, is that of the teacher
        train(method, range(40), fixed=True, modality=modality)
    losses = train(method, range(5, 40), fixed=True, modality=modality)
    assert torch.tensor(losses).isfinite().all()
    assert sum(losses[-5:]) < sum(losses[:5])


@pytest.mark.parametrize("name", OF_IMAGES)
def test_a_restored_state_continues_bit_for_bit(name: str) -> None:
    whole = make(name)
    train(whole, range(4))
    kept = copy.deepcopy(whole.state_dict())
    expected = train(whole, range(4, 9))

    torch.manual_seed(77)
    resumed = METHODS[name](ENCODERS[usual(name)][0](), features=32, samples=SAMPLES, **SMALL[name])
    resumed.load_state_dict(kept)
    torch.manual_seed(5)  # nothing may hang on the global generator
    assert train(resumed, range(4, 9)) == expected
    for (key, a), b in zip(whole.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(a, b) or (a.isnan().all() and b.isnan().all()), key


@pytest.mark.parametrize("name", OF_IMAGES)
def test_only_after_step_moves_the_state(name: str) -> None:
    method = make(name)
    train(method, range(3))
    own = [key for key in method.state_dict() if not key.startswith(("encoder.", "projector.", "predictor."))]
    own = [key for key in own if "_projector." not in key]
    # A momentum network's counters of batches are no state: they are copied at each step.
    own = [key for key in own if not key.endswith("num_batches_tracked")]
    before = {key: method.state_dict()[key].clone() for key in own}
    method(batch_for(name, 3)).loss.backward()
    for key in own:
        assert torch.equal(method.state_dict()[key], before[key]), key
    method.after_step(0.5)
    if own:
        assert any(not torch.equal(method.state_dict()[key], before[key]) for key in own)


@pytest.mark.parametrize("name", OF_IMAGES)
def test_evaluation_leaves_nothing_to_store(name: str) -> None:
    method = make(name)
    train(method, range(2))
    rows = {key: value.clone() for key, value in method.state_dict().items() if "rows" in key or "row_ids" in key}
    method.eval()
    with torch.no_grad():
        step = method(batch_for(name, 9))
    method.train()
    method.after_step(0.0)
    assert step.loss.isfinite()
    for key, value in rows.items():
        assert torch.equal(method.state_dict()[key], value), key


@pytest.mark.parametrize("name", sorted(WITH_NEGATIVES))
def test_a_sample_is_no_negative_of_one_with_its_id(name: str) -> None:
    method = make(name)
    if name in ("densecl", "moco", "moco_v1", "instdisc", "pirl"):  # whose negatives come from a store: all of one id
        for step in range(6):
            method(batch_for(name, step, ids=torch.zeros(ROWS, dtype=torch.long)))
            method.after_step(0.0)
    encoded = method.encode(one_view(batch_for(name, 0)) if name == "instdisc" else batch_for(name, 0))
    pushed = {**encoded, "ids": torch.zeros(ROWS, dtype=torch.long)}  # all the same: no negatives at all
    loss = method.contrast(pushed).loss
    if name == "supcon":  # positives repel each other in its denominator: it is the loss of a single class
        one_class = method.contrast({**encoded, "labels": torch.zeros(ROWS, dtype=torch.long)}).loss
        torch.testing.assert_close(loss, one_class)
    elif name in ("instdisc", "pirl"):  # what is left is the positive
        memory, bias = method.bank.read(encoded["index"]), -method.log_normalizer - math.log(32 / SAMPLES)
        views = [F.normalize(x) for key, x in encoded.items() if key.startswith("v")]
        positive = [F.softplus(-((v * memory).sum(1) / 0.07 + bias)) for v in views]
        if name == "instdisc":
            positive[0] = positive[0] + (views[0] - memory).square().sum(1)
        torch.testing.assert_close(loss, torch.stack(positive).mean())
    else:
        assert loss == 0
    assert method.contrast(encoded).loss > 0


@pytest.mark.parametrize("name", OF_IMAGES)
def test_what_a_step_reports(name: str) -> None:
    method = make(name)
    train(method, range(3))
    step = method(batch_for(name, 3))
    assert step.loss.ndim == 0 and step.loss.requires_grad
    assert step.z1.shape == step.z2.shape == (ROWS, 32 if name == "diet" else 16)  # whose layer is on the features
    assert not step.z1.requires_grad and not step.z2.requires_grad
    queued = min(40, 3 * ROWS)
    candidates = {"moco": 1 + queued, "moco_v1": 1 + queued, "moco_v3": ROWS, "nnclr": ROWS, "cmc": ROWS}
    candidates |= dict.fromkeys(("simclr", "simclr_v2", "supcon"), 2 * ROWS - 1)
    assert step.candidates == candidates.get(name, 0)
    assert (step.fair is None) == (name not in candidates)
    if name in candidates:
        alike = replace(batch_for(name, 3), ids=torch.zeros(ROWS, dtype=torch.long))
        in_queue = replace(batch_for(name, 3), ids=method.queue.ids()[-ROWS:]) if name in ("moco", "moco_v1") else alike
        assert bool(step.fair) == (name != "supcon") and not method(in_queue).fair
    for key, value in step.log.items():
        assert value.ndim == 0 and not value.requires_grad and value.isfinite(), key


@pytest.mark.parametrize("name", OF_IMAGES)
def test_every_trained_parameter_gets_a_gradient(name: str) -> None:
    method = make(name)
    train(method, range(1))
    method.zero_grad()
    method(batch_for(name, 1)).loss.backward()
    for key, parameter in method.named_parameters():
        assert parameter.requires_grad == (not key.startswith(("target.", "key_network."))), key
        assert (parameter.grad is not None) == parameter.requires_grad, key


@pytest.mark.parametrize("name", OF_IMAGES)
def test_bfloat16_autocast(name: str) -> None:
    method = make(name)
    for step in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = method(batch_for(name, step)).loss
        loss.backward()
        method.after_step(0.0)
        assert loss.isfinite()


@pytest.mark.parametrize("name", OF_IMAGES)
def test_float64(name: str) -> None:
    method = make(name).double()
    for step in range(2):
        batch = batch_for(name, step)
        loss = method(Batch([x.double() for x in batch.views], batch.index, batch.ids, batch.labels)).loss
        method.after_step(0.0)
        assert loss.dtype == torch.float64


@pytest.mark.parametrize("name", OF_IMAGES)
def test_encode_is_work_on_each_sample(name: str) -> None:
    """Apart from batch-norm's batch, which evaluation takes away, chunks give what the whole gives."""
    method = make(name).eval()
    batch = batch_for(name, 0)
    whole = method.encode(batch)
    parts = []
    for rows in (slice(0, 5), slice(5, ROWS)):
        labels = None if batch.labels is None else batch.labels[rows]
        parts.append(method.encode(Batch([x[rows] for x in batch.views], batch.index[rows], batch.ids[rows], labels)))
    for key, value in whole.items():
        torch.testing.assert_close(torch.cat([part[key] for part in parts]), value)


def test_the_papers_temperatures() -> None:
    default = {name: METHODS[name].options()["temperature"] for name in WITH_NEGATIVES}
    assert default["moco_v1"] == default["instdisc"] == default["pirl"] == default["cmc"] == 0.07
    assert default["moco"] == default["moco_v3"] == default["densecl"] == 0.2
    assert 0.1 <= default["simclr"] <= 0.5 and default["simclr_v2"] == 0.1


def test_embed_is_the_encoder() -> None:
    method = make("simclr").eval()
    x = make_batch(0).views[0]
    h = method.embed(x)
    assert torch.equal(h, method.encoder(x)) and not h.requires_grad
