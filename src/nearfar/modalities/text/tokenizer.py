"""Texts as token ids: a byte-level BPE learned from one's own texts, or any tokenizer.json of Hugging Face."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearfar.data.cache import replacing
from nearfar.modalities.text.encoders import exchanged
from nearfar.safe_read import read_text
from nearfar.weights.huggingface import local_place

FILE = "tokenizer.json"
PADDING, START, END, MASK = range(4)  # ids in a vocabulary of our own; padding is 0 in every one
BYTES = 256
DEFAULT_LENGTH = 64
# What the special tokens are called, here, by BERT and by RoBERTa. No piece of text can be spelled as ours are: the
# letters that stand for bytes do not have the brackets.
_PADDING = ("⟨pad⟩", "[PAD]", "<pad>")
_START = ("⟨start⟩", "[CLS]", "<s>")
_END = ("⟨end⟩", "[SEP]", "</s>")
_MASK = ("⟨mask⟩", "[MASK]", "<mask>")
_UNKNOWN = ("[UNK]", "<unk>")
_MOST_GROWTH = 100  # of the replacements of published tokenizers together
_CHUNK = 10_000  # texts between Python and the tokenizer at a time


class Tokenizer:
    """Texts to (N, L) ids and back; made by `train` or `load`.

    Attributes:
        max_length: tokens of a text at most, start and end among them.
        vocab_size: ids are below this.
        start, end, mask: ids, None where there is no such token; padding is always 0.
        special: the ids that stand for no text.
        truncated: texts that `encode` has cut at `max_length` so far.
    """

    def __init__(self, backend: Any, *, max_length: int) -> None:
        """
        Args:
            backend: a `tokenizers.Tokenizer` with a padding token.
            max_length: at least 3, so that start and end leave room for text.
        """
        if max_length < 3:
            raise ValueError(f"max_length is {max_length}, expected at least 3: start, a token of text, end")
        self._backend = backend
        backend.encode_special_tokens = True  # "[SEP]" in a text is text
        backend.enable_truncation(max_length)
        padding = _found(backend, _PADDING, backend.padding)
        if padding is None:
            raise ValueError(f"the tokenizer has no padding token, expected one of {', '.join(_PADDING)}")
        self._padding = padding
        backend.enable_padding(pad_id=padding, pad_token=backend.id_to_token(padding))
        self.max_length, self.truncated = max_length, 0
        self.vocab_size = max(backend.get_vocab(with_added_tokens=True).values()) + 1
        self.start, self.end, self.mask = (self._ours(_found(backend, n)) for n in (_START, _END, _MASK))
        added = backend.get_added_tokens_decoder()
        named = {i for i in (PADDING, self.start, self.end, self.mask) if i is not None}  # special in any case
        self.special = tuple(sorted({int(self._ours(i) or 0) for i, t in added.items() if t.special} | named))

    @classmethod
    def train(cls, texts: Iterable[str], *, vocab_size: int = 8192, max_length: int = DEFAULT_LENGTH) -> "Tokenizer":
        """Learn the pieces that occur most. The same texts give the same tokenizer; any text can be encoded by it.

        Args:
            texts: to learn from, read once.
            vocab_size: ids at most: 4 special tokens, the 256 bytes, and pieces of text that occur twice or more.
            max_length: tokens of a text at most.

        Reference: Sennrich et al. 2016, https://arxiv.org/abs/1508.07909; over bytes Radford et al. 2019.
        """
        special = [_PADDING[0], _START[0], _END[0], _MASK[0]]
        if vocab_size < BYTES + len(special):
            raise ValueError(
                f"vocab_size is {vocab_size}, expected at least {BYTES + len(special)}: every byte has one"
            )
        package = _package()
        bytes_ = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend = package.Tokenizer(package.models.BPE())
        backend.pre_tokenizer, backend.decoder = bytes_, package.decoders.ByteLevel()
        trainer = package.trainers.BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=2,
            special_tokens=special,
            initial_alphabet=bytes_.alphabet(),
            show_progress=False,
        )
        backend.train_from_iterator(_checked(texts), trainer)
        backend.post_processor = package.processors.TemplateProcessing(
            single=f"{_START[0]} $A {_END[0]}", special_tokens=[(_START[0], START), (_END[0], END)]
        )
        return cls(backend, max_length=max_length)

    @classmethod
    def load(cls, source: str | Path, *, max_length: int | None = None) -> "Tokenizer":
        """What `save` wrote, or a tokenizer of Hugging Face. JSON is read and nothing else.

        Args:
            source: a file tokenizer.json, a folder with one, or a name of the Hugging Face hub.
            max_length: tokens of a text at most; None: what the file says, else 64.
        """
        package, file = _package(), _file(source)
        try:
            backend = package.Tokenizer.from_str(read_text(file))
        except Exception as error:  # the package raises that class itself
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ValueError(f"{file} is not a tokenizer ({reason}); expected the tokenizer.json of one") from error
        if (growth := _growth(backend)) > _MOST_GROWTH:
            raise ValueError(
                f"{file} makes texts {growth:,.0f} times as long before it cuts them; expected a tokenizer"
            )
        stored = (backend.truncation or {}).get("max_length", DEFAULT_LENGTH)
        return cls(backend, max_length=stored if max_length is None else max_length)

    def save(self, folder: str | Path, name: str = FILE) -> Path:
        """Write `tokenizer.json`, or by another name, into the folder; returns the file."""
        file = Path(folder) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as fresh:
            fresh.write_text(self._backend.to_str(pretty=True), encoding="utf-8")
        return file

    def settings(self) -> dict[str, Any]:
        """What a tokenizer_config.json says, for AutoTokenizer of transformers; special tokens in texts are text."""
        names = {"pad_token": [self._backend.id_to_token(self._padding)], "cls_token": _START, "sep_token": _END}
        names |= {"mask_token": _MASK, "unk_token": _UNKNOWN}
        ids = {kind: _found(self._backend, known) for kind, known in names.items()}
        known = {kind: self._backend.id_to_token(token) for kind, token in ids.items() if token is not None}
        of_class = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        return {**of_class, "model_max_length": self.max_length, "split_special_tokens": True, **known}

    def save_without_special(self, file: Path) -> None:
        """Write the tokenizer as it cuts texts for programs that add no start and end."""
        stored = json.loads(self._backend.to_str())
        added = len(self._backend.encode("", add_special_tokens=True).ids)
        stored["truncation"]["max_length"] = self.max_length - min(added, self.max_length - 1)
        stored["padding"] = None
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as fresh:
            fresh.write_text(json.dumps(stored, ensure_ascii=False), encoding="utf-8")

    def to_ours(self, tokens: Tensor) -> Tensor:
        """Ids of the file as ids of `encode`, in which padding is 0."""
        return exchanged(tokens, self._padding)

    def encode(self, texts: Sequence[str]) -> Tensor:
        """(N, L) int64: start, the text, end, then zeros; L is that of the longest, at most `max_length`."""
        if isinstance(texts, str):
            raise TypeError("texts is a str, expected a sequence of them; write encode([text])")
        rows: list[list[int]] = []
        for first in range(0, len(texts), _CHUNK):
            with _panics_told():
                found = self._backend.encode_batch_fast(list(_checked(texts[first : first + _CHUNK], first)))
            for encoding in found:
                real = sum(encoding.attention_mask)  # what padding left
                rows.append(encoding.ids[:real])
                self.truncated += bool(encoding.overflowing)
        tokens = np.full((len(rows), max(map(len, rows), default=1)), self._padding, dtype=np.int64)
        for row, ids in zip(tokens, rows, strict=True):
            row[: len(ids)] = ids
        return exchanged(torch.from_numpy(tokens), self._padding)

    def decode(self, tokens: Tensor) -> list[str]:
        """The texts of (N, L) ids, without special tokens."""
        if tokens.ndim != 2:
            raise ValueError(
                f"tokens has shape {tuple(tokens.shape)}, expected (N, L); add the batch with tokens[None]"
            )
        texts: list[str] = self._backend.decode_batch(
            exchanged(tokens, self._padding).tolist(), skip_special_tokens=True
        )
        return texts

    def _ours(self, token: int | None) -> int | None:
        return {self._padding: PADDING, PADDING: self._padding}.get(token, token) if token is not None else None

    def __repr__(self) -> str:
        return f"Tokenizer(vocab_size={self.vocab_size}, max_length={self.max_length})"


@contextmanager
def _panics_told() -> Iterator[None]:
    """The package panics where a pattern of the file tries too many matches, which no `except Exception` sees."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(
            f"the tokenizer cannot cut these texts ({error}); is its tokenizer.json as published?"
        ) from None


def _growth(backend: Any) -> float:
    """How many times as long a text may be after the replacements that a file states, one after the other."""
    if backend.normalizer is None:
        return 1.0
    stated, growth = [json.loads(backend.normalizer.__getstate__())], 1.0
    while stated:
        step = stated.pop()
        stated += step.get("normalizers") or []
        if step.get("type") == "Replace":
            pattern = step["pattern"].get("String")
            growth *= max(len(step["content"]) / max(len(pattern or ""), 1), 1.0)
    return growth


def _found(backend: Any, names: Sequence[str], stated: dict[str, Any] | None = None) -> int | None:
    """The id of a special token: the one the file states, else the first of the names that it knows."""
    for name in ([stated["pad_token"]] if stated else []) + list(names):
        token: int | None = backend.token_to_id(name)
        if token is not None:
            return token
    return None


def _checked(texts: Iterable[str], first: int = 0) -> Iterator[str]:
    """The texts, as UTF-8 can write them: half a surrogate pair becomes a question mark."""
    for number, text in enumerate(texts, first):
        if not isinstance(text, str):
            raise TypeError(f"text {number} is {text!r} ({type(text).__name__}), expected a str")
        yield text.encode("utf-8", "replace").decode("utf-8")


def _file(source: str | Path) -> Path:
    here = local_place(str(source))
    if here.is_dir():
        if not (here / FILE).is_file():
            raise FileNotFoundError(
                f"there is no {FILE} in {here}; where a tokenizer has older files alone, transformers' "
                "AutoTokenizer.from_pretrained(...).save_pretrained(...) writes one"
            )
        return here / FILE
    if here.is_file():
        return here
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(hf_hub_download(str(source), FILE))
    except (OSError, HFValidationError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise FileNotFoundError(
            f"{str(source)!r} is not a file or folder here, and could not be fetched from the Hugging Face hub "
            f"({reason})"
        ) from error


def _package() -> Any:
    try:
        import tokenizers
        from tokenizers import decoders, models, pre_tokenizers, processors, trainers  # noqa: F401, as its attributes
    except ImportError as error:
        raise ImportError(
            f"texts need the package tokenizers ({error}); install it with: pip install 'nearfar[text]'"
        ) from None
    return tokenizers
