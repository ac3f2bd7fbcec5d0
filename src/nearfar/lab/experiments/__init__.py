"""One file for each experiment: it compares measurements with theory."""

from nearfar.lab.experiments.bound import bound
from nearfar.lab.experiments.collapse import collapse
from nearfar.lab.experiments.nce import nce
from nearfar.lab.experiments.negatives import negatives
from nearfar.lab.experiments.temperature import temperature
from nearfar.lab.experiments.views import views
from nearfar.lab.findings import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "bound": bound,
    "temperature": temperature,
    "negatives": negatives,
    "collapse": collapse,
    "nce": nce,
    "views": views,
}

__all__ = ["EXPERIMENTS", "bound", "collapse", "nce", "negatives", "temperature", "views"]
