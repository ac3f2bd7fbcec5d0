"""Many processes that train as one, and what proves it: gather, ring, and the certificate of loss and gradient."""

from nearfar.scale.certify import check_method
from nearfar.scale.gather import gather, gather_rows
from nearfar.scale.processes import contrast_share, encode_share, in_processes
from nearfar.scale.ring import Ring, mean_of_all

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
