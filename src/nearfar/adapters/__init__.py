"""Losses of other libraries, with their names and signatures, on this engine: change one import line.

    from nearfar.adapters.lightly import NTXentLoss                # was: from lightly.loss import ...
    from nearfar.adapters.pytorch_metric_learning import SupConLoss  # was: from pytorch_metric_learning.losses ...
    from nearfar.adapters.open_clip import ClipLoss                # was: from open_clip import ...

Value and gradient are the other library's, up to rounding. Options that are not supported raise an error that says what
to use instead. Each module lists surprising behaviour of the other library, and whether it is the same here. None of
them imports the other library.

- **A file for each library, which it does not import**: the class has the library's name, arguments and defaults, so
  that a swap is an import line. Each is a few lines on the engine, without normalisation where the library has none:
  the gradient is that of what was given.
- **Exact or refused.** Values and gradients are compared with the libraries' own classes, also where those are odd:
  the mean over what still costs something, the pairs that one label tensor hides, rows that a bank drops, gradients
  that are a part of the whole. The oddities are listed at the top of each file. An option that is not carried is a
  ValueError that says what to do.
- **On several processes** a library's loss is that of the process' own rows, and the gradient that of the sum of all
  processes' losses. The ring gives just that; where a library leaves gradients out, so do gathered constants.
"""

__all__ = ["lightly", "open_clip", "pytorch_metric_learning"]
