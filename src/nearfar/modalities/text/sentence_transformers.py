"""A text encoder as the folder that sentence-transformers, AutoModel and AutoTokenizer open.

The folder is a list of modules (`modules.json`), each with its settings in a folder of its own. What comes after the
pooling or the sum of token vectors (a head, length 1, centred or whitened embeddings) is a Dense or a Normalize module.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.data.cache import replacing
from nearfar.modalities.text.encoders import PretrainedText, exchanged
from nearfar.modalities.text.tokenizer import FILE, Tokenizer
from nearfar.nn.token_bag import TokenBag
from nearfar.nn.whitening import EmbeddingTransform
from nearfar.weights.huggingface import KEPT, import_transformers, quiet

STATIC = "static-embedding"  # folder of a sum of token vectors
MODULES = "modules.json"
TOLERANCE = 1e-3  # of the largest feature
_POOLINGS = {"cls": "cls_token", "mean": "mean_tokens", "last": "lasttoken"}
_TYPES = "sentence_transformers.models."  # names that old and new versions know
_EXAMPLES = ("a red car", "[SEP] is text", "Ünï 日本語 🙂", "", "one two three four five six seven eight nine ten " * 9)


def write_modules(network: nn.Module, tokenizer: Tokenizer, transform: nn.Module | None, folder: Path) -> str | None:
    """Write the encoder's modules below a folder, and a list of them into it; a line about what opens it, if not all.

    A model of `transformers` is in `transformers/`, a sum of token vectors in `static-embedding/`: each is a whole
    folder by itself, too. Other networks are opened by this package alone.
    """
    if isinstance(network, PretrainedText) and not network.is_part:
        place, rows = folder / KEPT, _transformer(network, tokenizer, folder / KEPT)
        after: list[nn.Module] = [network.head] if network.head is not None else []
        after += [_Normalize()] if network.normalize else []
    elif isinstance(network, TokenBag):
        place, rows = folder / STATIC, _static(network, tokenizer, folder / STATIC)
        after = [_Normalize(), *([network.head] if network.head is not None else [])]
    else:
        (folder / MODULES).unlink(missing_ok=True)
        what = f"a {type(network).__name__} of nearfar"
        if isinstance(network, PretrainedText):
            what = f"the text part of a {network.model.config.model_type}"  # type: ignore[union-attr]
        return (
            f"sentence-transformers and AutoModel cannot open it, since it is {what}: use nearfar.load or export onnx"
        )
    for module in [*after, *([transform] if transform is not None else [])]:
        rows.append(_after(module, place, len(rows)))
    _write(place / MODULES, rows)
    _write(place / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})
    # From the folder above, so that a repository of the hub that holds it is opened by its name.
    _write(folder / MODULES, [{**row, "path": f"{place.name}/{row['path']}".rstrip("/")} for row in rows])
    if isinstance(network, PretrainedText):
        _write(folder / "tokenizer_config.json", tokenizer.settings())  # beside the tokenizer that every export has
        _check(network, tokenizer, place)
    return None


class _Normalize(nn.Module):
    """Stands for the module of that name."""


def _row(number: int, kind: str, path: str) -> dict[str, Any]:
    return {"idx": number, "name": str(number), "path": path, "type": _TYPES + kind}


def _transformer(network: PretrainedText, tokenizer: Tokenizer, place: Path) -> list[dict[str, Any]]:
    network.save_pretrained(place)
    tokenizer.save(place)
    _write(place / "tokenizer_config.json", tokenizer.settings())
    _write(place / "sentence_bert_config.json", {"max_seq_length": tokenizer.max_length, "do_lower_case": False})
    modes = {f"pooling_mode_{mode}": mode == _POOLINGS[network.pooling] for mode in _POOLINGS.values()}
    pooling = {"word_embedding_dimension": network.num_features, **modes, "include_prompt": True}
    _write(place / "1_Pooling" / "config.json", pooling)
    return [_row(0, "Transformer", ""), _row(1, "Pooling", "1_Pooling")]


def _static(network: TokenBag, tokenizer: Tokenizer, place: Path) -> list[dict[str, Any]]:
    """The mean of weighted vectors, which has the direction of their sum."""
    vectors = network.token_embedding.weight * network.token_weight[:, None]  # (vocabulary, F)
    ids = torch.arange(tokenizer.vocab_size, device=vectors.device)
    _save(place / "0_StaticEmbedding" / "model.safetensors", {"embedding.weight": vectors[tokenizer.to_ours(ids)]})
    tokenizer.save_without_special(place / "0_StaticEmbedding" / FILE)
    return [_row(0, "StaticEmbedding", "0_StaticEmbedding")]


def _after(module: nn.Module, place: Path, number: int) -> dict[str, Any]:
    """A module after the pooling: length 1, a linear layer with tanh, or an affine map."""
    if isinstance(module, _Normalize):
        (place / f"{number}_Normalize").mkdir(parents=True, exist_ok=True)
        _write(place / f"{number}_Normalize" / "config.json", {})
        return _row(number, "Normalize", f"{number}_Normalize")
    if isinstance(module, EmbeddingTransform):
        weight, bias, activation = *_affine(module), "linear.Identity"
    else:
        assert isinstance(module, nn.Sequential) and isinstance(module[0], nn.Linear)
        weight, bias, activation = module[0].weight, module[0].bias, "activation.Tanh"
    folder = place / f"{number}_Dense"
    rows, columns = weight.shape
    settings = {"in_features": columns, "out_features": rows, "bias": True}
    _write(folder / "config.json", {**settings, "activation_function": f"torch.nn.modules.{activation}"})
    _save(folder / "model.safetensors", {"linear.weight": weight, "linear.bias": bias})
    return _row(number, "Dense", f"{number}_Dense")


def _affine(transform: EmbeddingTransform) -> tuple[Tensor, Tensor]:
    """(h - mean) · weight as h · Aᵀ + b: A (F, F) and b (F,)."""
    mean, weight = transform.mean.double(), transform.weight
    if weight is None:
        matrix = torch.eye(len(mean), dtype=torch.float64, device=mean.device)
    else:
        matrix = weight.double().diag() if weight.ndim == 1 else weight.double()
    return matrix.T.float(), -(mean @ matrix).float()


@torch.no_grad()
def _check(network: PretrainedText, tokenizer: Tokenizer, place: Path) -> None:
    """What AutoTokenizer and AutoModel make of a few texts is what the encoder reads and makes of them."""
    transformers = import_transformers(str(place))
    training = network.training
    network.eval()
    with quiet(transformers):
        theirs = transformers.AutoTokenizer.from_pretrained(place)
        model = transformers.AutoModel.from_pretrained(place).eval()
    given = theirs(list(_EXAMPLES), padding=True, truncation=True, max_length=tokenizer.max_length, return_tensors="pt")
    own = tokenizer.encode(_EXAMPLES)
    ids = given["input_ids"].masked_fill(given["attention_mask"] == 0, network.padding)
    if not torch.equal(exchanged(ids, network.padding), own):
        raise ValueError(f"AutoTokenizer reads other tokens from {place} than the encoder does; the export was stopped")
    names = ("input_ids", "attention_mask")
    states: Tensor = model(**{name: given[name] for name in names}).last_hidden_state
    real = (own != 0)[:, :, None]
    wanted = network.states(own.to(next(network.parameters()).device)).cpu() * real
    network.train(training)
    difference = float((states * real - wanted).abs().max() / wanted.abs().max().clamp_min(1e-12))
    if not difference <= TOLERANCE:
        raise ValueError(
            f"AutoModel gives other features from {place} than the encoder, by {difference:.1e} of the largest"
        )


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as fresh:
        fresh.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")


def _save(path: Path, tensors: dict[str, Tensor]) -> None:
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as fresh:
        save_file({name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()}, fresh)
