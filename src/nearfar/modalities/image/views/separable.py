"""Resample a whole batch along its two axes, each image by its own weights."""

import functools

import torch
from torch import Tensor


def resample(
    images: Tensor, index: Tensor, weight: Tensor, columns: Tensor, of: Tensor | None = None, *, out: Tensor
) -> Tensor:
    """Each row of the result is a weighted sum of a few rows of the image, each column of columns.

    The rows that count are picked out and added up, as an embedding bag does it; for the columns, whose values do not
    lie side by side, a matrix product is quicker.

    Args:
        images: (N, C, H, W).
        index: (B, P, taps), which rows count, in [0, H).
        weight: (B, P, taps), by how much.
        columns: (B, Q, W), the weights of all columns.
        of: (B,), which images are resampled; all, if not given.
        out: (B, C, P, Q), contiguous; may be the images.

    >>> image = torch.tensor([[[[1.0, 2], [3, 4]]]])
    >>> upside_down = torch.tensor([[[1], [0]]])
    >>> resample(image, upside_down, torch.ones(1, 2, 1), torch.eye(2)[None], out=torch.empty(1, 1, 2, 2))
    tensor([[[[3., 4.],
              [1., 2.]]]])
    """
    (n, c, h, w), (b, p, taps), q = images.shape, index.shape, columns.shape[1]
    begin = _first_rows(n, c, h, images.device)
    begin = begin if of is None else begin[of]
    places = (begin + index[:, None]).view(-1)  # (B · C · P · taps,) among all rows
    amounts = weight[:, None].expand(b, c, p, taps).reshape(-1)
    bags = _every(taps, b * c * p, images.device)
    # What F.embedding_bag calls: its checks take longer than a chunk's arithmetic on a few rows.
    rows = torch.embedding_bag(images.reshape(-1, w), places, bags, False, 0, False, amounts)[0]
    torch.bmm(rows.view(b, c * p, w), columns.transpose(1, 2), out=out.view(b, c * p, q))
    return out


@functools.lru_cache(maxsize=32)
def _first_rows(n: int, c: int, h: int, device: torch.device) -> Tensor:
    """(N, C, 1, 1): where each channel begins among all rows."""
    return torch.arange(0, n * c * h, h, device=device).view(n, c, 1, 1)


@functools.lru_cache(maxsize=64)
def _every(step: int, count: int, device: torch.device) -> Tensor:
    return torch.arange(0, step * count, step, device=device)
