"""A run told to a reader: one HTML page that needs neither network nor server, and one that compares several.

`nearfar.report(run, ...)` writes them: `nearfar.report.report_function`.

- **The answer is first** (`report/scoreboard.py`, `report/summary_table.py`): page and console have the same rows,
  from `report/judgement.py`. Charts stand by the question they answer; each says what to see (`report/curves.py`).
- **Charts are SVG, written by Python.** They are there without a script, on paper, in light and dark (colours are
  classes). Plotly, which the first page used, is 4.8 MB of script in every page: it took 2.2 s to load on the weak
  machine that this was measured on, where the page now opens in 0.4 s. What moves (values under the pointer, the
  slider, the map on a canvas) is some 300 lines of plain script. So the page's policy forbids `eval`, too.
- **What needs embeddings is taken once**, at the end of a run or an evaluation of it, of at most 2,000 samples, and
  kept in `report/samples.npz`: the page can be written anew without data and encoder. It is compared densely: 2,000
  rows are 16 MB. If it fails, that is a line, and costs a run nothing. Evaluating other data replaces it; the same do
  not.
- **Thumbnails are one picture**, a WebP sheet of at most 2 MB, by style and not by thousands of addresses. A modality
  says how its samples look: images, spectrograms, lines; texts have none and are read.
- **Suspected false negatives** are pairs of other ids: of one label where there are labels, else at least as alike as
  the median of two views of one sample, of sentences two dropouts. Of images and texts an image is compared with the
  texts of others.
- **The verdict claims what the paired comparisons show** (`report/judgement.py`): better, same or WORSE than the
  start and the best baseline. Where samples were not compared, as in older files, it takes Newcombe's interval of a
  difference. What is not better than its start is not called healthy. What to try next is a list of rules, one
  function each (`report/next_step.py`). Where too little is known (not finished, no verdict, a warning before the
  first step and no evaluation) it is not judged. Steps are counted by the log, the findings and the names of
  checkpoints, whichever says more.
"""

from nearfar.lazy import make_callable
from nearfar.report.compare import write_comparison
from nearfar.report.page import write_report

__all__ = ["write_comparison", "write_report"]

make_callable(__name__)
