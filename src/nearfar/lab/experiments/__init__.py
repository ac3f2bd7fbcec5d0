"""One file for each experiment: it compares measurements with theory.

Each is a function of a seed. `quick` uses fewer samples and steps.
"""

from collections.abc import Callable

from nearfar.lab.experiments.bound import bound
from nearfar.lab.experiments.collapse import collapse
from nearfar.lab.experiments.nce import nce
from nearfar.lab.experiments.negatives import negatives
from nearfar.lab.experiments.temperature import temperature
from nearfar.lab.experiments.views import views
from nearfar.lab.findings import Findings

EXPERIMENTS: dict[str, Callable[..., Findings]] = {
    "bound": bound,
    "temperature": temperature,
    "negatives": negatives,
    "collapse": collapse,
    "nce": nce,
    "views": views,
}

__all__ = ["EXPERIMENTS", "bound", "collapse", "nce", "negatives", "temperature", "views"]
