"""The anchor to the start: its loss by loops, and a method with it trained in every way that must give the same."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from nearfar.distributed.certificate import certify_methods
from nearfar.distributed.variants import Subject
from nearfar.methods import METHODS, Batch
from nearfar.methods.anchored import AnchoredMethod, similarity_distillation
from tests.support.facts import facts

TEMPERATURES = {"temperature": 0.1, "teacher_temperature": 0.05}


def loops(h: Tensor, teacher: Tensor) -> float:
    rows, total = len(h), 0.0
    for i in range(rows):
        others = [j for j in range(rows) if j != i]
        cosines = [[float(torch.cosine_similarity(x[i], x[j], dim=0)) for j in others] for x in (h, teacher)]
        student, target = ([math.exp(c / t) for c in row] for row, t in zip(cosines, (0.1, 0.05), strict=True))
        for own, wanted in zip(student, target, strict=True):
            total -= wanted / sum(target) * math.log(own / sum(student))
    return total / rows


def test_similarity_distillation_equals_its_loops() -> None:
    torch.manual_seed(0)
    h, teacher = torch.randn(7, 5, dtype=torch.float64), torch.randn(7, 3, dtype=torch.float64)
    found = similarity_distillation(h, teacher, **TEMPERATURES)
    assert float(found) == pytest.approx(loops(h, teacher), rel=1e-12)
    h.requires_grad_(True)
    assert torch.autograd.gradcheck(lambda x: similarity_distillation(x, teacher, **TEMPERATURES), h)


def test_it_is_least_where_the_similarities_are_the_teachers() -> None:
    torch.manual_seed(0)
    teacher = torch.randn(6, 4, dtype=torch.float64)
    same = {"temperature": 0.2, "teacher_temperature": 0.2}
    h = teacher.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(similarity_distillation(h, teacher, **same), h)
    torch.testing.assert_close(slope, torch.zeros_like(slope))


def anchored(name: str) -> tuple[AnchoredMethod, list[Batch]]:
    method, batches = METHODS[name].toy()
    start = copy.deepcopy(method.encoder)
    with torch.no_grad():
        for parameter in start.parameters():
            parameter.add_(0.1)
    whole = [replace(batch, whole=batch.views[0].clone()) for batch in batches]
    return AnchoredMethod(method, start, 0.5), whole


OF_IMAGES = [name for name, kind in METHODS.items() if "image" in kind.modalities]
REFUSED = ("cmc",)  # its networks see channels of a view, which the anchor's do not


@pytest.mark.parametrize("name", [name for name in (*OF_IMAGES, "simcse") if name not in REFUSED])
def test_the_loss_is_the_methods_own_and_the_anchors(name: str) -> None:
    whole, (batch, *_) = anchored(name)
    whole = whole.double().train()
    if not whole.start.training:
        assert not any(part.training for part in whole.start.modules())
    torch.manual_seed(3)
    encoded = whole.encode(batch)
    step = whole.contrast(encoded)
    torch.manual_seed(3)
    own = whole.method.contrast(whole.method.encode(batch))
    anchor = similarity_distillation(encoded["anchored_features"], encoded["start_features"], **TEMPERATURES)
    torch.testing.assert_close(step.loss, own.loss + 0.5 * anchor)
    torch.testing.assert_close(step.log["anchor"], anchor.detach())
    with torch.no_grad():
        torch.testing.assert_close(encoded["start_features"], whole.start(batch.whole))
    step.loss.backward()
    assert all(p.grad is None for p in whole.start.parameters())
    assert any(float(p.grad.abs().sum()) > 0 for p in whole.method.encoder.parameters() if p.grad is not None)


def test_features_are_those_of_the_first_view_also_where_it_is_encoded_in_groups() -> None:
    whole, (batch, *_) = anchored("moco")
    whole = whole.double().eval()
    found = whole.encode(batch)["anchored_features"]
    torch.testing.assert_close(found, whole.method.encoder(batch.views[0]))


def test_a_method_that_does_not_call_its_encoder_is_refused() -> None:
    whole, (batch, *_) = anchored("simclr")
    whole.method.encode = lambda batch: {"ids": batch.ids}  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=facts("anchor SimCLR")):
        whole.double().encode(batch)
    with pytest.raises(ValueError, match=facts("whole")):
        whole.encode(replace(batch, whole=None))


@pytest.mark.parametrize("name", ["simclr", "byol"])
def test_the_certificate_holds_with_an_anchor(name: str) -> None:
    """One process: tiles, caching, accumulation, float32 and bfloat16; several are marked slow."""
    method, batches = anchored(name)
    (rows,) = certify_methods([Subject(name, method, batches)], processes=1)
    assert rows and all(row.passed for row in rows), [row for row in rows if not row.passed]


@pytest.mark.slow
def test_the_certificate_of_several_processes_holds_with_an_anchor() -> None:
    method, batches = anchored("simclr")
    (rows,) = certify_methods([Subject("simclr", method, batches)], processes=2)
    assert all(row.passed for row in rows), [row for row in rows if not row.passed]


def test_a_start_stays_in_evaluation_mode() -> None:
    method, _ = anchored("simclr")
    assert method.train().training and not method.start.training and method.method.training
    assert not any(isinstance(part, nn.Module) and part.training for part in method.start.modules())
