"""How good are the embeddings? Protocols, splits, results, and the one path from an encoder and data to numbers."""

from typing import TYPE_CHECKING

from nearfar.lazy import lazy_names

if TYPE_CHECKING:
    from nearfar.evaluation.evaluate import Evaluation
    from nearfar.evaluation.geometry import alignment, effective_rank, uniformity
    from nearfar.evaluation.knn import knn_accuracy
    from nearfar.evaluation.protocols import PROTOCOLS, Protocol, ProtocolConfig, find_protocol
    from nearfar.evaluation.results import Results, Row
    from nearfar.evaluation.task import Compute, Outcome, Task

__all__ = [
    "PROTOCOLS",
    "Compute",
    "Evaluation",
    "Outcome",
    "Protocol",
    "ProtocolConfig",
    "Results",
    "Row",
    "Task",
    "alignment",
    "effective_rank",
    "find_protocol",
    "knn_accuracy",
    "uniformity",
]
__getattr__ = lazy_names(
    __name__,
    {
        "PROTOCOLS": "protocols",
        "Compute": "task",
        "Evaluation": "evaluate",
        "Outcome": "task",
        "Protocol": "protocols",
        "ProtocolConfig": "protocols",
        "Results": "results",
        "Row": "results",
        "Task": "task",
        "alignment": "geometry",
        "effective_rank": "geometry",
        "find_protocol": "protocols",
        "knn_accuracy": "knn",
        "uniformity": "geometry",
    },
)
