"""Connected words: the error rate against other implementations, the head on frames that tell all, and on none."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nearfar import _torchvision  # noqa: F401
from nearfar.evaluation.protocols import ProtocolConfig
from nearfar.evaluation.protocols.ctc import (
    BLANK,
    OVER,
    CtcSettings,
    Recogniser,
    Units,
    best_path,
    connected,
    edit_distance,
    rate,
)
from nearfar.evaluation.task import Part
from nearfar.modalities.sound.data import SoundDataset
from nearfar.modalities.sound.wave import OVER as OVER_OF_VIEWS
from tests.evaluation.bars import evaluate

from torchmetrics.functional.text import word_error_rate  # isort: skip
from tests.support.facts import tells

WORDS = ["up", "down", "left"]
QUICK = CtcSettings(
    train_sequences=120,
    test_sequences=60,
    min_words=1,
    max_words=3,
    hidden=16,
    epochs=6,
    lr=0.03,
    max_silence=0.1,
    batch_size=8,
)


def distance_by_recursion(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    if not a or not b:
        return len(a) + len(b)
    if a[0] == b[0]:
        return distance_by_recursion(a[1:], b[1:])
    return 1 + min(
        distance_by_recursion(a[1:], b), distance_by_recursion(a, b[1:]), distance_by_recursion(a[1:], b[1:])
    )


def test_edit_distance_is_that_of_the_recursion() -> None:
    texts = [t for n in range(5) for t in product(range(2), repeat=n)]
    for a, b in product(texts, texts):
        assert edit_distance(a, b) == distance_by_recursion(a, b)


def test_the_error_rate_is_that_of_torchmetrics() -> None:
    rng = np.random.default_rng(0)
    said = [[str(w) for w in rng.integers(0, 4, rng.integers(1, 6))] for _ in range(40)]
    heard = [[str(w) for w in rng.integers(0, 4, rng.integers(0, 7))] for _ in range(40)]
    wrong = torch.tensor([edit_distance(a, b) for a, b in zip(said, heard, strict=True)])
    count = torch.tensor([len(a) for a in said])
    found = rate(wrong, count, count=50, seed=0)
    expected = word_error_rate([" ".join(b) for b in heard], [" ".join(a) for a in said])
    assert found.value == pytest.approx(float(expected), abs=1e-6)
    assert found.low is not None and found.high is not None and found.low < found.value < found.high and found.n == 40


def test_best_path_joins_repeats_and_leaves_blanks_out() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(20, 9, 4, generator=generator)
    present = torch.arange(9) < torch.randint(1, 10, (20, 1), generator=generator)
    for row, path in enumerate(best_path(scores, present)):
        expected, last = [], BLANK
        for k in range(int(present[row].sum())):
            unit = int(scores[row, k].argmax())
            if unit not in (BLANK, last):
                expected.append(unit)
            last = unit
        assert path == expected


def test_the_head_does_not_see_what_is_behind_the_end() -> None:
    model = Recogniser(5, 4, 3)
    h = torch.randn(2, 7, 5)
    present = torch.arange(7) < torch.tensor([[7], [4]])
    other = h.clone()
    other[1, 4:] = 99.0
    torch.testing.assert_close(model(h, present)[1, :4], model(other, present)[1, :4])
    torch.testing.assert_close(model(h, present)[1, :4], model(h[1:, :4], present[1:, :4])[0])


def spoken(seed: int, count: int = 60) -> SoundDataset:
    """Words that begin with ten values of 100 (w + 1), then are alike; of two speakers."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    lengths = rng.integers(60, 90, count)
    values = np.concatenate(
        [np.r_[np.full(10, 100 * (w + 1)), np.full(n - 10, 50)] for n, w in zip(lengths, labels, strict=True)]
    ).astype(np.int16)
    starts = lengths.cumsum() - lengths
    groups = torch.arange(count) % 2
    return SoundDataset(
        values, starts, lengths, sample_rate=1000, labels=torch.from_numpy(labels), classes=WORDS, groups=groups
    )


class Frames(nn.Module):
    """A frame for each 10 values: which word it is of, where it knows; else noise."""

    def __init__(self, knows: bool) -> None:
        super().__init__()
        self.knows, self.generator = knows, torch.Generator().manual_seed(0)

    def frames(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x[:, : x.shape[1] // 10 * 10].unflatten(1, (-1, 10))[:, :, 0]
        h = torch.nn.functional.one_hot((x.clamp(min=0) / 100).long(), 4).float()
        return h if self.knows else torch.randn(h.shape, generator=self.generator), x != OVER

    def forward(self, x: Tensor) -> Tensor:
        h, present = self.frames(x)
        return (h * present[..., None]).mean(1)


def test_connected_words_are_of_one_speaker_and_drawn_by_the_seed() -> None:
    data = spoken(0)
    assert data.labels is not None and data.groups is not None
    part = Part(data, torch.arange(60), data.labels, "training")
    first, again, other = (connected(part, 20, QUICK, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(a.wave, b.wave) and a.words == b.words for a, b in zip(first, again, strict=True))
    assert [a.words for a in first] != [a.words for a in other]
    for sequence in first:
        values = sequence.wave.unique_consecutive()
        heard = tuple(int(v) // 100 - 1 for v in values[values >= 100])
        assert heard == sequence.words and 1 <= len(sequence.words) <= 3 and int(sequence.wave.min()) >= 0
    assert OVER == OVER_OF_VIEWS


@pytest.mark.parametrize("units", ["words", "characters"])
def test_frames_that_know_the_words_are_read_and_others_are_not(units: str) -> None:
    encoders = {"knows": Frames(True), "untrained": Frames(False)}
    ctc = CtcSettings(**{**QUICK.__dict__, "units": units, "epochs": 5 if units == "words" else 9})
    results = evaluate(
        encoders,
        spoken(0),
        spoken(1),
        prepare=lambda waves: waves,
        protocols=["ctc"],
        settings=ProtocolConfig(ctc=ctc, bootstrap=20),
    )
    # Where nothing sounds like it, the place of a space is anywhere, and it is learned last.
    metric = "word error rate" if units == "words" else "character error rate"
    good, bad = (results.value(name, "ctc", metric) for name in ("knows", "untrained"))
    assert good is not None and bad is not None
    assert good < 0.4 and bad > 0.6
    assert any(tells(note, "frames") for note in results.notes)  # raw values have none


def test_units_are_written_and_read() -> None:
    words, letters = Units(WORDS, "words"), Units(WORDS, "characters")
    assert words.write([2, 0]) == [3, 1] and words.read([3, 1]) == ["left", "up"]
    assert letters.read(letters.write([2, 0, 1])) == ["left", "up", "down"] and BLANK not in letters.write([0, 1, 2])
    with pytest.raises(ValueError, match="spaces"):
        Units(["turn left"], "characters")


@pytest.mark.parametrize("change", [{"max_words": 1, "min_words": 2}, {"train_sequences": 0}, {"lr": 0.0}])
def test_settings_refuse_nonsense(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"ctc\."):
        ProtocolConfig(ctc=CtcSettings(**change))  # type: ignore[arg-type]
