"""The k of k-NN fits the classes, and is settled before a test sample is looked at."""

import pytest
import torch

from nearfar.evaluation.protocols import ProtocolConfig
from nearfar.evaluation.protocols.knn import KnnSettings, fitted_k
from tests.evaluation.bars import Bars, evaluate


@pytest.mark.parametrize(("size", "first"), [(1, 1), (4, 1), (5, 5), (13, 5), (19, 5), (20, 20), (500, 20)])
def test_the_first_k_is_at_most_the_size_of_a_typical_class(size: int, first: int) -> None:
    labels = torch.arange(3).repeat_interleave(size)
    found = fitted_k(KnnSettings(), labels).k
    assert found is not None and found[0] == first and sorted(found) == [1, 5, 20]


def test_a_few_large_or_small_classes_do_not_decide() -> None:
    sizes = torch.tensor([1000, 13, 13, 13, 2])
    assert fitted_k(KnnSettings(), torch.arange(5).repeat_interleave(sizes)).k == [5, 1, 20]


def test_a_given_k_stays() -> None:
    assert fitted_k(KnnSettings(k=[7, 3]), torch.zeros(4)).k == [7, 3]


def test_the_headline_and_each_k_are_reported_and_recorded() -> None:
    results = evaluate({"trained": torch.nn.Flatten()}, Bars(52, 0), Bars(40, 1), protocols=["knn"])
    assert results.value("trained", "knn") == results.value("trained", "knn", "accuracy, k = 5")
    assert all(results.value("trained", "knn", f"accuracy, k = {k}") is not None for k in (1, 5, 20))
    (source,) = results.provenance
    assert source.settings["k"] == [5, 1, 20]  # 13 of each of four classes
    (row,) = (row for row in results.rows if (row.encoder, row.metric) == ("trained", "accuracy"))
    assert results.protocol(row) == "knn, k = 5"
    own = evaluate(
        {"trained": torch.nn.Flatten()},
        Bars(52, 0),
        Bars(40, 1),
        protocols=["knn"],
        settings=ProtocolConfig(knn=KnnSettings(k=[20])),
    )
    assert own.value("trained", "knn") == results.value("trained", "knn", "accuracy, k = 20")
