"""Losses of other libraries, with their names and signatures, on this engine: change one import line.

    from nearfar.adapters.lightly import NTXentLoss                # was: from lightly.loss import ...
    from nearfar.adapters.pytorch_metric_learning import SupConLoss  # was: from pytorch_metric_learning.losses ...
    from nearfar.adapters.open_clip import ClipLoss                # was: from open_clip import ...

Value and gradient are the other library's, up to rounding. Options that are not supported raise an error that says what
to use instead. Each module lists surprising behaviour of the other library, and whether it is the same here. None of
them imports the other library.
"""

__all__ = ["lightly", "open_clip", "pytorch_metric_learning"]
