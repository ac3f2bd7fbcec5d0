"""The encoder as a graph that runs without this package: ONNX, torch.export, TorchScript.

Each takes prepared images (B, 3, S, S), any B, or tokens (B, L), any B and L, to features (B, F), and is compared with
the encoder before it is kept.
"""

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nearfar.data.cache import replacing
from nearfar.model.export.parity import Exportable, check_parity

METADATA = (
    "backbone",
    "image_size",
    "stored_size",
    "mean",
    "std",
    "grayscale",
    "standardize",
    "preprocessing",
    "embedding",
)
TRACED = 2  # samples in the batch that a graph is made with; 1 would be taken for a constant


def to_onnx(part: Exportable, path: Path) -> float:
    """An .onnx file with input "images" or "tokens" and output "features"; returns how far it is from the encoder.

    What the images must be prepared with, and how long a text may be, is in the file's metadata.
    """
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401, which torch needs for it
    except ImportError as error:
        raise ModuleNotFoundError(
            f"the format onnx needs {error.name}, which is not installed; pip install 'nearfar[export]'"
        ) from None
    with _quiet():
        program = torch.onnx.export(
            part.network,
            (part.example(TRACED, 0),),
            input_names=[part.input],
            output_names=["features"],
            dynamic_shapes=_free(part),
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        model = program.model_proto
        for key in METADATA:
            if key in part.card or part.input == "images":
                entry = model.metadata_props.add()
                entry.key, entry.value = key, json.dumps(part.card.get(key))
        for key, fact in part.facts.items():
            entry = model.metadata_props.add()
            entry.key, entry.value = key, json.dumps(fact)
        onnx.checker.check_model(model)
        content = model.SerializeToString()
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

        def run(x: Tensor) -> Tensor:
            return torch.from_numpy(session.run(None, {part.input: x.numpy()})[0])

        difference = check_parity(part, run, "the ONNX graph")
    _keep(content, path)
    return difference


def to_torch_export(part: Exportable, path: Path) -> float:
    """A .pt2 file for `torch.export.load`; returns how far it is from the encoder."""
    with _quiet():
        program = torch.export.export(part.network, (part.example(TRACED, 0),), dynamic_shapes=_free(part))
        difference = check_parity(part, program.module(), "the exported program")
        content = io.BytesIO()
        torch.export.save(program, content)
    _keep(content.getvalue(), path)
    return difference


def to_torchscript(part: Exportable, path: Path) -> float:
    """A TorchScript file for `torch.jit.load`, in C++ too; returns how far it is from the encoder."""
    with _quiet():
        try:
            traced = torch.jit.trace(part.network, part.example(TRACED, 0), check_trace=False)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:160]
            raise ValueError(
                f"{part.card['backbone']} cannot be traced to TorchScript ({reason}); use the format torch-export"
            ) from None
        difference = check_parity(part, traced, "the TorchScript graph")
        content = io.BytesIO()
        torch.jit.save(traced, content)
    _keep(content.getvalue(), path)
    return difference


def _free(part: Exportable) -> Any:
    """The sizes that are left open: the batch, and of tokens the length."""
    free = {0: torch.export.Dim("batch")}
    if part.longest is not None:
        free[1] = torch.export.Dim("length", min=2, max=part.longest)
    return (free,)


def _keep(content: bytes, path: Path) -> None:
    """Write at once what took long to make: a kill before leaves nothing behind."""
    with replacing(path) as fresh:
        fresh.write_bytes(content)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporters' own talk; errors come through."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)
