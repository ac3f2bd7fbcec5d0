"""Bad input is refused before any work, in words that name the argument and what was seen."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nearfar import losses

Z = torch.ones(3, 2)
IDS = torch.arange(3)

# Each call is right as it stands; a test spoils one argument.
CALLS: dict[str, tuple[Callable[..., Tensor], dict[str, Any]]] = {
    "info_nce": (losses.info_nce, {"query": Z, "positive": Z, "temperature": 0.1}),
    "info_nce with a queue": (
        losses.info_nce,
        {
            "query": Z,
            "positive": Z,
            "negatives": torch.ones(4, 2),
            "ids": IDS,
            "negative_ids": torch.arange(4),
            "temperature": 0.1,
        },
    ),
    "nt_xent": (losses.nt_xent, {"z1": Z, "z2": Z, "temperature": 0.1}),
    "decoupled": (losses.decoupled, {"z1": Z, "z2": Z, "temperature": 0.1}),
    "symmetric_info_nce": (losses.symmetric_info_nce, {"z1": Z, "z2": Z, "temperature": 0.1}),
    "debiased": (losses.debiased, {"z1": Z, "z2": Z, "temperature": 0.1, "positive_prior": 0.1}),
    "hard_negative": (losses.hard_negative, {"z1": Z, "z2": Z, "temperature": 0.1, "beta": 1.0}),
    "top_k_info_nce": (losses.top_k_info_nce, {"z1": Z, "z2": Z, "temperature": 0.1, "k": 2}),
    "sup_con": (losses.sup_con, {"z": Z, "labels": IDS, "temperature": 0.1}),
    "sigmoid_pairs": (losses.sigmoid_pairs, {"z1": Z, "z2": Z, "logit_scale": 10.0, "logit_bias": -10.0}),
    "nce": (losses.nce, {"query": Z, "positive": Z, "noise": Z, "temperature": 0.1, "bank_size": 9}),
    "nce, noise per query": (
        losses.nce,
        {"query": Z, "positive": Z, "noise": torch.ones(3, 5, 2), "temperature": 0.1, "bank_size": 9},
    ),
    "estimate_log_normalizer": (
        losses.estimate_log_normalizer,
        {"query": Z, "noise": Z, "temperature": 0.1, "bank_size": 9},
    ),
    "triplet": (losses.triplet, {"anchor": Z, "positive": Z, "negative": Z, "margin": 0.1}),
    "batch_triplet": (losses.batch_triplet, {"z": Z, "labels": IDS, "margin": 0.1}),
    "cosine_regression": (losses.cosine_regression, {"prediction": Z, "target": Z}),
    "barlow_twins": (losses.barlow_twins, {"z1": Z, "z2": Z}),
    "vicreg": (losses.vicreg, {"z1": Z, "z2": Z}),
    "similarity_logsumexp": (losses.similarity_logsumexp, {"query": Z, "keys": Z, "scale": 1.0}),
    "similarity_logsumexp_two_way": (losses.similarity_logsumexp_two_way, {"query": Z, "keys": Z, "scale": 1.0}),
    "similarity_softplus_sum": (losses.similarity_softplus_sum, {"query": Z, "keys": Z, "scale": 1.0, "bias": 0.0}),
    "top_k_similarity": (losses.top_k_similarity, {"query": Z, "keys": Z, "k": 2}),
}
EMBEDDINGS = {"query", "positive", "negatives", "z1", "z2", "z", "noise", "anchor", "negative", "prediction", "target"}
EMBEDDINGS |= {"keys"}
WITH_IDS = ["info_nce", "nt_xent", "decoupled", "symmetric_info_nce", "debiased", "hard_negative", "top_k_info_nce"]
WITH_IDS += ["sigmoid_pairs"]
OF_A_PAIR_OF_IDS = [name for name in CALLS if name.startswith(("similarity", "top_k_similarity"))]


def assert_refused(call: str, spoilt: dict[str, Any], named: str, seen: str, kind: type[Exception]) -> None:
    """The call raises `kind`, naming the argument and showing what was seen."""
    function, arguments = CALLS[call]
    function(**arguments)
    with pytest.raises(kind) as caught:
        function(**arguments | spoilt)
    message = str(caught.value)
    assert re.search(rf"\b{named}\b", message), message
    assert seen in message, message
    assert "expected" in message, message


def calls_with(arguments: set[str]) -> list[tuple[str, str]]:
    return [(call, name) for call, (_, given) in CALLS.items() for name in given if name in arguments]


@pytest.mark.parametrize(
    ("spoilt", "seen", "kind"),
    [
        (torch.ones(3), "(3,)", ValueError),
        (torch.ones(1, 3, 2, 1), "(1, 3, 2, 1)", ValueError),
        (torch.ones(3, 2, dtype=torch.long), "torch.int64", TypeError),
        (torch.ones(3, 2, dtype=torch.bool), "torch.bool", TypeError),
        (torch.ones(3, 0), "(3, 0)", ValueError),
        (torch.ones(0, 2), "(0, 2)", ValueError),
        ([[1.0, 2.0]] * 3, "list", TypeError),
    ],
    ids=["rank 1", "rank 4", "integers", "booleans", "no features", "no rows", "a list"],
)
@pytest.mark.parametrize(("call", "name"), calls_with(EMBEDDINGS))
def test_embeddings_must_be_rows_of_floating_point_features(
    call: str, name: str, spoilt: Any, seen: str, kind: type[Exception]
) -> None:
    assert_refused(call, {name: spoilt}, name, seen, kind)


@pytest.mark.parametrize(("call", "name"), [c for c in calls_with(EMBEDDINGS) if c[1] != "z"])
def test_embeddings_must_agree_in_features_type_and_rows(call: str, name: str) -> None:
    shape = CALLS[call][1][name].shape
    wider = torch.ones(*shape[:-1], 5)
    assert_refused(call, {name: wider}, name, str(tuple(wider.shape)), ValueError)
    assert_refused(call, {name: torch.ones(shape, dtype=torch.float64)}, name, "torch.float64", TypeError)
    paired = name not in ("negatives", "keys", "noise") and not CALLS[call][1].keys() & {"keys"}
    if paired and call != "estimate_log_normalizer":
        assert_refused(call, {name: torch.ones(8, 2)}, name, "(8, 2)", ValueError)


@pytest.mark.parametrize(("call", "name"), calls_with({"temperature", "logit_scale"}))
@pytest.mark.parametrize(
    ("spoilt", "seen", "kind"),
    [
        (0, "0", ValueError),
        (0.0, "0", ValueError),
        (-0.5, "-0.5", ValueError),
        (math.nan, "nan", ValueError),
        (math.inf, "inf", ValueError),
        (torch.tensor(-0.5), "-0.5", ValueError),
        (torch.tensor(math.nan), "nan", ValueError),
        (torch.ones(2), "(2,)", ValueError),
        (torch.ones(0), "(0,)", ValueError),
        (True, "True", TypeError),
        ("0.1", "'0.1'", TypeError),
        (None, "None", TypeError),
    ],
    ids=str,
)
def test_temperature_must_be_one_finite_number_above_zero(
    call: str, name: str, spoilt: Any, seen: str, kind: type[Exception]
) -> None:
    assert_refused(call, {name: spoilt}, name, seen, kind)


@pytest.mark.parametrize(("call", "name"), calls_with({"scale", "bias", "logit_bias"}))
@pytest.mark.parametrize(
    ("spoilt", "seen", "kind"),
    [
        (math.nan, "nan", ValueError),
        (-math.inf, "-inf", ValueError),
        (torch.ones(2), "(2,)", ValueError),
        (True, "True", TypeError),
        ("1", "'1'", TypeError),
    ],
    ids=str,
)
def test_scale_and_bias_must_be_one_finite_number(
    call: str, name: str, spoilt: Any, seen: str, kind: type[Exception]
) -> None:
    assert_refused(call, {name: spoilt}, name, seen, kind)


@pytest.mark.parametrize("temperature", [torch.tensor(0.1), torch.tensor([0.1]), torch.tensor([[0.1]]).double(), 1])
def test_temperature_may_be_a_tensor_of_one_number_of_any_shape_and_type(temperature: float | Tensor) -> None:
    found = losses.nt_xent(Z, Z, temperature=temperature)
    assert found.dtype == torch.float32
    assert found.shape == ()
    assert found.item() == pytest.approx(math.log(5), rel=1e-6)


@pytest.mark.parametrize(
    "call", [c for c in CALLS if not c.startswith(("similarity", "top_k_sim", "estimate", "barlow", "vicreg", "batch"))]
)
@pytest.mark.parametrize("reduction", ["avg", "Mean", None, 3])
def test_unknown_reduction_is_refused(call: str, reduction: Any) -> None:
    assert_refused(call, {"reduction": reduction}, "reduction", repr(reduction), ValueError)


@pytest.mark.parametrize(
    ("call", "name", "spoilt"),
    [
        ("info_nce", "similarity", "angular"),
        ("batch_triplet", "mining", "semihard"),
        ("batch_triplet", "distance", "manhattan"),
        ("triplet", "distance", "l2"),
    ],
)
def test_unknown_choice_is_refused_and_the_known_ones_listed(call: str, name: str, spoilt: str) -> None:
    assert_refused(call, {name: spoilt}, name, repr(spoilt), ValueError)
    assert_refused(call, {name: spoilt}, name, "euclidean" if name != "mining" else "semi-hard", ValueError)


@pytest.mark.parametrize("k", [0, -1, 5, True, 2.0, None])
def test_k_must_be_a_whole_number_of_negatives_that_there_are(k: Any) -> None:
    assert_refused("top_k_info_nce", {"k": k}, "k", repr(k), ValueError)
    assert_refused("top_k_info_nce", {"k": k}, "k", "from 1 to 4", ValueError)
    assert_refused("top_k_similarity", {"k": k}, "k", repr(k), ValueError)


def test_k_is_bounded_by_the_poorest_rows_negatives() -> None:
    spoilt = {"ids": torch.tensor([0, 0, 1]), "k": 3}
    assert_refused("top_k_info_nce", spoilt, "k", "from 1 to 2", ValueError)


@pytest.mark.parametrize(
    ("call", "name"),
    [("sup_con", "labels"), ("batch_triplet", "labels"), *((call, "ids") for call in WITH_IDS)],
)
@pytest.mark.parametrize(
    ("spoilt", "seen", "kind"),
    [
        (torch.arange(4), "(4,)", ValueError),
        (torch.arange(3)[:, None], "(3, 1)", ValueError),
        (torch.tensor(1), "()", ValueError),
        (torch.ones(3), "torch.float32", TypeError),
        (torch.ones(3, dtype=torch.bool), "torch.bool", TypeError),
        ([0, 1, 2], "list", TypeError),
    ],
    ids=["too long", "a column", "a number", "floats", "booleans", "a list"],
)
def test_ids_and_labels_must_be_one_integer_for_each_row(
    call: str, name: str, spoilt: Any, seen: str, kind: type[Exception]
) -> None:
    assert_refused(call, {name: spoilt}, name, seen, kind)


@pytest.mark.parametrize("call", OF_A_PAIR_OF_IDS)
def test_ids_of_queries_and_keys_come_together_and_are_one_integer_for_each_row(call: str) -> None:
    for name, other in (("query_ids", "key_ids"), ("key_ids", "query_ids")):
        assert_refused(call, {name: IDS}, name, f"{other} is None", ValueError)
        assert_refused(call, {name: torch.arange(4), other: IDS}, name, "(4,)", ValueError)
        assert_refused(call, {name: torch.ones(3), other: IDS}, name, "torch.float32", TypeError)


def test_ids_of_a_queue_come_with_the_queue_and_with_ids() -> None:
    assert_refused("info_nce", {"negative_ids": IDS}, "negative_ids", "without negatives", ValueError)
    assert_refused("info_nce with a queue", {"ids": None}, "ids", "negative_ids", ValueError)
    assert_refused("info_nce with a queue", {"negative_ids": None}, "negative_ids", "ids", ValueError)
    assert_refused("info_nce with a queue", {"negative_ids": IDS}, "negative_ids", "(3,)", ValueError)
    assert_refused("info_nce with a queue", {"ids": torch.arange(4)}, "ids", "(4,)", ValueError)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("hard_negative", "beta"),
        ("hard_negative", "positive_prior"),
        ("debiased", "positive_prior"),
        ("triplet", "margin"),
        ("batch_triplet", "margin"),
        ("nce", "proximal"),
        ("barlow_twins", "redundancy_weight"),
        ("vicreg", "invariance_weight"),
        ("vicreg", "variance_weight"),
        ("vicreg", "covariance_weight"),
    ],
)
def test_weights_and_margins_must_be_numbers_not_below_zero(call: str, name: str) -> None:
    assert_refused(call, {name: -0.25}, name, "-0.25", ValueError)
    assert_refused(call, {name: math.nan}, name, "nan", ValueError)
    assert_refused(call, {name: math.inf}, name, "inf", ValueError)
    assert_refused(call, {name: "1"}, name, "'1'", TypeError)
    if name == "positive_prior":
        assert_refused(call, {name: 1.0}, name, "1", ValueError)


@pytest.mark.parametrize("call", ["nce", "estimate_log_normalizer"])
@pytest.mark.parametrize("size", [0, -3, 2.5, True])
def test_bank_must_hold_a_whole_number_of_rows(call: str, size: Any) -> None:
    assert_refused(call, {"bank_size": size}, "bank_size", repr(size), ValueError)


def test_normalizer_must_be_one_finite_number() -> None:
    assert_refused("nce", {"log_normalizer": math.nan}, "log_normalizer", "nan", ValueError)
    assert_refused("nce", {"log_normalizer": torch.zeros(3)}, "log_normalizer", "(3,)", ValueError)


def test_noise_for_each_query_must_have_as_many_rows_as_queries() -> None:
    assert_refused("nce", {"noise": torch.ones(2, 5, 2)}, "noise", "(2, 5, 2)", ValueError)


@pytest.mark.parametrize("call", ["barlow_twins", "vicreg"])
def test_statistics_need_two_rows(call: str) -> None:
    assert_refused(call, {"z1": torch.ones(1, 2), "z2": torch.ones(1, 2)}, "z1", "(1, 2)", ValueError)
