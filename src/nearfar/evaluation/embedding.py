"""The embeddings of a data set."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nearfar.data.dataset import Dataset
from nearfar.progress import progress_bar

Encoder = Callable[[Tensor], Tensor]  # (B, ...) prepared input to (B, F)
Prepare = Callable[[Tensor], Tensor]  # (B, 3, S, S) uint8 to the encoder's input


@torch.no_grad()
def embed(
    encoder: Encoder,
    dataset: Dataset,
    *,
    prepare: Prepare,
    batch_size: int = 256,
    device: torch.device | str | None = None,
    rows: Tensor | None = None,
    progress: bool | str = False,
) -> Tensor:
    """The embedding of each image of a data set. The encoder runs in evaluation mode; its mode is restored.

    Args:
        encoder: (B, ...) to (B, F); a module or any function.
        dataset: N images by number.
        prepare: the uint8 batch, already on the device, to the encoder's input.
        batch_size: images at a time; changes the result by rounding at most.
        device: where to compute; None: where the encoder's parameters are, else the CPU.
        rows: (K,) the numbers of the images that are wanted, all N where None.
        progress: show a bar, with these words if text.

    Returns:
        (K, F) float32 on the CPU.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, expected at least 1")
    rows = torch.arange(len(dataset)) if rows is None else rows.cpu()
    if len(rows) == 0:
        raise ValueError("the data set has 0 images, expected at least one")
    device = device_of(encoder) if device is None else torch.device(device)
    embeddings: Tensor | None = None
    with evaluation_mode(encoder), progress_bar(progress, len(rows)) as advance:
        for start in range(0, len(rows), batch_size):
            part = rows[start : start + batch_size]
            h = encoder(prepare(dataset.fetch(part).to(device)))
            if h.ndim != 2 or len(h) != len(part):
                raise ValueError(f"the encoder returns shape {tuple(h.shape)} for {len(part)} images, expected (B, F)")
            if embeddings is None:
                embeddings = torch.empty(len(rows), h.shape[1])
            embeddings[start : start + len(part)] = h.to("cpu", torch.float32)
            advance(len(part))
    assert embeddings is not None
    return embeddings


def device_of(encoder: Encoder) -> torch.device:
    parameters = encoder.parameters() if isinstance(encoder, nn.Module) else iter(())
    first = next(parameters, None)
    return torch.device("cpu") if first is None else first.device


@contextmanager
def evaluation_mode(encoder: Encoder) -> Iterator[None]:
    """Evaluation mode; afterwards each module has its own mode again."""
    modules = list(encoder.modules()) if isinstance(encoder, nn.Module) else []
    modes = [module.training for module in modules]
    try:
        for module in modules:
            module.training = False
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode


@contextmanager
def dropout_enabled(encoder: nn.Module, seed: int, device: torch.device) -> Iterator[None]:
    """Dropout as in training, the same for the same seed; modes and random state are restored after it."""
    modes = [(module, module.training) for module in encoder.modules()]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        try:
            for module, _ in modes:
                module.training = not isinstance(module, _BatchNorm)  # its statistics must not change
            yield
        finally:
            for module, mode in modes:
                module.training = mode
