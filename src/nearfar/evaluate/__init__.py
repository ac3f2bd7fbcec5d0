"""How good are the embeddings? Sees embeddings or a frozen encoder, never a trainer.

Protocols that need labels are in `knn` and `linear`, those that need none in `geometry`; `evaluate` runs the
former on every encoder, beside raw pixels and an untrained one.
"""

from nearfar.evaluate.embeddings import embed
from nearfar.evaluate.geometry import (
    Histograms,
    alignment,
    deviation,
    effective_rank,
    similarity_histograms,
    uniformity,
)
from nearfar.evaluate.knn import knn_accuracy, knn_predict
from nearfar.evaluate.linear import LinearProbe, linear_accuracy, linear_probe
from nearfar.evaluate.metrics import Estimate, accuracy, wilson
from nearfar.evaluate.neighbours import Neighbours, find_neighbours
from nearfar.evaluate.protocols import PROTOCOLS, evaluate, raw_pixels, untrained_copy
from nearfar.evaluate.results import Results, Row

__all__ = [
    "PROTOCOLS",
    "Estimate",
    "Histograms",
    "LinearProbe",
    "Neighbours",
    "Results",
    "Row",
    "accuracy",
    "alignment",
    "deviation",
    "effective_rank",
    "embed",
    "evaluate",
    "find_neighbours",
    "knn_accuracy",
    "knn_predict",
    "linear_accuracy",
    "linear_probe",
    "raw_pixels",
    "similarity_histograms",
    "uniformity",
    "untrained_copy",
    "wilson",
]
