"""One door to every format."""

import re
from dataclasses import dataclass
from pathlib import Path

from nearfar.model.card import is_of_run, with_metrics
from nearfar.model.encoder import Encoder
from nearfar.model.export import FORMATS, Format, other_formats
from nearfar.model.export.parity import exportables
from nearfar.model.hub import check_repository, push_folder
from nearfar.model.load import load
from nearfar.model.save import CARD
from nearfar.notebook import Printed


@dataclass(frozen=True)
class Exported(Printed):
    """Where it is, and how far its output is from the encoder's, as a part of the largest feature, where compared."""

    path: Path
    difference: float | None
    beside: tuple[Path, ...] = ()  # further files: the tokenizer, and of images and texts the graph of the texts
    note: str | None = None  # what the format cannot hold
    address: str | None = None  # on the hub

    def shown(self) -> str:
        further = [] if self.note is None else [f"note: {self.note}"]
        further += [f"also written: {each}" for each in self.beside]
        if self.address is not None:
            further.append(f"uploaded: {self.address}")
        return "\n".join([f"exported: {self.path}", *further])


def export(
    run: str | Path,
    format: str = "nearfar",  # noqa: A002
    out: str | Path | None = None,
    *,
    licence: str | None = None,
    push: str | None = None,
    image_size: int | None = None,
) -> Exported:
    """Write the encoder of a run in a format that others read.

    Args:
        run: a finished run, or another name that `nearfar.load` takes.
        format: one of `FORMATS`, for instance "nearfar" (safetensors and card), "huggingface" (a folder as on the hub),
            "onnx" or "timm" (a plain state_dict as safetensors). An encoder of images and texts is two graphs, the
            second one called NAME-texts; a graph of texts has NAME-tokenizer.json beside it.
        out: a folder for nearfar and huggingface, a file for the others; None: the format's own name in RUN/export, or
            in exports/NAME/export for an encoder of another library.
        licence: of the weights, for the card, such as "Apache-2.0".
        push: user/name: upload the folder of the format huggingface to the hub, privately.
        image_size: pixels of the input, of an encoder of another library; a run has its own.
    """
    if not isinstance(run, str | Path):
        raise TypeError(
            f"export got an object {type(run).__name__}, expected a run folder or a name as for nearfar.load"
        )
    if push is not None:
        if format != "huggingface":
            raise ValueError(f"push needs the format huggingface, not {format!r}")
        check_repository(push)
    if format not in FORMATS:
        raise ValueError(f"the format is {format!r}, expected one of {', '.join(FORMATS)}")
    encoder = load(run, image_size=image_size)
    folder = Path(run) if is_of_run(encoder.card) or Path(run).is_dir() else Path("exports") / _file_name(str(run))
    if FORMATS[format].kind != "folder" and not exportables(encoder):
        what = encoder.modality.noun
        raise ValueError(f"an encoder of {what} is exported in the formats nearfar and huggingface, for nearfar.load")
    card = with_metrics(encoder.card, folder / "evaluation.json")
    if licence is not None:
        card = {**card, "licence": licence}
    chosen = FORMATS[format]
    path = Path(out) if out is not None else folder / "export" / chosen.path
    if chosen.kind != "folder":
        if not path.suffix:  # by which `nearfar.load` and others know what it is
            path = path.with_name(path.name + Path(chosen.path).suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        if chosen.kind == "graph":
            return _graphs(encoder, chosen, path)
        difference = chosen.write(encoder, path)
        assert isinstance(difference, float)
        return Exported(path, difference, note=_lost(encoder, format))
    if (path / CARD).resolve() == (folder / CARD).resolve():
        raise ValueError(f"the output {path} is the run itself, expected another folder")
    note = chosen.write(encoder, {**card, **({} if push is None else {"hub": push})}, path)
    encoder.modality.save(path)
    load(path)  # what was written can be read
    address = None if push is None else push_folder(path, push)
    return Exported(path, None, note=note if isinstance(note, str) else None, address=address)


def _file_name(spec: str) -> str:
    """A name as a folder's.

    >>> _file_name("timm:resnet18=my/weights.pt")
    'timm-resnet18-my-weights.pt'
    """
    return re.sub(r"[^\w.-]+", "-", spec).strip("-.")


def _lost(encoder: Encoder, format: str) -> str | None:  # noqa: A002
    """What plain weights of another library cannot hold."""
    if encoder.transform is None:
        return None
    return (
        f"{format} weights give the network's own features, as encode(..., raw=True): the {encoder.transform.kind} "
        f"embeddings need the format nearfar, {other_formats('graph')}"
    )


def _graphs(encoder: Encoder, chosen: Format, path: Path) -> Exported:
    """One file for each input."""
    paths = [path, path.with_name(f"{path.stem}-texts{path.suffix}")]
    written = [(file, chosen.write(part, file)) for part, file in zip(exportables(encoder), paths, strict=False)]
    files = [file for file, _ in written[1:]]
    if (tokenizer := encoder.modality.tokenizer_file(path.parent, f"{path.stem}-tokenizer.json")) is not None:
        files.append(tokenizer)
    return Exported(path, max(each for _, each in written if isinstance(each, float)), tuple(files))
