"""Pairs and CoSENT: their losses as loops, beside sentence-transformers, and that they learn what pairs say."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nearfar import _torchvision  # noqa: F401, before sentence-transformers
from nearfar.losses.ranking import cosent_reference
from nearfar.losses.reference import cosine
from nearfar.methods import CLIP, METHODS, Batch, CoSENT, Method, Pairs
from nearfar.methods.nested import NestedDims
from nearfar.methods.pairs import Guides, negative_ids, pair_loss, row_numbers
from nearfar.methods.toy import toy_text_encoder, toy_towers
from tests.losses.agreement import rows
from tests.support.facts import facts

B, D = 6, 16
IDS = torch.arange(B)


def method_of(**options: Any) -> Pairs:
    torch.manual_seed(0)
    return Pairs(toy_text_encoder(), features=D, **options).double()


def batch_of(negatives: int = 0, **more: Any) -> Batch:
    generator = torch.Generator().manual_seed(1)
    views = [torch.randint(4, 40, (B, 8), generator=generator) for _ in range(2 + negatives)]
    return Batch(views, IDS, IDS, negatives=negatives, **more)


def gradients(loss: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(loss, inputs, materialize_grads=True))


def embeddings(count: int) -> list[Tensor]:
    return [x.requires_grad_() for x in rows(count, B, D).unbind()]


def encoded_of(z: list[Tensor], **more: Tensor) -> dict[str, Tensor]:
    return {**{f"z{i}": x for i, x in enumerate(z, 1)}, "ids": IDS, **more}


def loop_loss(
    z: list[Tensor], temperature: float, left_out: Callable[[int, int, int], bool], backwards: bool
) -> Tensor:
    """Row by row; left_out(i, column, j): whether the j-th text of a column is no negative of anchor i."""
    terms = []
    for i in range(B):
        scores = [cosine(z[0][i], z[1][i])]
        for column, keys in enumerate(z[1:]):
            scores += [cosine(z[0][i], k) for j, k in enumerate(keys) if not left_out(i, column, j)]
        terms.append((torch.stack(scores) / temperature).logsumexp(0) - scores[0] / temperature)
    if backwards:
        for i in range(B):
            scores = torch.stack([cosine(z[1][i], k) for k in z[0]]) / temperature
            terms.append(scores.logsumexp(0) - scores[i])
    return torch.stack(terms).mean()


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("negatives", [0, 1, 3])
def test_each_anchor_finds_its_positive_among_all_positives_and_negatives(negatives: int, symmetric: bool) -> None:
    z = embeddings(2 + negatives)
    step = method_of(symmetric=symmetric).contrast(encoded_of(z))
    expected = loop_loss(z, 0.05, lambda i, column, j: column == 0 and i == j, symmetric)
    torch.testing.assert_close(step.loss, expected)
    torch.testing.assert_close(gradients(step.loss, z), gradients(expected, z), rtol=1e-8, atol=1e-10)
    assert step.candidates == B * (1 + negatives) and bool(step.fair) == (negatives == 0)


def test_a_negative_that_repeats_another_pair_is_none_of_its() -> None:
    batch = batch_of(negatives=2)
    batch.views[2][1], batch.views[3][0] = batch.views[0][4], batch.views[1][5]
    method = method_of().eval()
    encoded = method.encode(batch)
    z = [encoded[f"z{i}"] for i in range(1, 5)]
    expected = loop_loss(z, 0.05, lambda i, c, j: (c == 0 and i == j) or (i, c, j) in ((4, 1, 1), (5, 2, 0)), False)
    torch.testing.assert_close(method.contrast(encoded).loss, expected)
    alone = {name: x for name, x in encoded.items() if name != "texts"}
    assert method.contrast(alone).loss > expected + 1e-9
    assert torch.equal(encoded["texts"][1, 2], row_numbers(batch.views[0])[4])


def test_a_guide_leaves_out_what_it_finds_nearer_also_of_hard_negatives_and_backwards() -> None:
    z, guide = embeddings(3), rows(B, 3, 5, seed=4)
    margins = (0.1, 0.2)

    def above(i: int, column: int, j: int, anchor: int = 0, other: int = 1) -> bool:
        own = float(cosine(guide[i, anchor], guide[i, other]))
        return float(cosine(guide[i, anchor], guide[j, column])) > own - margins[0] - margins[1] * abs(own)

    step = method_of(guide="a guide", guide_margin=0.1, guide_relative_margin=0.2).contrast(encoded_of(z, guide=guide))
    forward = loop_loss(z, 0.05, lambda i, c, j: (c == 0 and i == j) or above(i, 1 + c, j), False)
    torch.testing.assert_close(step.loss, forward)
    both = pair_loss(*z[:2], z[2:], temperature=0.05, ids=IDS, symmetric=True, guides=Guides(guide, *margins))
    backward = loop_loss([z[1], z[0]], 0.05, lambda i, c, j: i == j or above(i, 0, j, 1, 0), False)
    torch.testing.assert_close(both, (forward + backward) / 2)
    torch.testing.assert_close(gradients(both, z), gradients((forward + backward) / 2, z), rtol=1e-8, atol=1e-10)
    one = Guides(guide[:, :1], 0.5, 0.0)  # one embedding stands for all views: the positive is at 1
    found = pair_loss(*z[:2], temperature=0.05, ids=IDS, guides=one)
    near = torch.nn.functional.cosine_similarity(guide[:, None, 0], guide[None, :, 0], dim=2) > 0.5
    assert near.sum() > B
    torch.testing.assert_close(found, loop_loss(z[:2], 0.05, lambda i, c, j: i == j or bool(near[i, j]), False))


@pytest.mark.parametrize("kind", [Pairs, CoSENT, CLIP])
def test_nested_dimensions_are_the_weighted_sum_of_the_loss_of_each_width(kind: type[Method]) -> None:
    torch.manual_seed(0)
    encoder: Any = toy_towers() if kind is CLIP else toy_text_encoder()
    width = encoder.num_features
    plain = kind(encoder, features=width).double()
    nested = kind(encoder, features=width, dims=[2, width, 5], dim_weights=[0.5, 1, 2.0]).double()
    z = [x[:, :width] for x in embeddings(2)]
    scores = torch.tensor([0.0, 3, 1, 2, 2, 5])
    losses = [plain.contrast(encoded_of([x[:, :d] for x in z], scores=scores)).loss for d in (2, width, 5)]
    step = nested.contrast(encoded_of(z, scores=scores))
    torch.testing.assert_close(step.loss, 0.5 * losses[0] + losses[1] + 2 * losses[2])
    assert step.z1.shape == (B, width)  # health is that of the whole embedding
    if step.candidates:
        torch.testing.assert_close(step.log["info_nce"], losses[1].detach())


@pytest.mark.parametrize(
    ("dims", "weights", "said"),
    [
        ([8, 4], [], "dims [8, 4] 16"),
        ([16, 0], [], "dims [16, 0]"),
        ([16, 16], [], "dims [16, 16]"),
        ([32, 16], [], "dims [32, 16] 16"),
        ("16", [], "dims '16'"),
        ([16, 2.5], [], "dims [16, 2.5]"),
        ([16, 4], [1], "dim_weights [1] 2"),
        ([16, 4], [1, -1], "dim_weights [1, -1]"),
        ([], [1], "dim_weights [1] 0"),
    ],
)
def test_impossible_dims_are_refused(dims: Any, weights: list[float], said: str) -> None:
    with pytest.raises(ValueError, match=facts(said)) as error:
        NestedDims(dims, weights, 16)
    assert "\n" not in str(error.value)


def test_cosent_learns_from_the_scores_of_the_batch() -> None:
    z, scores = embeddings(2), torch.tensor([0.0, 3, 1, 2, 2, 5])
    method = CoSENT(toy_text_encoder(), features=D).double()
    step = method.contrast({"z1": z[0], "z2": z[1], "scores": scores})
    torch.testing.assert_close(step.loss, cosent_reference(*z, scores, 0.05))
    assert step.candidates == 0
    encoded = method.encode(Batch(batch_of().views, IDS, IDS, labels=scores))
    assert encoded.keys() == {"z1", "z2", "scores"}
    with pytest.raises(ValueError, match=facts("scores")):
        method.encode(batch_of())


def test_a_guide_is_not_for_a_sigmoid_and_not_for_a_ring() -> None:
    with pytest.raises(ValueError, match=facts("guide 'x' 'sigmoid' softmax")):
        METHODS["siglip"](toy_towers(), guide="x")
    assert method_of().ring and not method_of(guide="x").ring


def test_one_sentence_is_read_twice_and_needs_dropout() -> None:
    tokens = batch_of().views[0]
    method = method_of().train()
    encoded = method.encode(Batch([tokens], IDS, IDS))
    assert not torch.equal(encoded["z1"], encoded["z2"])
    for part in method.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    with pytest.raises(ValueError, match=facts("dropout=0.1")):
        method.encode(Batch([tokens], IDS, IDS))


# Beside sentence-transformers: its losses on our embeddings, in float64.


class Given(torch.nn.Module):
    """Stands for a SentenceTransformer: its output is what it is given."""

    tokenizer: Any = None
    max_seq_length = 8

    def __init__(self, features: str = "z") -> None:
        super().__init__()
        self.features = features

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features[self.features]}

    def get_embedding_dimension(self) -> int:
        return D


def theirs(name: str) -> Any:
    return getattr(pytest.importorskip("sentence_transformers.sentence_transformer.losses"), name)


def agree(ours: Tensor, other: Tensor, z: list[Tensor]) -> None:
    torch.testing.assert_close(ours, other, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(gradients(ours, z), gradients(other, z), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("negatives", [0, 2])
@pytest.mark.parametrize("symmetric", [False, True])
def test_equals_multiple_negatives_ranking_loss(symmetric: bool, negatives: int) -> None:
    z = embeddings(2 + negatives)
    both = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"} if symmetric else {}
    other = theirs("MultipleNegativesRankingLoss")(Given(), **both)([{"z": x} for x in z], None)
    agree(method_of(symmetric=symmetric).contrast(encoded_of(z)).loss, other, z)


def test_equals_matryoshka_loss() -> None:
    z, model = embeddings(3), Given()
    inner = theirs("MultipleNegativesRankingLoss")(model)
    loss = theirs("MatryoshkaLoss")(model, inner, [16, 8, 4], [1, 0.5, 2])
    other = loss([{"z": x} for x in z], None)
    agree(method_of(dims=[16, 8, 4], dim_weights=[1, 0.5, 2]).contrast(encoded_of(z)).loss, other, z)


def test_equals_cosent_loss() -> None:
    z, scores = embeddings(2), torch.tensor([0.0, 3, 1, 2, 2, 5], dtype=torch.float64)
    method = CoSENT(toy_text_encoder(), features=D)
    agree(
        method.contrast({"z1": z[0], "z2": z[1], "scores": scores}).loss,
        theirs("CoSENTLoss")(Given())([{"z": x} for x in z], scores),
        z,
    )


@pytest.mark.parametrize("negatives", [0, 1])
@pytest.mark.parametrize(("strategy", "margin"), [("absolute", 0.0), ("absolute", 0.2), ("relative", 0.3)])
def test_equals_gist_embed_loss(strategy: str, margin: float, negatives: int, monkeypatch: pytest.MonkeyPatch) -> None:
    z, guide = embeddings(2 + negatives), rows(B, 2 + negatives, 5, seed=4)
    kind = theirs("GISTEmbedLoss")
    monkeypatch.setattr("sentence_transformers.sentence_transformer.losses.gist_embed.PreTrainedTokenizerBase", Words)
    options = {"margin_strategy": strategy, "margin": margin, "contrast_anchors": False, "contrast_positives": False}
    model, other = Given(), Given("guide")
    model.tokenizer = other.tokenizer = Words()
    loss = kind(model, other, temperature=0.05, **options)
    found = loss([{"z": x, "guide": guide[:, i]} for i, x in enumerate(z)], None)
    name = "guide_margin" if strategy == "absolute" else "guide_relative_margin"
    agree(method_of(guide="a guide", **{name: margin}).contrast(encoded_of(z, guide=guide)).loss, found, z)


class Words:
    """Stands for a tokenizer."""

    def get_vocab(self) -> dict[str, int]:
        return {}


def test_a_hard_negative_has_the_id_of_the_last_sample_that_says_the_same() -> None:
    for seed in range(20):
        texts = torch.randint(-4, 8, (B, 4), generator=torch.Generator().manual_seed(seed))
        known = [*zip(texts[:, 0].tolist(), range(B), strict=True), *zip(texts[:, 1].tolist(), range(B), strict=True)]
        expected = [dict(known).get(number, B) for number in texts[:, 2:].T.flatten().tolist()]
        assert negative_ids(texts, IDS, 2).tolist() == expected
