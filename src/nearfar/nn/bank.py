"""A memory bank of every training sample, in buffers, as in InstDisc."""

import torch
from torch import Tensor

from nearfar.losses.arguments import check_at_least, check_ids, check_rows, l2_normalize
from nearfar.nn.host_numbers import HostNumbers
from nearfar.nn.seeding import step_generator


class Bank(HostNumbers):
    """One row of unit length for each of n samples, at first random, and a source of noise rows.

    What is random comes from a generator of (seed, step), both in buffers: a resumed run draws the same noise.

    >>> bank = Bank(10, 4, seed=1)
    >>> bool(torch.equal(bank.noise(3), bank.noise(3)))  # until `advance`
    True
    """

    host_numbers = ("seed", "step")
    rows: Tensor  # (n, D)
    row_ids: Tensor  # (n,) the samples' ids, -1 until they are known
    seed: Tensor  # ()
    step: Tensor  # ()

    def __init__(self, n: int, dim: int, *, seed: int = 0) -> None:
        super().__init__()
        for name, value in (("n", n), ("dim", dim)):
            if value < 1:
                raise ValueError(f"{name} is {value}, expected at least 1")
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("rows", l2_normalize(torch.randn(n, dim, generator=generator)))
        self.register_buffer("row_ids", torch.full((n,), -1))
        self.register_buffer("seed", torch.tensor(seed))
        self.register_buffer("step", torch.tensor(0))

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, index: Tensor) -> Tensor:
        """(B, D), the memories of the samples (B,)."""
        check_ids("index", index, len(index), self.rows)
        if index.device.type == "cpu" and len(index) and (int(index.min()) < 0 or int(index.max()) >= len(self)):
            raise ValueError(f"index goes from {int(index.min())} to {int(index.max())}, the bank has {len(self)} rows")
        return self.rows[index]

    @torch.no_grad()
    def write(self, index: Tensor, v: Tensor, momentum: float, ids: Tensor | None = None) -> None:
        """`row = normalize(momentum · row + (1 - momentum) · normalize(v))` of the samples (B,); v: (B, D).

        Rows of v that are not finite change nothing. Of an index that comes twice, the last counts. The ids (B,)
        are kept beside the rows; without any, the index is.
        """
        check_rows("v", v)
        ids = index if ids is None else ids
        check_ids("ids", ids, len(v), self.rows)
        check_at_least("momentum", momentum, 0.0, below=1.0)
        new = l2_normalize(torch.lerp(l2_normalize(v).to(self.rows), self.read(index), momentum))
        finite = new.isfinite().all(1)
        # torch leaves open which of two equal indices is written last, so all of them write the same.
        number = torch.arange(len(index), device=index.device).masked_fill(~finite, -1)
        last = torch.full((len(self),), -1, device=index.device).scatter_reduce(0, index, number, "amax")
        source = last[index]  # (B,), -1 if none is finite
        some, source = source >= 0, source.clamp(min=0)
        self.rows[index] = torch.where(some[:, None], new[source], self.rows[index])
        self.row_ids[index] = torch.where(some, ids[source].to(self.row_ids), self.row_ids[index])

    def noise(self, *shape: int) -> Tensor:
        """Sample numbers of that shape, uniform with replacement, the same until `advance` is called."""
        generator = step_generator(int(self.number("seed")), int(self.number("step")) + 1)
        return torch.randint(len(self), shape, generator=generator).to(self.rows.device)

    def advance(self) -> None:
        """On to the noise of the next step."""
        self.set_number("step", self.number("step") + 1)

    def extra_repr(self) -> str:
        return f"n={len(self)}, dim={self.rows.shape[1]}"
