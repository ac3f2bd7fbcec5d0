"""Zero-shot classification against plain loops."""

import math
from pathlib import Path

import pytest
import torch
from sklearn import metrics as sk
from torch import Tensor

from nearfar.evaluation.protocols.zero_shot import (
    class_weights,
    prompts,
    read_templates,
    templates_from,
    zero_shot,
    zero_shot_scores,
)
from tests.support.facts import facts

NAMES = ["cat", "sea_lion", "red letter K"]
OWN = ["a photo of a {}.", "{}, drawn", "two {} or one {}"]


def embed_texts(texts: list[str]) -> Tensor:
    """A direction for each text, of any length."""
    seeds = [sum(i * ord(c) for i, c in enumerate(text, 1)) for text in texts]
    return torch.stack([torch.randn(7, generator=torch.Generator().manual_seed(s)) * (1 + s % 5) for s in seeds])


def test_prompts_are_names_in_templates() -> None:
    assert prompts(["sea_lion"], OWN) == [["a photo of a sea lion.", "sea lion, drawn", "two sea lion or one sea lion"]]
    assert prompts(["a{}b {0}"], ["the {}"]) == [["the a{}b {0}"]]  # names are not templates
    assert all(name in text for name, texts in zip(["cat"], prompts(["cat"]), strict=True) for text in texts)


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_weights_are_the_unit_mean_of_unit_embeddings(batch_size: int) -> None:
    weights = class_weights(embed_texts, NAMES, OWN, batch_size=batch_size)
    for row, texts in zip(weights, prompts(NAMES, OWN), strict=True):
        total = [0.0] * 7
        for text in texts:
            z = embed_texts([text])[0].tolist()
            length = math.sqrt(sum(x * x for x in z))
            total = [t + x / length / len(texts) for t, x in zip(total, z, strict=True)]
        length = math.sqrt(sum(x * x for x in total))
        assert row.tolist() == pytest.approx([x / length for x in total], abs=1e-6)


def test_probabilities_are_the_softmax_of_scaled_cosines() -> None:
    images, weights = (
        5 * torch.randn(6, 7, generator=torch.Generator().manual_seed(0)),
        class_weights(embed_texts, NAMES, OWN),
    )
    scores = zero_shot_scores(images, weights, logit_scale=20.0)
    for i in range(6):
        cosines = [float(images[i] @ w / images[i].norm() / w.norm()) for w in weights]
        e = [math.exp(20 * c) for c in cosines]
        assert scores[i].tolist() == pytest.approx([x / sum(e) for x in e], abs=1e-5)


def test_metrics_are_scikit_learns() -> None:
    generator = torch.Generator().manual_seed(1)
    weights = class_weights(embed_texts, [f"thing {n}" for n in range(8)])
    labels = torch.randint(8, (200,), generator=generator)
    images = weights[labels] + 0.5 * torch.randn(200, 7, generator=generator)
    found = zero_shot(images, labels, weights, logit_scale=10.0, count=50)
    scores = zero_shot_scores(images, weights, logit_scale=10.0)
    predicted = scores.argmax(1)
    assert found.metrics["accuracy"].value == pytest.approx(sk.accuracy_score(labels, predicted))
    assert found.metrics["balanced accuracy"].value == pytest.approx(sk.balanced_accuracy_score(labels, predicted))
    assert found.metrics["top-5 accuracy"].value == pytest.approx(sk.top_k_accuracy_score(labels, scores, k=5))
    assert (found.curves["confusion"] == sk.confusion_matrix(labels, predicted)).all()
    low, high = found.metrics["accuracy"].low, found.metrics["accuracy"].high
    assert low is not None and high is not None and low < found.metrics["accuracy"].value < high


def test_templates_from_a_file_a_list_and_a_text(tmp_path: Path) -> None:
    file = tmp_path / "templates.txt"
    file.write_text("# of letters\na letter {}\n\n  a glyph {} \na letter {}\n", encoding="utf-8")
    assert read_templates(file) == read_templates(str(file)) == ("a letter {}", "a glyph {}")
    assert read_templates(["x {}"]) == ("x {}",)
    assert len(read_templates()) == 5


def test_errors_say_what_was_seen(tmp_path: Path) -> None:
    (tmp_path / "wrong.txt").write_text("a letter\n")
    (tmp_path / "empty.txt").write_text("# nothing\n")
    (tmp_path / "picture.txt").write_bytes(b"\x89PNG\xff\xfe")
    for given, told in (
        (tmp_path / "wrong.txt", "wrong.txt 'a letter' {}"),
        (tmp_path / "empty.txt", "empty.txt template"),
        (tmp_path / "picture.txt", "template"),
        ([], "templates template"),
    ):
        with pytest.raises(ValueError, match=facts(told)) as error:
            read_templates(given)
        assert "\n" not in str(error.value)
    with pytest.raises(FileNotFoundError, match=facts("'a letter' template")):
        read_templates("a letter")
    with pytest.raises(ValueError, match=facts("names")):
        prompts(["cat", "_"])
    with pytest.raises(ValueError, match=facts("(7,) 1 text")):
        class_weights(lambda texts: torch.zeros(7), ["cat"], ["{}"])
    with pytest.raises(ValueError, match=facts("labels 0 3 2")):
        zero_shot(torch.randn(4, 5), torch.arange(4), torch.randn(3, 5), logit_scale=1.0)
    with pytest.raises(ValueError, match=facts("features")):
        zero_shot_scores(torch.randn(4, 5), torch.randn(3, 6), logit_scale=1.0)


def test_templates_are_taken_from_captions() -> None:
    said = ["a red sea lion", "a red lion", "two red lions", "a red sea lion", "{} lion", "nothing"]
    assert templates_from(said, ["lion", "sea_lion"]) == ("a red {}",)
    assert templates_from(["a letter K", "the letter B", "the letter K"], "BK") == ("the letter {}", "a letter {}")
    assert templates_from(["x"], []) == templates_from(["x"], [""]) == templates_from([], ["x"]) == ()
