"""The encoder in the formats that other programs read.

Adding one: a function in `graphs.py` or `layouts.py`, and its line in `FORMATS`. This file imports no torch:
the help of `nearfar export` lists the formats.

`model` is below `training`, which uses it to write a run's encoder; loading one imports no Lightning. Reading is
safetensors and JSON alone: the card's fields are checked before a network is made from them, the weights before they
are copied into it. Models of others (`model/foreign/`) come from JSON, safetensors, or torch files read with
`weights_only`; code that a folder brings along is not run, and weights that are missing are an error, where the
library would draw them at random. They are encoders as any other, which also read texts. A graph or a plain state
dict is kept only if it gives the encoder's output at batch sizes it was not made with. A text encoder is a graph of
tokens, of any number and length up to its own, with its tokenizer beside it; image and text are two graphs. timm and
torchvision have no network of texts, which is said. A text encoder in the format huggingface is also a list of
modules of sentence-transformers: what follows the pooling is an affine map with or without tanh, or length 1, and a
bag of tokens is the mean of weighted vectors. Its tokens and features are compared with those of AutoTokenizer and
AutoModel. What only nearfar can open has a name that timm does not know.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple


class Format(NamedTuple):
    """How a format is written, and the name of its file or folder in RUN/export.

    The writer is a function of (Encoder, Card, folder), of (Exportable, file) for a graph, or of (Encoder, file) for
    plain weights of another library. The first may return a line for the user, the others return how far the output is
    from the encoder's.
    """

    kind: Literal["folder", "graph", "weights"]
    writer: str  # MODULE:FUNCTION of this package
    path: str
    help: str
    opened_by: str = ""  # how a file is opened, if not by `nearfar.load(FILE)`

    def write(self, *arguments: Any) -> float | str | None:
        module, function = self.writer.split(":")
        writer: Callable[..., float | str | None] = getattr(import_module(f"{__name__}.{module}"), function)
        return writer(*arguments)


FORMATS = {
    "nearfar": Format("folder", "layouts:to_nearfar", "nearfar", "safetensors and card (default)"),
    "huggingface": Format(
        "folder",
        "layouts:to_huggingface",
        "huggingface",
        "a folder as on the hub, for sentence-transformers, AutoModel or timm",
    ),
    "onnx": Format("graph", "graphs:to_onnx", "model.onnx", "a graph for ONNX Runtime"),
    "torch-export": Format(
        "graph", "graphs:to_torch_export", "model.pt2", "a graph of torch.export", "torch.export.load(FILE).module()"
    ),
    "torchscript": Format(
        "graph", "graphs:to_torchscript", "model.torchscript", "a graph of torch.jit", "torch.jit.load(FILE)"
    ),
    "timm": Format(
        "weights",
        "layouts:to_timm",
        "timm.safetensors",
        "a plain state_dict of timm's model",
    ),
    "torchvision": Format(
        "weights", "layouts:to_torchvision", "torchvision.safetensors", "a plain state_dict of torchvision's model"
    ),
}


def how_to_open(file: Path) -> str | None:
    """How to open an exported file that `nearfar.load` does not take, by its ending; None if it is none.

    >>> how_to_open(Path("x.pt2"))
    "open it with torch.export.load('x.pt2').module()"
    """
    known = (each for each in FORMATS.values() if each.opened_by and Path(each.path).suffix == file.suffix.lower())
    if (found := next(known, None)) is None:
        return None
    return f"open it with {found.opened_by.replace('FILE', repr(str(file)))}"


def other_formats(*kinds: str) -> str:
    """The formats of these kinds, for a message: "onnx, torch-export or torchscript"."""
    *names, last = (name for name, each in FORMATS.items() if each.kind in kinds)
    return f"{', '.join(names)} or {last}"
