"""Options of the other libraries that their own tests use: distances, reducers, miners, memories, banks, chunks."""

import math
from typing import Any

import pytest
import torch

from nearfar import _torchvision  # noqa: F401  before the peers, which import torchvision
from nearfar.adapters import lightly, open_clip, pytorch_metric_learning
from tests.adapters.test_parity import LABELS, agree, views
from tests.losses.agreement import rows
from tests.support.facts import facts

distances = pytest.importorskip("pytorch_metric_learning.distances")
reducers = pytest.importorskip("pytorch_metric_learning.reducers")
miners = pytest.importorskip("pytorch_metric_learning.miners")
metric_losses = pytest.importorskip("pytorch_metric_learning.losses")
lightly_losses = pytest.importorskip("lightly.loss")

NAMES = ["NTXentLoss", "SupConLoss", "TripletMarginLoss"]
OPTIONS: dict[str, Any] = {
    "Lp": lambda: {"distance": distances.LpDistance()},
    "Lp, p = 1, squared, as it is": lambda: {
        "distance": distances.LpDistance(normalize_embeddings=False, p=1, power=2)
    },
    "dot": lambda: {"distance": distances.DotProductSimilarity(normalize_embeddings=False)},
    "mean": lambda: {"reducer": reducers.MeanReducer()},
    "per anchor": lambda: {"reducer": reducers.PerAnchorReducer(reducers.AvgNonZeroReducer())},
    "threshold": lambda: {"reducer": reducers.ThresholdReducer(low=0.3), "distance": distances.CosineSimilarity()},
}
TRIPLETS: dict[str, dict[str, Any]] = {
    "swap": {"swap": True, "margin": 0.6},
    "smooth": {"smooth_loss": True},
    "swap and smooth": {"swap": True, "smooth_loss": True},
}


def both(name: str, **options: Any) -> tuple[Any, Any]:
    return getattr(pytorch_metric_learning, name)(**options), getattr(metric_losses, name)(**options)


@pytest.mark.parametrize("references", [False, True])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_distance_and_reducer(name: str, option: str, references: bool) -> None:
    ours, theirs = both(name, **OPTIONS[option]())
    if name == "NTXentLoss" and option.startswith("Lp, p"):
        ours.temperature = theirs.temperature = 10.0  # their positive's share must not underflow
    if name == "TripletMarginLoss" and option == "per anchor":
        pytest.skip("their reducer takes no triplets")
    labels, z = LABELS["classes"], rows(12, 5)
    if not references:
        agree(lambda z: ours(z, labels), lambda z: theirs(z, labels), z)
        return
    of_keys, keys = torch.tensor([1, 5, 0, 0, 3, 1, 1]), rows(7, 5, seed=1)
    agree(lambda z, k: ours(z, labels, None, k, of_keys), lambda z, k: theirs(z, labels, None, k, of_keys), z, keys)


@pytest.mark.parametrize("options", TRIPLETS.values(), ids=TRIPLETS)
def test_kinds_of_triplet_loss(options: dict[str, Any]) -> None:
    ours, theirs = both("TripletMarginLoss", **options)
    labels, z = LABELS["classes"], rows(12, 5)
    agree(lambda z: ours(z, labels), lambda z: theirs(z, labels), z)
    agree(lambda z: ours(z, torch.arange(12)), lambda z: theirs(z, torch.arange(12)), z)


@pytest.mark.parametrize("miner", ["MultiSimilarityMiner", "TripletMarginMiner", "BatchHardMiner"])
@pytest.mark.parametrize("references", [False, True])
def test_triplets_of_a_miner(miner: str, references: bool) -> None:
    ours, theirs = both("TripletMarginLoss", margin=0.3)
    labels, z, keys = LABELS["classes"], rows(12, 5), rows(12, 5, seed=1)
    given = (keys, labels.clone()) if references else (None, None)
    chosen = getattr(miners, miner)()(z, labels, *given)
    agree(
        lambda z, k: ours(z, labels, chosen, k if references else None, given[1]) + 0 * k.sum(),
        lambda z, k: theirs(z, labels, chosen, k if references else None, given[1]) + 0 * k.sum(),
        z,
        keys,
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("miner", [None, "MultiSimilarityMiner"])
def test_a_memory(name: str, miner: str | None) -> None:
    """Two steps of `CrossBatchMemory`; on one process `DistributedLossWrapper` is the loss itself."""
    found = []
    for loss in both(name):
        memory = metric_losses.CrossBatchMemory(loss, 5, memory_size=20, miner=miner and getattr(miners, miner)())
        values = [memory(rows(12, 5, seed=i), LABELS["classes"]) for i in range(2)]
        found.append(torch.stack(values))
        wrapped = pytorch_metric_learning.DistributedLossWrapper(loss)(rows(12, 5), LABELS["classes"])
        assert torch.equal(wrapped, loss(rows(12, 5), LABELS["classes"]))
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-12)


def test_a_bank_by_its_rows_alone() -> None:
    """lightly's own test: full of copies of the key, the loss is log(rows + 1) to seven digits."""
    for bank_rows in (1, 8, 17):
        for temperature in (0.1, 1.0, 7.0):
            direction = torch.tensor([0.6324555, 1.264911])
            z0, z1 = (torch.rand(4, 1) * direction for _ in range(2))
            loss = lightly.NTXentLoss(temperature=temperature, memory_bank_size=bank_rows)
            for _ in range(bank_rows + 2):
                value = loss(z0.requires_grad_(), z1)
            assert value.item() == pytest.approx(math.log(bank_rows + 1), rel=1e-6)
            assert loss.memory_bank.bank.shape == (bank_rows, 2)


@pytest.mark.parametrize("name", ["NTXentLoss", "DCLLoss", "BarlowTwinsLoss", "VICRegLoss"])
def test_gathering_needs_torch_distributed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.distributed.is_available", lambda: False)
    with pytest.raises(ValueError, match=facts("gather_distributed True torch.distributed")):
        getattr(lightly, name)(gather_distributed=True)
    getattr(lightly, name)()


def test_vicreg_of_maps() -> None:
    z1, z2 = rows(4 * 6, 3).view(4, 2, 3, 3), rows(4 * 6, 3, seed=1).view(4, 2, 3, 3)
    agree(lightly.VICRegLoss(nu_param=2.0), lightly_losses.VICRegLoss(nu_param=2.0), z1, z2)
    for wrong in (z2[:2], z2[..., :2]):
        with pytest.raises(AssertionError, match=facts("z_a z_b (4, 2, 3, 3)")):
            lightly.VICRegLoss()(z1, wrong)
    with pytest.raises(ValueError, match=facts("z_a (1, 2, 3, 3)")):
        lightly.VICRegLoss()(z1[:1], z2[:1])


def test_siglip_in_chunks_and_of_negatives_alone() -> None:
    z1, z2 = views()
    scale, bias = torch.tensor(5.0, dtype=torch.float64), torch.tensor(-2.0, dtype=torch.float64)
    whole, chunked = open_clip.SigLipLoss(), open_clip.SigLipLoss(chunk_size=3)
    assert torch.equal(whole(z1, z2, scale, bias), chunked(z1, z2, scale, bias))
    logits = scale * z1 @ z2.T + bias
    alone = torch.nn.functional.softplus(logits).sum() / len(z1)
    torch.testing.assert_close(chunked._loss(z1, z2, scale, bias, negative_only=True), alone)
    with pytest.raises(ValueError, match=facts("chunk_size -1")):
        open_clip.SigLipLoss(chunk_size=-1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("option", "value"),
    [("distance", "cosine"), ("reducer", 3), ("embedding_regularizer", object()), ("collect_stats", True)],
)
def test_what_is_out_of_scope(name: str, option: str, value: object) -> None:
    with pytest.raises(ValueError, match=facts(option)) as error:
        getattr(pytorch_metric_learning, name)(**{option: value})
    assert "\n" not in str(error.value)
