"""Other libraries' losses by their own names and signatures, on this engine: one import line is all that changes.

    from nearfar.adapters.lightly import NTXentLoss                # was: from lightly.loss import ...
    from nearfar.adapters.pytorch_metric_learning import SupConLoss  # was: from pytorch_metric_learning.losses ...
    from nearfar.adapters.open_clip import ClipLoss                # was: from open_clip import ...

Value and gradient are the other library's, up to rounding; what cannot be had so is refused in a line that says what to
do instead. Each file says where the other's behaviour may surprise, and whether it is the same here. None of them
imports the other library.
"""
