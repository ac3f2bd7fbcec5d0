"""`DistributedLossWrapper` of pytorch-metric-learning: a labelled loss over the rows of all processes."""

from typing import Any

import torch
from torch import Tensor, nn

from nearfar.adapters.labeled import labeled_pairs
from nearfar.adapters.processes import refuse
from nearfar.nn.shard import Shard, is_distributed, shard_of


class DistributedLossWrapper(nn.Module):
    """`pytorch_metric_learning.utils.distributed.DistributedLossWrapper`, which takes its own library's losses only.

    The loss is that of the rows of all processes, this one's first, times the number of processes, and has a gradient
    in this process' rows; DDP's average then is the gradient of the loss of one process with all rows.

    Args:
        loss: of this module or of pytorch-metric-learning, or its `CrossBatchMemory`.
        efficient: each process compares its own rows with all.
    """

    def __init__(self, loss: nn.Module, efficient: bool = False) -> None:
        super().__init__()
        if efficient and hasattr(loss, "embedding_memory"):
            refuse("efficient", efficient, "False with CrossBatchMemory")
        self.loss, self.efficient = loss, efficient

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        indices_tuple: Any = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
        enqueue_mask: Tensor | None = None,
    ) -> Tensor:
        """As the loss itself; `enqueue_mask`: with `CrossBatchMemory`, the rows that it keeps."""
        has_memory = hasattr(self.loss, "embedding_memory")
        if has_memory and (ref_emb is not None or ref_labels is not None):
            refuse("ref_emb", "set", "None with CrossBatchMemory")
        processes = torch.distributed.get_world_size() if is_distributed() else 1
        if processes > 1:
            shard = shard_of(len(embeddings), embeddings.device)
            of_keys = None if ref_emb is None else shard_of(len(ref_emb), ref_emb.device)
            rows, row_labels = _own_first(embeddings, shard), _own_first(labels, shard)
            keys, key_labels = _own_first(ref_emb, of_keys), _own_first(ref_labels, of_keys)
            if self.efficient:
                keys, key_labels = (rows if keys is None else keys), (row_labels if keys is None else key_labels)
                if indices_tuple is None and labels is not None and key_labels is not None:
                    indices_tuple = tuple(labeled_pairs(labels, key_labels, itself=True)[:4])
            else:
                embeddings, labels = rows, row_labels
            ref_emb, ref_labels = keys, key_labels
            enqueue_mask = _own_first(enqueue_mask, shard)
        more = (enqueue_mask,) if has_memory else (ref_emb, ref_labels)
        loss: Tensor = self.loss(embeddings, labels, indices_tuple, *more)
        return loss * processes if processes > 1 else loss


def _own_first(x: Tensor | None, shard: Shard | None) -> Any:
    """This process' rows, and then those of the others, which have no gradient."""
    if x is None or shard is None:
        return x
    everyone = shard.gather(x)
    return torch.cat([x, everyone[: shard.first], everyone[shard.first + shard.count :]])
