"""How good are the embeddings? Sees embeddings or a frozen encoder, never a trainer.

`PROTOCOLS` lists what can be measured, `evaluate` measures it for every encoder, beside raw pixels and an untrained
one. Each file is one subject: `knn`, `linear`, `finetune`, `retrieval`, `verification`, `clustering`, `geometry`,
`detection`; of images and texts `zero_shot`, `cross_modal` and `similarity`, with `tfidf` as what raw text knows, all
functions of embeddings; `classification` holds the metrics of class scores, `average_precision` that of boxes,
`metrics` the intervals.
"""

from nearfar.evaluate.average_precision import Found, average_precision
from nearfar.evaluate.baselines import calibrated, raw_pixels, untrained_copy
from nearfar.evaluate.classification import classification
from nearfar.evaluate.clustering import agreement, k_means, purity
from nearfar.evaluate.cross_modal import Ranks, cross_modal, cross_modal_ranks
from nearfar.evaluate.embeddings import embed
from nearfar.evaluate.evaluation import evaluate
from nearfar.evaluate.geometry import (
    Histograms,
    Neighbourhood,
    alignment,
    covariance_spectrum,
    deviation,
    effective_rank,
    lidar,
    neighbourhood,
    participation_ratio,
    similarity_histograms,
    uniformity,
)
from nearfar.evaluate.knn import knn_accuracy, knn_predict
from nearfar.evaluate.linear import LinearProbe, linear_accuracy, linear_probe
from nearfar.evaluate.metrics import Estimate, accuracy, wilson
from nearfar.evaluate.neighbours import Neighbours, find_neighbours
from nearfar.evaluate.protocols import PROTOCOLS
from nearfar.evaluate.results import Results, Row
from nearfar.evaluate.retrieval import Retrieved, retrieval
from nearfar.evaluate.similarity import correlation, pair_cosines, pearson, sentence_similarity, spearman
from nearfar.evaluate.task import Measure, Outcome, Task
from nearfar.evaluate.tfidf import TfIdf, sparse_nearest
from nearfar.evaluate.verification import Pairs, Roc, draw_pairs, pair_similarity, roc
from nearfar.evaluate.zero_shot import (
    TEMPLATES,
    class_weights,
    prompts,
    read_templates,
    templates_from,
    zero_shot,
    zero_shot_scores,
)

__all__ = [
    "PROTOCOLS",
    "TEMPLATES",
    "Estimate",
    "Found",
    "Histograms",
    "LinearProbe",
    "Measure",
    "Neighbourhood",
    "Neighbours",
    "Outcome",
    "Pairs",
    "Ranks",
    "Results",
    "Retrieved",
    "Roc",
    "Row",
    "Task",
    "TfIdf",
    "accuracy",
    "agreement",
    "alignment",
    "average_precision",
    "calibrated",
    "class_weights",
    "classification",
    "correlation",
    "covariance_spectrum",
    "cross_modal",
    "cross_modal_ranks",
    "deviation",
    "draw_pairs",
    "effective_rank",
    "embed",
    "evaluate",
    "find_neighbours",
    "k_means",
    "knn_accuracy",
    "knn_predict",
    "lidar",
    "linear_accuracy",
    "linear_probe",
    "neighbourhood",
    "pair_cosines",
    "pair_similarity",
    "participation_ratio",
    "pearson",
    "prompts",
    "purity",
    "raw_pixels",
    "read_templates",
    "retrieval",
    "roc",
    "sentence_similarity",
    "similarity_histograms",
    "sparse_nearest",
    "spearman",
    "templates_from",
    "uniformity",
    "untrained_copy",
    "wilson",
    "zero_shot",
    "zero_shot_scores",
]
