"""One door to every format."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nearfar.model.card import with_metrics
from nearfar.model.encoder import Encoder
from nearfar.model.export.graphs import to_onnx, to_torch_export, to_torchscript
from nearfar.model.export.layouts import to_huggingface, to_timm, to_torchvision
from nearfar.model.export.parity import Exportable, exportables
from nearfar.model.load import load
from nearfar.model.save import CARD, write_model

GRAPHS: dict[str, tuple[str, Callable[[Exportable, Path], float]]] = {  # what a format that is a graph is called
    "onnx": ("model.onnx", to_onnx),
    "torch-export": ("model.pt2", to_torch_export),
    "torchscript": ("model.torchscript", to_torchscript),
}
PLAIN: dict[str, tuple[str, Callable[[Encoder, Path], float]]] = {  # and one that is another library's weights
    "timm": ("timm.safetensors", to_timm),
    "torchvision": ("torchvision.safetensors", to_torchvision),
}
FORMATS = ("nearfar", "huggingface", *GRAPHS, *PLAIN)


@dataclass(frozen=True)
class Exported:
    """Where it is, and how far its output is from the encoder's, as a part of the largest feature, where compared."""

    path: Path
    difference: float | None
    beside: tuple[Path, ...] = ()  # further files: the tokenizer, and of images and texts the graph of the texts
    note: str | None = None  # what the format cannot hold


def export(run: str | Path, format: str, out: str | Path | None = None, *, licence: str | None = None) -> Exported:  # noqa: A002
    """Write the encoder of a run in a format that others read.

    Args:
        run: a finished run, or an exported folder.
        format: "nearfar" (safetensors and card), "huggingface" (a folder as on the hub), "onnx", "torch-export",
            "torchscript", "timm" or "torchvision" (a plain state_dict as safetensors). An encoder of images and texts
            is two graphs, the second one called NAME-texts; a graph of texts has NAME-tokenizer.json beside it.
        out: a folder for the first two, a file for the others; None: RUN/export, and in it the format's own name.
        licence: of the weights, for the card, such as "Apache-2.0".
    """
    if format not in FORMATS:
        raise ValueError(f"the format is {format!r}, expected one of {', '.join(FORMATS)}")
    folder = Path(run)
    encoder = load(folder)
    if format != "nearfar" and not exportables(encoder):
        what = encoder.modality.noun
        raise ValueError(f"an encoder of {what} is exported in the format nearfar alone, which nearfar.load opens")
    card = with_metrics(encoder.card, folder / "evaluation.json")
    if licence is not None:
        card = {**card, "licence": licence}
    if format in GRAPHS or format in PLAIN:
        name = (GRAPHS.get(format) or PLAIN[format])[0]
        path = Path(out) if out is not None else folder / "export" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if format in GRAPHS:
            return _graphs(encoder, format, path)
        return Exported(path, PLAIN[format][1](encoder, path), note=_lost(encoder, format))
    path = Path(out) if out is not None else folder / "export" / format
    if (path / CARD).resolve() == (folder / CARD).resolve():
        raise ValueError(f"the output {path} is the run itself, expected another folder")
    if format == "huggingface":
        to_huggingface(encoder, card, path)
    else:
        write_model(encoder.backbone.state_dict(), card, path, encoder.transform)
    encoder.modality.save(path)
    load(path)  # what was written can be read
    return Exported(path, None)


def _lost(encoder: Encoder, format: str) -> str | None:  # noqa: A002
    """What plain weights of another library cannot hold."""
    if encoder.transform is None:
        return None
    return (
        f"{format} weights give the network's own features, as encode(..., raw=True): the {encoder.transform.kind} "
        "embeddings need the format nearfar, onnx, torch-export or torchscript"
    )


def _graphs(encoder: Encoder, format: str, path: Path) -> Exported:  # noqa: A002
    """One file for each input."""
    write = GRAPHS[format][1]
    paths = [path, path.with_name(f"{path.stem}-texts{path.suffix}")]
    written = [(file, write(part, file)) for part, file in zip(exportables(encoder), paths, strict=False)]
    files = [file for file, _ in written[1:]]
    if (tokenizer := encoder.modality.tokenizer_file(path.parent, f"{path.stem}-tokenizer.json")) is not None:
        files.append(tokenizer)
    return Exported(path, max(difference for _, difference in written), tuple(files))
