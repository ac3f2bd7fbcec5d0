"""Each adapter gives the value and the gradient of the class it stands in for, up to rounding."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar import _torchvision  # noqa: F401  before the peers, which import torchvision
from nearfar.adapters import lightly, open_clip, pytorch_metric_learning
from nearfar.losses import tile_size
from tests.adapters.shared import open_clip_losses
from tests.losses.agreement import assert_near, rows, value_and_gradients
from tests.support.facts import facts

get_all_pairs_indices = pytest.importorskip("pytorch_metric_learning.utils.loss_and_miner_utils").get_all_pairs_indices
lightly_losses = pytest.importorskip("lightly.loss")
open_clip_peer = open_clip_losses()
metric_losses = pytest.importorskip("pytorch_metric_learning.losses")

LABELS = {
    "two views": torch.arange(6).repeat(2),
    "classes": torch.tensor([3, 1, 1, 0, 3, 3, 2, 1, 0, 3, 1, 0]),  # 2 is alone
    "few pairs": torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 10]),
}


def agree(
    ours: Callable[..., Tensor], theirs: Callable[..., Tensor], *inputs: Tensor, tolerance: float = 1e-10
) -> None:
    """Value and gradient in every input, in one tile and in many."""
    expected = value_and_gradients(theirs, *inputs)
    for side in (None, 5):
        with tile_size(side) if side else torch.enable_grad():
            found = value_and_gradients(ours, *inputs)
        for a, b in zip(found, expected, strict=True):
            assert_near(a, b, tolerance)


def views(batch: int = 7, features: int = 5) -> tuple[Tensor, Tensor]:
    z = rows(batch, features)
    return z, z + 0.7 * rows(batch, features, seed=1)


# lightly


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("NTXentLoss", {}),
        ("NTXentLoss", {"temperature": 0.05, "gather_distributed": True}),  # one process: nothing to gather
        ("DCLLoss", {}),
        ("DCLLoss", {"temperature": 0.5, "weight_fn": lambda a, b: (a - 2 * b).square().sum(1)}),
        ("DCLLoss", {"weight_fn": lambda a, b: (a - 2 * b).square().mean()}),
        ("DCLLoss", {"weight_fn": lambda a, b: 0.5}),
        ("DCLWLoss", {}),
        ("DCLWLoss", {"temperature": 0.2, "sigma": 0.3}),
        ("NegativeCosineSimilarity", {}),
        ("BarlowTwinsLoss", {}),
        ("BarlowTwinsLoss", {"lambda_param": 0.1, "gather_distributed": True}),
        ("VICRegLoss", {}),
        ("VICRegLoss", {"lambda_param": 3.0, "mu_param": 2.0, "nu_param": 5.0}),
    ],
)
@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
def test_lightly(name: str, options: dict[str, Any]) -> None:
    agree(getattr(lightly, name)(**options), getattr(lightly_losses, name)(**options), *views())


def test_lightlys_memory_bank() -> None:
    """From the same seed the same random start; batches that pass its end; and no move without a gradient."""
    banks = []
    for room in (lightly, lightly_losses):
        torch.manual_seed(3)
        loss = room.NTXentLoss(temperature=0.2, memory_bank_size=(10, 5))
        assert list(loss.state_dict()) == []
        found = []
        for step, batch in enumerate((4, 4, 4, 3, 7, 2)):
            z0, z1 = (x.float().requires_grad_(step != 3) for x in views(batch))
            value = loss(z0 + step, z1)
            if step != 3:
                value.backward()
                found += [z0.grad, z1.grad]
            found += [value.detach(), loss.memory_bank.bank.clone(), loss.memory_bank.bank_ptr.clone()]
        banks.append(found)
    for a, b in zip(*banks, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


# pytorch-metric-learning


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("NTXentLoss", {}),
        ("NTXentLoss", {"temperature": 0.5}),
        ("SupConLoss", {}),
        ("SupConLoss", {"temperature": 1.0}),
        ("TripletMarginLoss", {}),
        ("TripletMarginLoss", {"margin": 0.4}),
    ],
)
def test_pytorch_metric_learning(name: str, options: dict[str, float], labels: str) -> None:
    ours, theirs = (getattr(room, name)(**options) for room in (pytorch_metric_learning, metric_losses))
    z = rows(12, 5)
    agree(lambda z: ours(z, LABELS[labels]), lambda z: theirs(z, LABELS[labels]), z)


@pytest.mark.parametrize("name", ["NTXentLoss", "SupConLoss"])
@pytest.mark.parametrize("same", [False, True], ids=["other labels", "the very labels"])
def test_references_of_pytorch_metric_learning(name: str, same: bool) -> None:
    """Where the labels of both are one tensor, it takes row i of both for the same; here, too."""
    ours, theirs = getattr(pytorch_metric_learning, name)(), getattr(metric_losses, name)()
    labels = LABELS["classes"]
    of_keys = labels if same else torch.tensor([1, 5, 0, 0, 3, 1, 1])
    z, keys = rows(12, 5), rows(len(of_keys), 5, seed=1)
    agree(
        lambda z, keys: ours(z, labels, ref_emb=keys, ref_labels=of_keys),
        lambda z, keys: theirs(z, labels, ref_emb=keys, ref_labels=of_keys),
        z,
        keys,
    )


@pytest.mark.parametrize("name", ["NTXentLoss", "SupConLoss", "TripletMarginLoss"])
@pytest.mark.parametrize("labels", [[0, 1, 2], [4, 4, 4], [0, 0, 1], [0, 0]])
def test_labels_that_say_little(name: str, labels: list[int]) -> None:
    ours, theirs = getattr(pytorch_metric_learning, name)(), getattr(metric_losses, name)()
    given, z = torch.tensor(labels), rows(len(labels), 5)
    agree(lambda z: ours(z, given), lambda z: theirs(z, given), z)


def test_one_pair_and_one_negative_are_nothing() -> None:
    ours, theirs = pytorch_metric_learning.NTXentLoss(), metric_losses.NTXentLoss()
    z, keys, one, two = rows(1, 5), rows(2, 5, seed=1), torch.tensor([0]), torch.tensor([0, 1])
    for loss in (ours, theirs):
        assert float(loss(z, one, ref_emb=keys, ref_labels=two)) == 0


@pytest.mark.parametrize("symmetric", [True, False])
def test_its_wrapper_for_two_views_takes_ours(symmetric: bool) -> None:
    wrapped = [
        metric_losses.SelfSupervisedLoss(room.NTXentLoss(temperature=0.3), symmetric=symmetric)
        for room in (pytorch_metric_learning, metric_losses)
    ]
    agree(*wrapped, *views())


@pytest.mark.parametrize("name", ["NTXentLoss", "SupConLoss", "TripletMarginLoss"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bool, torch.uint8])
def test_labels_of_any_type(name: str, kind: torch.dtype) -> None:
    ours, theirs = getattr(pytorch_metric_learning, name)(), getattr(metric_losses, name)()
    labels = (LABELS["classes"] / 2).to(kind)
    agree(lambda z: ours(z, labels), lambda z: theirs(z, labels), rows(12, 5))


@pytest.mark.parametrize("name", ["NTXentLoss", "SupConLoss", "TripletMarginLoss"])
def test_an_empty_batch_costs_nothing(name: str) -> None:
    for room in (pytorch_metric_learning, metric_losses):
        z = rows(0, 5).requires_grad_()
        value = getattr(room, name)()(z, torch.arange(0))
        value.backward()
        assert float(value.detach()) == 0 and z.grad is not None


@pytest.mark.parametrize("name", ["NTXentLoss", "SupConLoss"])
def test_references_without_labels_have_those_of_the_rows(name: str) -> None:
    ours, theirs = getattr(pytorch_metric_learning, name)(), getattr(metric_losses, name)()
    labels = LABELS["classes"]
    agree(
        lambda z, keys: ours(z, labels, ref_emb=keys),
        lambda z, keys: theirs(z, labels, ref_emb=keys),
        rows(12, 5),
        rows(12, 5, seed=1),
    )


@pytest.mark.parametrize("name", ["NTXentLoss", "SupConLoss"])
@pytest.mark.parametrize("pairs", [True, False], ids=["pairs", "triplets"])
def test_what_a_miner_chose(name: str, pairs: bool) -> None:
    """Some pairs are chosen twice, and some rows have no negative."""
    ours, theirs = getattr(pytorch_metric_learning, name)(), getattr(metric_losses, name)()
    anchor, positive = torch.tensor([0, 0, 4, 1, 2, 2, 11]), torch.tensor([4, 5, 0, 2, 1, 1, 3])
    negative = torch.tensor([6, 6, 8, 7, 3, 10, 9])
    chosen = (anchor, positive, anchor[:-2].flip(0), negative[:-2]) if pairs else (anchor, positive, negative)
    agree(lambda z: ours(z, None, chosen), lambda z: theirs(z, None, chosen), rows(12, 5))


@pytest.mark.parametrize("name", ["NTXentLoss", "SupConLoss"])
def test_its_memory_of_earlier_batches_takes_ours(name: str) -> None:
    """Batches that pass its end, too."""
    memories = [
        metric_losses.CrossBatchMemory(getattr(room, name)(temperature=0.3), 5, memory_size=30).double()
        for room in (pytorch_metric_learning, metric_losses)
    ]
    for step in range(5):
        z = rows(12, 5, seed=step)
        ours, theirs = (value_and_gradients(lambda z, each=each: each(z, LABELS["classes"]), z) for each in memories)
        for a, b in zip(ours, theirs, strict=True):
            assert_near(a, b, 1e-10)


@pytest.mark.parametrize("temperature", [0.03, 0.05, 0.1])
@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("kind", ["labels", "references", "chosen"])
def test_sup_con_near_its_end_is_float64s_in_float32(kind: str, noise: float, temperature: float) -> None:
    """Each pair is all but found, and what its loss still is must be no rounding: theirs in float64 is the measure."""
    sample = torch.arange(128)
    z, twins = rows(128, 128), rows(128, 128) + noise * rows(128, 128, seed=1)

    def called(loss: nn.Module) -> Callable[..., Tensor]:
        if kind == "references":
            return lambda a, b: loss(a, sample, ref_emb=b, ref_labels=sample.clone())
        labels = sample.repeat(2)
        chosen = get_all_pairs_indices(labels) if kind == "chosen" else None
        return lambda a, b: loss(torch.cat([a, b]), labels, chosen)

    theirs = called(metric_losses.SupConLoss(temperature=temperature))
    ours = called(pytorch_metric_learning.SupConLoss(temperature=temperature))
    expected = value_and_gradients(theirs, z, twins)
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float64, 1e-5)):
        for a, b in zip(value_and_gradients(ours, z.to(dtype), twins.to(dtype)), expected, strict=True):
            assert a.dtype == dtype
            assert float((a.double() - b).norm() / b.norm()) < tolerance


@pytest.mark.parametrize("references", [1, 2, 3])
def test_sup_con_averages_the_rows_that_theirs_does(references: int) -> None:
    """With few references many rows cost nothing; where one costs next to nothing, rounding decides."""
    compared = 0
    for seed in range(40):
        labels = torch.randint(2, (33,), generator=torch.Generator().manual_seed(seed))
        of_keys = torch.arange(references) % 2
        z, keys = rows(33, 2, seed=seed), rows(references, 2, seed=100 + seed)
        if rounding_decides(z, keys, labels[:, None] == of_keys, temperature=0.05):
            continue
        ours, theirs = (
            partial(room.SupConLoss(temperature=0.05), labels=labels, ref_labels=of_keys)
            for room in (pytorch_metric_learning, metric_losses)
        )
        expected = value_and_gradients(lambda z, keys, loss=theirs: loss(z, ref_emb=keys), z, keys)
        found = value_and_gradients(lambda z, keys, loss=ours: loss(z, ref_emb=keys), z, keys)
        for a, b in zip(found, expected, strict=True):
            assert_near(a, b, 1e-10)
        compared += 1
    assert compared >= 20


def rounding_decides(z: Tensor, keys: Tensor, positive: Tensor, temperature: float) -> bool:
    """Whether a row with one positive costs more than nothing and less than 1e-14."""
    s = F.normalize(z) @ F.normalize(keys).T / temperature  # (N, M)
    one = positive.sum(1) == 1
    near = s.masked_fill(~positive, 0.0).sum(1)
    cost = F.softplus(s.masked_fill(positive, -torch.inf).logsumexp(1) - near)[one]
    return bool(((cost > 1e-18) & (cost < 1e-14)).any())


def test_a_single_reference_costs_exactly_nothing() -> None:
    z, labels = rows(5, 3, dtype=torch.float32), torch.tensor([0, 1, 0, 0, 1])
    for room in (pytorch_metric_learning, metric_losses):
        assert float(room.SupConLoss()(z, labels, ref_emb=z[:1] + 1, ref_labels=torch.tensor([0]))) == 0


@pytest.mark.parametrize("name", ["NTXentLoss", "SupConLoss", "TripletMarginLoss"])
def test_half_precision_of_labelled_rows_is_widened(name: str) -> None:
    z, loss = rows(12, 5).bfloat16(), getattr(pytorch_metric_learning, name)()
    found = loss(z, LABELS["classes"])
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, loss(z.float(), LABELS["classes"]))


@pytest.mark.parametrize("name", ["NTXentLoss", "SupConLoss", "TripletMarginLoss"])
def test_its_distance(name: str) -> None:
    ours, theirs = (getattr(room, name)().distance for room in (pytorch_metric_learning, metric_losses))
    for attribute in ("is_inverted", "normalize_embeddings", "p", "power"):
        assert getattr(ours, attribute) == getattr(theirs, attribute)
    z, keys = rows(4, 5), rows(3, 5, seed=1)
    assert_near(ours(z, keys), theirs(z, keys), 1e-10)
    assert ours(z).shape == (4, 4)


def test_where_the_share_of_the_positive_underflows() -> None:
    """There the loss stops at 87 and the pair learns nothing; here it is what it is: (200 + log 2) / 2."""
    labels, found = torch.tensor([0, 0, 1]), []
    for room in (pytorch_metric_learning, metric_losses):
        z = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 1e-3]], requires_grad=True)
        room.NTXentLoss(temperature=0.01)(z, labels).backward()
        found.append((room.NTXentLoss(temperature=0.01)(z.detach(), labels), z.grad))
    (ours, slope), (theirs, none) = found
    torch.testing.assert_close(ours, torch.tensor(100.3466), rtol=1e-5, atol=0)
    assert 43 < float(theirs) < 45
    assert float(none[0].abs().max()) == 0 and float(slope[0].abs().max()) > 0.01


# open_clip


needs_open_clip = pytest.mark.skipif(open_clip_peer is None, reason="open_clip is not installed")


@needs_open_clip
@pytest.mark.parametrize("bias", [None, -3.0])
@pytest.mark.parametrize("scale", [1.0, 14.3, 100.0])
@pytest.mark.parametrize("name", ["ClipLoss", "SigLipLoss"])
def test_open_clip(name: str, scale: float, bias: float | None) -> None:
    """Of unit rows and of others; the gradient is that of the features, not of what was normalised."""
    ours, theirs = getattr(open_clip, name)(), getattr(open_clip_peer, name)()
    given = [torch.tensor(scale, dtype=torch.float64)] + ([] if bias is None else [torch.tensor(bias).double()])
    image, text = views()

    def called(loss: nn.Module) -> Callable[..., Tensor]:
        return lambda a, b, s, c=None: loss(a, b, s, c, output_dict=True)["contrastive_loss"]

    agree(called(ours), called(theirs), nn.functional.normalize(image), nn.functional.normalize(text), *given)
    if scale < 50:
        agree(called(ours), called(theirs), image, text, *given)


@needs_open_clip
def test_half_precision_is_summed_in_float32() -> None:
    image, text = (nn.functional.normalize(x).bfloat16() for x in views(64, 16))
    scale = torch.tensor(100.0)
    ours = open_clip.ClipLoss()(image, text, scale)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, open_clip_peer.ClipLoss()(image.float(), text.float(), scale))


# what is not carried


def set_to_zero(loss: nn.Module) -> nn.Module:
    """Its temperature, between steps."""
    loss.temperature = 0.0
    return loss


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: lightly.NTXentLoss(memory_bank_size=-1), "memory_bank_size -1 0"),
        (lambda: lightly.NegativeCosineSimilarity(dim=0), "dim 0 1"),
        (lambda: lightly.NegativeCosineSimilarity(eps=1e-3), "eps 0.001 1e-8"),
        (lambda: lightly.VICRegLoss(eps=1e-3), "eps 0.001 0.0001"),
        (lambda: lightly.NTXentLoss(temperature=0.0), "temperature 0"),
        (lambda: lightly.DCLLoss(temperature=0.0), "temperature 0"),
        (lambda: lightly.DCLWLoss(temperature=-1.0), "temperature -1"),
        (lambda: set_to_zero(lightly.NTXentLoss())(*views()), "temperature 0"),
        (
            lambda: lightly.DCLLoss(weight_fn=lambda a, b: a)(*views()),
            "weight_fn shape (7, 5) (7,)",
        ),
        (lambda: pytorch_metric_learning.TripletMarginLoss(triplets_per_anchor=5), "triplets_per_anchor 5"),
        (lambda: pytorch_metric_learning.NTXentLoss()(views()[0]), "labels None"),
        (lambda: pytorch_metric_learning.TripletMarginLoss(margin=-0.1), "margin -0.1 0"),
        (
            lambda: pytorch_metric_learning.NTXentLoss()(rows(3, 2), torch.arange(3), ((), (), ())),
            "indices_tuple 3 4",
        ),
        (
            lambda: pytorch_metric_learning.SupConLoss()(rows(3, 2), None, [torch.tensor([0, 1])] * 4),
            "positive negative",
        ),
        (
            lambda: pytorch_metric_learning.NTXentLoss()(rows(3, 2), torch.arange(3), None, rows(4, 2)),
            "ref_emb 4 label 3",
        ),
        (lambda: pytorch_metric_learning.NTXentLoss()(rows(3, 2), torch.arange(4)), "labels (4,)"),
        (lambda: open_clip.ClipLoss(use_horovod=True), "use_horovod True"),
        (lambda: open_clip.SigLipLoss(dist_impl="tree"), "dist_impl 'tree' 'bidir'"),
        (
            lambda: open_clip.ClipLoss(world_size=2)(*views(), torch.tensor(1.0)),
            "world_size 2 1",
        ),
        (lambda: open_clip.ClipLoss()(*views(), torch.ones(7, 1)), "logit_scale shape (7, 1)"),
        (lambda: open_clip.SigLipLoss()(*views(), torch.ones(7, 1), None), "logit_scale shape (7, 1)"),
    ],
)
def test_what_is_not_carried_is_refused_in_a_line(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=facts(words)) as error:
        make()
    assert "\n" not in str(error.value)
