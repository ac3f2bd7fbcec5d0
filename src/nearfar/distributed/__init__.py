"""Many processes that train as one, and what proves it: gather, ring, and the certificate of loss and gradient."""

from nearfar.distributed.certificate import check_method
from nearfar.distributed.gather import gather, gather_rows
from nearfar.distributed.processes import contrast_shards, encode_shard, run_in_processes
from nearfar.distributed.ring import RingBackend, global_mean, ring
from nearfar.nn.shard import Shard, shard_of

__all__ = [
    "RingBackend",
    "Shard",
    "check_method",
    "contrast_shards",
    "encode_shard",
    "gather",
    "gather_rows",
    "global_mean",
    "ring",
    "run_in_processes",
    "shard_of",
]
