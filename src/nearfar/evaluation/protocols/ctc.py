"""Connected words: the word error rate of a recurrent head on the encoder's frames, trained by CTC."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.evaluation.metrics import Estimate, proportion, resamples, with_interval
from nearfar.evaluation.paired import SampleValues
from nearfar.evaluation.protocols.protocol import Protocol
from nearfar.evaluation.task import Outcome, Part, Task, arrays
from nearfar.metric_text import MetricStyle
from nearfar.progress import progress_bar
from nearfar.settings import setting

OVER = -32_768  # behind the end of a sound
BLANK = 0
SPACE = " "
_CLIP = 5.0  # largest gradient norm
_AT_ONCE = 32  # sequences whose frames are computed at a time


@dataclass(frozen=True)
class CtcSettings:
    """Protocol ctc: sequences of the data's words, recognized by a head on the encoder's frames."""

    units: Literal["words", "characters"] = setting("words", "recognize whole words, or the letters of their names")
    train_sequences: int = setting(1000, "sequences to train on", least=1)
    test_sequences: int = setting(300, "sequences to test on", least=1)
    min_words: int = setting(2, "of a sequence", least=1)
    max_words: int = setting(5, "of a sequence")
    max_silence: float = setting(0.2, "seconds between two words, at most", least=0, below=60)
    hidden: int = setting(128, "features of the recurrent layer, in each direction", least=1)
    epochs: int = setting(15, "epochs; there is no early stopping", least=1)
    lr: float = setting(3e-3, "learning rate of AdamW", above=0, below=1)
    batch_size: int = setting(32, "sequences per step", least=1)

    def __post_init__(self) -> None:
        if self.max_words < self.min_words:
            raise ValueError(
                f"protocols.ctc.max_words is {self.max_words}, less than protocols.ctc.min_words, {self.min_words}"
            )


def ctc(task: Task, settings: CtcSettings, seed: int) -> Outcome:
    """Random sequences of the data's words, recognized by a head on the frames of the encoder.

    Training sequences are of the training part alone, test sequences of the test part; words of a sequence are of one
    group (a speaker) where the data have groups.
    """
    if task.embedder.frames is None:
        raise ValueError("it has no frames, which CTC reads; expected an encoder such as audio-tiny or cpc-16k")
    units = Units(task.class_names, settings.units)
    train = connected(task.train, settings.train_sequences, settings, seed=2 * seed)
    test = connected(task.test, settings.test_sequences, settings, seed=2 * seed + 1)
    recogniser = _fitted(task, train, units, settings, seed)
    spoken = [[units.names[word] for word in sequence.words] for sequence in test]
    heard = []
    for start in range(0, len(test), _AT_ONCE):
        h, present = _frames(task, test[start : start + _AT_ONCE])
        heard += [units.read(row) for row in best_path(recogniser(h, present), present)]
    wrong = torch.tensor([edit_distance(said, got) for said, got in zip(spoken, heard, strict=True)])
    count = torch.tensor([len(said) for said in spoken])
    metrics = {
        "word error rate": rate(wrong, count, count=task.bootstrap, seed=seed),
        "sequences right": proportion(wrong == 0),
    }
    if not units.whole:
        texts = [(SPACE.join(said), SPACE.join(got)) for said, got in zip(spoken, heard, strict=True)]
        letters = torch.tensor([edit_distance(said, got) for said, got in texts])
        lengths = torch.tensor([len(said) for said, _ in texts])
        metrics["character error rate"] = rate(letters, lengths, count=task.bootstrap, seed=seed)
    samples = {"word error rate": SampleValues(wrong, lambda errors, w: (w @ errors) / (w @ count.double()))}
    return Outcome(metrics, arrays(errors=wrong, words=count), samples=samples)


@dataclass(frozen=True)
class Connected:
    """A sequence of words."""

    wave: Tensor  # (T,) int16
    words: tuple[int, ...]  # their classes


def connected(part: Part, count: int, settings: CtcSettings, *, seed: int) -> list[Connected]:
    """Random sequences of words of a part, with silence around each word.

    Args:
        count: of sequences.
        settings: numbers of words, and silence.
        seed: of the draw.
    """
    rate, groups = part.data.sample_rate, part.data.groups
    if rate is None:
        raise ValueError(f"the {part.name} part has no sounds to join into sequences")
    generator = torch.Generator().manual_seed(seed)
    group = torch.zeros(len(part), dtype=torch.long) if groups is None else groups[part.rows]
    found = []
    for _ in range(count):
        first = int(torch.randint(len(part), (), generator=generator))
        speaker = (group == group[first]).nonzero()[:, 0]
        length = int(torch.randint(settings.min_words, settings.max_words + 1, (), generator=generator))
        places = speaker[torch.randint(len(speaker), (length,), generator=generator)]
        silence = (torch.rand(length + 1, generator=generator) * settings.max_silence * rate).long().tolist()
        pieces = [torch.zeros(silence[0], dtype=torch.int16)]
        for wave, pause in zip(part.fetch(places), silence[1:], strict=True):
            pieces += [wave[wave != OVER], torch.zeros(pause, dtype=torch.int16)]
        found.append(Connected(torch.cat(pieces), tuple(part.labels[places].tolist())))
    return found


class Units:
    """The classes of the head: words, or the characters of their names.

    >>> units = Units(["no", "yes"], "characters")
    >>> units.write([1, 0]), units.read(units.write([1, 0]))
    ([6, 2, 5, 1, 3, 4], ['yes', 'no'])
    """

    def __init__(self, names: Sequence[str], kind: str) -> None:
        self.names, self.whole = list(names), kind == "words"
        if not self.whole and any(SPACE in name or not name for name in names):
            raise ValueError("names of classes are empty or have spaces in them: set --protocols.ctc.units words")
        self.symbols = self.names if self.whole else sorted({SPACE, *"".join(names)})

    def write(self, words: Sequence[int]) -> list[int]:
        """Classes as numbers from 1 on; 0 is CTC's blank."""
        if self.whole:
            return [1 + word for word in words]
        return [1 + self.symbols.index(letter) for letter in SPACE.join(self.names[word] for word in words)]

    def read(self, numbers: Sequence[int]) -> list[str]:
        """Numbers as words."""
        symbols = [self.symbols[number - 1] for number in numbers]
        return symbols if self.whole else "".join(symbols).split()


class Recogniser(nn.Module):
    """A recurrent layer in both directions, and the scores of each unit."""

    def __init__(self, features: int, hidden: int, units: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.recurrent = nn.GRU(features, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, units + 1)

    def forward(self, h: Tensor, present: Tensor) -> Tensor:
        """(B, L, D) frames, of which (B, L) are there, to (B, L, units + 1) logarithms of probabilities."""
        lengths = present.sum(1).clamp(min=1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(self.norm(h), lengths, batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.recurrent(packed)[0], batch_first=True, total_length=h.shape[1])
        return F.log_softmax(self.head(y).float(), -1)


def _fitted(task: Task, train: Sequence[Connected], units: Units, settings: CtcSettings, seed: int) -> Recogniser:
    """A head trained on frames that are computed once: the encoder stays as it is."""
    batches = [_frames(task, train[start : start + _AT_ONCE]) for start in range(0, len(train), _AT_ONCE)]
    kept = [row[there].cpu() for h, present in batches for row, there in zip(h, present, strict=True)]  # each (L, D)
    written = [units.write(sequence.words) for sequence in train]
    device = batches[0][0].device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Recogniser(kept[0].shape[1], settings.hidden, len(units.symbols)).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)
    total = settings.epochs * math.ceil(len(kept) / settings.batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings.lr, total_steps=total, pct_start=0.1)
    generator = torch.Generator().manual_seed(seed)
    with torch.enable_grad(), progress_bar(task.progress("connected words"), settings.epochs) as step:
        for _ in range(settings.epochs):
            for some in torch.randperm(len(kept), generator=generator).split(settings.batch_size):
                rows = some.tolist()
                h = nn.utils.rnn.pad_sequence([kept[i] for i in rows], batch_first=True).to(device)
                lengths = torch.tensor([len(kept[i]) for i in rows])
                present = torch.arange(h.shape[1]) < lengths[:, None]
                targets = torch.tensor([number for i in rows for number in written[i]])
                wanted = torch.tensor([len(written[i]) for i in rows])
                scores = model(h, present.to(device)).transpose(0, 1)  # (L, B, units + 1)
                loss = F.ctc_loss(scores, targets.to(device), lengths, wanted, blank=BLANK, zero_infinity=True)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
                optimizer.step()
                schedule.step()
            step(1)
    return model.eval()


def _frames(task: Task, sequences: Sequence[Connected]) -> tuple[Tensor, Tensor]:
    """(B, L, D) and (B, L), of the encoder in evaluation mode."""
    waves = nn.utils.rnn.pad_sequence([s.wave for s in sequences], batch_first=True, padding_value=OVER)
    h, present = task.frames(waves)
    return torch.nan_to_num(h.float()), present


@torch.no_grad()
def best_path(scores: Tensor, present: Tensor) -> list[list[int]]:
    """The likeliest unit of each frame, repeats joined, blanks left out.

    Args:
        scores: (B, L, units + 1).
        present: (B, L), False behind the end.

    Reference: Graves et al. 2006, section 3.2, https://www.cs.toronto.edu/~graves/icml_2006.pdf

    >>> best_path(F.one_hot(torch.tensor([[1, 1, 0, 1, 2, 2]])), torch.tensor([[True] * 5 + [False]]))
    [[1, 1, 2]]
    """
    rows = zip(scores.argmax(-1), present.to(scores.device), strict=True)
    return [[unit for unit in row[there].unique_consecutive().tolist() if unit != BLANK] for row, there in rows]


def edit_distance(said: Sequence[Hashable], heard: Sequence[Hashable]) -> int:
    """The fewest insertions, deletions and substitutions of words that turn one into the other.

    >>> edit_distance(["one", "two", "three"], ["one", "three", "four"])
    2
    """
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1]


def rate(wrong: Tensor, words: Tensor, *, count: int, seed: int) -> Estimate:
    """The word error rate: all errors by all words, with the interval of a bootstrap of the sequences.

    Args:
        wrong, words: (N,) errors, and words that were said, of each sequence.
        count, seed: of the bootstrap.
    """
    draws = [
        (weights @ wrong.float()) / (weights @ words.float())
        for weights in resamples(torch.zeros(len(wrong)), count=count, seed=seed)
    ]
    value = float(wrong.sum() / words.sum())
    return with_interval(value, torch.cat(draws), len(wrong), most=math.inf)


PROTOCOL = Protocol(
    "ctc",
    ctc,
    "words in a row, by a CTC head on frames: word error rate",
    "word error rate",
    CtcSettings,
    needs="words",
    seeded=True,
    shows_progress=True,
    metrics=dict.fromkeys(("word error rate", "character error rate"), MetricStyle(less_is_better=True)),
)
