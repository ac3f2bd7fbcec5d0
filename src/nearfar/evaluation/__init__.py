"""How good are the embeddings? Protocols, splits, results, and the one path from an encoder and data to numbers.

- **One contract.** A protocol is one file in `evaluation/protocols/`: a function of a `Task` (encoder, preparation,
  training and test part, features computed when first used), its own settings and a seed, which gives an `Outcome`:
  estimates by metric, arrays for figures, notes. It declares the metric to read first, whether it depends on the
  seed, and what it needs of the data and of the encoder. A new protocol is a file and a name in the list of
  `evaluation/protocols/__init__.py`.
- **One path.** The end of a run, `nearfar evaluate`, `nearfar.evaluate` and the recipes go through `evaluate_run`.
  The split comes from `Modality.split`, the same for training and evaluation, and is recorded in `splits.json` and
  `splits.npz` (a hash of each sample's name), by which `evaluation/own_split.py` finds the same samples after the
  data have changed.
- **Always beside something.** `evaluate_run` adds the modality's baselines and an untrained encoder. `nearfar
  evaluate` draws the untrained one as the run did, and gives its batch-norms the statistics of the data.
- **Compared sample by sample.** A protocol's `Outcome.samples` has what each test sample adds to a metric. `measure`
  compares encoders by these (`evaluation/paired.py`): McNemar's exact test for right and wrong, else a paired
  bootstrap.
- **The end of a run is `nearfar evaluate RUN`.** It loads the model from the run folder and takes the labels of all
  samples that are not measured on (`Splits.gallery`), so both give the same numbers to the last bit.
- **No number without its interval.** Proportions have Wilson's. Other metrics have a bootstrap of the test rows,
  drawn within each class, as weights: a class score is sorted once for all resamples. Its bias is taken out, since
  rows drawn twice raise AP and NMI. Verification resamples images, not pairs, because pairs share images. Geometry
  has none. Several seeds add Student's interval of their mean, as variances.
- **Nothing is chosen on test.** Strength of the probe, epoch of the SGD probe and of fine-tuning: on a part of the
  training rows. k of k-NN follows from the class sizes of the training part; the other k are shown beside it.
- **torchmetrics beneath, not scikit-learn**: it is a dependency already, scikit-learn would be one more; the tests
  compare with scikit-learn. k-means is written here for the same reason.
- **Exact k-NN by flat tiles.** A top-k reads a row of similarities once, so tiles are few rows by many columns.
  faiss' flat index is there (`search`) and exact too; at the one size measured (2,000 × 20,000, one thread) it was
  slower.
- **Fine-tuning** of the untrained encoder is supervised training from scratch, without layer-wise decay.
- **Boxes are one more kind of label.** A protocol says what it `needs` of the data: labels, boxes or images alone.
  `BoxedImages` holds pictures of any shape with their boxes; to who asks for images it is a data set without labels,
  so that the same `Task`, `Outcome` and rows serve. Detectors stand alone: "raw" has no maps, so it is left out.
- **The detector** is torchvision's FCOS or RetinaNet, whole; ours are the pyramid and the training. A look at one run
  of the encoder finds the last map at each stride, whatever the architecture; what makes no maps is refused in a
  line. The pyramid begins at stride 4 for pictures of up to 128 pixels, at 8 above, and goes on until eight strides
  cover the picture. Encoder, pyramid and head have one rate, pretrained or not: the baseline gets what the rival
  gets.
- **AP is pycocotools' own number.** Its matches, weighted by image, give the bootstrap: with weights of one, the same
  number again. Faults of the data are counted by kind, with the first place, as notes.
- **Images and texts** (`zero_shot`, `captions`, `similarity`) are functions of embeddings that give an `Outcome`.
  Ranks are pessimistic: a wrong answer as similar as the right one, up to rounding, is before it, so that a collapsed
  encoder is last. Captions of an image are drawn together by the bootstrap, since they are not independent. Cosines
  of sentence pairs are rounded to six decimals before they are ranked: equal pairs are ties, whatever the rounding.
- **Raw text is tf-idf of all words**, with the idf of all sentences that take part, which uses no label and no score.
  For pairs it is that of the compared sentences alone: on the test part of the STS benchmark Spearman 0.691, with
  those of the training part 0.684, from the training part alone 0.641. Rows stay sparse in k-NN, cosines and the
  linear probe, which is scikit-learn's logistic regression of them, strength chosen on training rows. Memory is that
  of the words, and 84 MB for the probe, which looks at no more than $2^{20}$ weights (of 150 classes, the 6,990 most
  frequent words).
- **Encoders by name** are opened by `model/load.py`; `report/refresh.py` writes what an evaluation found. An
  evaluation of a run keeps the rows of earlier ones that were not measured anew.
"""

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
