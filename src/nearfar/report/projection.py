"""UMAP of the samples of a report, where umap-learn is installed: made once, from their principal components."""

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.data.dataset import counted
from nearfar.report.samples import SAMPLES, Samples

_FEWEST = 20  # samples that have a neighbourhood worth laying out


def add_umap(folder: Path, tell: Callable[[str], None] | None = None) -> str | None:
    """Add UMAP to the samples in a run folder, where that is possible and was not done; a line where it fails."""
    path = folder / SAMPLES
    if not path.is_file() or importlib.util.find_spec("umap") is None:
        return None
    try:
        samples = Samples.load(path)
    except Exception:  # the page says so itself
        return None
    if len(samples.umap) or len(samples) < _FEWEST:
        return None
    if tell is not None:
        tell(f"umap: laying out {counted(len(samples), 'sample')}; it is compiled first, which may take a minute")
    try:
        replace(samples, umap=_laid_out(samples.components)).save(folder)
    except Exception as error:  # of a package that is not ours: the page does without
        return f"UMAP could not be made: {' '.join(str(error).split())[:200] or type(error).__name__}."
    return None


def _laid_out(components: Any) -> Any:
    import umap

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a seed means one thread, which it warns of
        found = umap.UMAP(n_neighbors=15, min_dist=0.1, random_state=0, n_jobs=1).fit_transform(components)
    return np.asarray(found, np.float32)
