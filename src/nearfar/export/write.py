"""One door to every format."""

from dataclasses import dataclass
from pathlib import Path

from nearfar.export.card import with_metrics
from nearfar.export.graphs import to_onnx, to_torch_export, to_torchscript
from nearfar.export.model import CARD, ReadingEncoder, load_images, write_model
from nearfar.export.shapes import to_huggingface, to_timm, to_torchvision

FILES = {  # what a format that is a single file is called
    "onnx": ("model.onnx", to_onnx),
    "torch-export": ("model.pt2", to_torch_export),
    "torchscript": ("model.torchscript", to_torchscript),
    "timm": ("timm.safetensors", to_timm),
    "torchvision": ("torchvision.safetensors", to_torchvision),
}
FORMATS = ("nearfar", "huggingface", *FILES)


@dataclass(frozen=True)
class Exported:
    """Where it is, and how far its output is from the encoder's, as a part of the largest feature, where compared."""

    path: Path
    difference: float | None


def export(run: str | Path, format: str, out: str | Path | None = None, *, licence: str | None = None) -> Exported:  # noqa: A002
    """Write the encoder of a run in a format that others read.

    Args:
        run: a finished run, or an exported folder.
        format: "nearfar" (safetensors and card), "huggingface" (a folder as on the hub), "onnx", "torch-export",
            "torchscript", "timm" or "torchvision" (a plain state_dict as safetensors).
        out: a folder for the first two, a file for the others; None: RUN/export, and in it the format's own name.
        licence: of the weights, for the card, such as "Apache-2.0".
    """
    if format not in FORMATS:
        raise ValueError(f"the format is {format!r}, expected one of {', '.join(FORMATS)}")
    folder = Path(run)
    encoder = load_images(folder)
    card = with_metrics(encoder.card, folder / "evaluation.json")
    if licence is not None:
        card = {**card, "licence": licence}
    if format in FILES:
        name, write = FILES[format]
        path = Path(out) if out is not None else folder / "export" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return Exported(path, write(encoder, path))
    path = Path(out) if out is not None else folder / "export" / format
    if (path / CARD).resolve() == (folder / CARD).resolve():
        raise ValueError(f"the output {path} is the run itself, expected another folder")
    if format == "huggingface":
        to_huggingface(encoder, card, path)
    else:
        write_model(encoder.backbone.state_dict(), card, path)
    if isinstance(encoder, ReadingEncoder):
        encoder.tokenizer.save(path)
    load_images(path)  # what was written can be read
    return Exported(path, None)
