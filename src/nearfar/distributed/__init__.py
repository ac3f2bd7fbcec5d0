"""Many processes that train as one, and what proves it: gather, ring, and the certificate of loss and gradient."""

from nearfar.distributed.certificate import check_method
from nearfar.distributed.gather import gather, gather_rows
from nearfar.distributed.processes import contrast_share, encode_share, in_processes
from nearfar.distributed.ring import Ring, mean_of_all

__all__ = [
    "Ring",
    "check_method",
    "contrast_share",
    "encode_share",
    "gather",
    "gather_rows",
    "in_processes",
    "mean_of_all",
]
