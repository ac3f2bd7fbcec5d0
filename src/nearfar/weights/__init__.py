"""Weights by name and from files: one way to name them, every usual layout, packages that carry them.

- **One kind of name** (`names.py`) for runs, libraries, packages and files, read in one place, so that no command
  knows fewer than another. What a name brings with it (backbone, tokenizer, scale of the colors) is the modality's to
  say, in `Modality.complete`: it is written into `config.yaml` as if the user had set it.
- **A layout is found, not listed** (`layouts.py`). Every suffix of every key votes for the prefix before it, if name
  and shape are the network's. That serves projects that nobody has named yet. A part that the network has, with
  tensors that it has no place for, is a misfit: else a ResNet-18 would open a ResNet-34's file and leave out half of
  it in silence.
- **The file decides on the stem** of a ResNet; the card of a run states it (`published_stem`), since the file may be
  gone.
- **A run from random weights keeps its start if that is clearly better** (`training/kind_comparison.py`): judged as
  the trial of views is, by neighbors among training samples that share a label, a folder or a word. Held-out samples
  are left for the verdict.
- **The start is the baseline** of a run that was given weights. Its BatchNorm statistics are its own, those of a
  fresh network are calibrated on the data.
- **Packages are data.** Their place is asked for (`find_spec`), they are not imported.
"""

from typing import TYPE_CHECKING

from nearfar.lazy import lazy_names

if TYPE_CHECKING:
    from nearfar.weights.files import read_tensors
    from nearfar.weights.layouts import LayoutFit, fit_layout
    from nearfar.weights.load import load_weights
    from nearfar.weights.names import WeightsName, parse_name
    from nearfar.weights.packages import PACKAGES, is_installed

__all__ = [
    "PACKAGES",
    "LayoutFit",
    "WeightsName",
    "fit_layout",
    "is_installed",
    "load_weights",
    "parse_name",
    "read_tensors",
]
__getattr__ = lazy_names(
    __name__,
    {
        "PACKAGES": "packages",
        "LayoutFit": "layouts",
        "WeightsName": "names",
        "fit_layout": "layouts",
        "is_installed": "packages",
        "load_weights": "load",
        "parse_name": "names",
        "read_tensors": "files",
    },
)
