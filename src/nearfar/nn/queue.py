"""A first-in first-out queue of keys, in buffers: MoCo's dictionary, NNCLR's support set."""

import torch
from torch import Tensor

from nearfar.losses.arguments import check_ids, check_rows, l2_normalize
from nearfar.nn.host_numbers import HostNumbers


class Queue(HostNumbers):
    """The last `size` keys that were pushed, with the ids of their samples. Empty at first, without random rows.

    All buffers are in the state dict, so that a resumed run continues with the same queue.

    >>> queue = Queue(3, 2)
    >>> queue.push(torch.eye(2), torch.tensor([7, 8]))
    >>> queue.push(torch.eye(2), torch.tensor([9, 10]))  # wraps around: the oldest row is replaced
    >>> sorted(queue.ids().tolist())
    [8, 9, 10]
    """

    host_numbers = ("pointer", "filled", "pushes")
    rows: Tensor  # (size, D) unit length where filled
    row_ids: Tensor  # (size,)
    stamps: Tensor  # (size,) the push each row came with
    pointer: Tensor  # () where the next row goes
    filled: Tensor  # () how many rows are keys
    pushes: Tensor  # () how often `push` was called

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        for name, value in (("size", size), ("dim", dim)):
            if value < 1:
                raise ValueError(f"{name} is {value}, expected at least 1")
        self.size = size
        self.register_buffer("rows", torch.zeros(size, dim))
        self.register_buffer("row_ids", torch.full((size,), -1))
        self.register_buffer("stamps", torch.zeros(size, dtype=torch.long))
        for name in ("pointer", "filled", "pushes"):
            self.register_buffer(name, torch.zeros((), dtype=torch.long))

    def __len__(self) -> int:
        return int(self.number("filled"))

    def keys(self) -> Tensor:
        """(K, D), the K rows filled so far, of unit length, in no particular order.

        A view of the buffer: run the backward pass of a graph that uses it before `push` changes it.
        """
        return self.rows[: len(self)]

    def ids(self) -> Tensor:
        """(K,), the ids of `keys()`."""
        return self.row_ids[: len(self)]

    @torch.no_grad()
    def push(self, keys: Tensor, ids: Tensor) -> None:
        """Add keys, oldest first; they replace the oldest rows. Any batch size is allowed.

        Args:
            keys: (B, D); normalized here. Rows that are not finite are dropped; on an accelerator, where how many they
                are is not known without waiting, each leaves the oldest row where it is.
            ids: (B,) integers.
        """
        check_rows("keys", keys)
        check_ids("ids", ids, len(keys), keys)
        rows = l2_normalize(keys)
        finite = rows.isfinite().all(1)
        if rows.device.type == "cpu":
            rows, ids, finite = rows[finite], ids[finite], finite[finite]
        rows, ids, finite = (x[-self.size :] for x in (rows, ids, finite))  # if there are too many, the last remain
        start = int(self.number("pointer"))
        place = torch.arange(start, start + len(rows), device=rows.device) % self.size
        self.rows[place] = torch.where(finite[:, None], rows.to(self.rows), self.rows[place])
        self.row_ids[place] = torch.where(finite, ids.to(self.row_ids), self.row_ids[place])
        self.stamps[place] = torch.where(finite, self.pushes, self.stamps[place])
        self.set_number("pointer", (start + len(rows)) % self.size)
        self.set_number("filled", min(len(self) + len(rows), self.size))
        self.set_number("pushes", self.number("pushes") + 1)

    def fill(self) -> Tensor:
        """A scalar: the filled fraction, from 0 to 1."""
        return self.filled / self.size

    def age(self) -> Tensor:
        """A scalar: how many pushes ago the filled rows came in, on average."""
        if len(self) == 0:
            return torch.zeros((), device=self.rows.device)
        return (self.pushes - self.stamps[: len(self)]).float().mean()

    def extra_repr(self) -> str:
        return f"size={self.size}, dim={self.rows.shape[1]}, filled={len(self)}"
