"""Many processes that train as one, and what proves it: gather, ring, and the certificate of loss and gradient.

- **A `Shard` says which rows are here**: rank, and the rows of each process. All else follows from it: what is drawn
  for the whole and taken by rows, what is summed over all, what is gathered. Without one, rows are the whole batch.
- **`encode` runs as on the whole.** Within `full_batch_ops(shard)` torch's batch-norm and, on a CPU, its dropout are
  others, by a torch function mode: no module is replaced, so any network serves (timm's norms, models of
  transformers), state dicts stay, and evaluation on the first process alone never waits for others. Batch-norm
  exchanges count, mean and squared deviation of each process once forward and two sums once backward.
- **MoCo's groups are ids of rows.** Statistics are summed by group over all processes, so groups need not lie within
  one, and keys are shuffled without moving an image.
- **`contrast` runs on all rows on each process**, and gather's backward pass cuts out one's own rows, times the
  number of processes (DDP averages). So methods know nothing of it, and the parameters of `contrast` need no special
  case.
- **Ring is a backend of the primitive** (`losses/engine/backends.py`), as the dense matrix of the certificate is:
  losses call their sums, and a context says how they are made. The losses stay without collectives. What needs more
  than the rows given (own ids, counts, top-k, Euclid's centre, a queue) refuses a ring. The loss is the mean over all
  rows; each process differentiates its own part times the number of processes. Two directions from one pass: column
  sums travel with their keys and come home after the round, as key gradients do.
- **The certificate trains** two steps of each variant and compares loss, gradient and the whole state, so that queue,
  bank and momentum networks count. Its reference is the method itself in float64 with dense matrices on one process;
  the losses are compared with the definitions below them. A momentum network that is the very network is found by
  what it does: a trained parameter with two names that is also run without a gradient.
- **Masked words of SimCSE** are drawn per text, from (step, sample): neither chunks nor processes change them.
- **Only rank 0 writes and logs**, evaluates and reports. Who is asked to stop tells the others at the end of the
  step.
- **FSDP is torch's `fully_shard`** (`distributed/fsdp.py`) through Lightning's `ModelParallelStrategy`, which runs on
  a CPU, too; Lightning's `FSDPStrategy`, torch's older way, refuses one. Units follow one rule: the blocks of a stack
  (several modules of one class in an `nn.Sequential` or `nn.ModuleList`), and the method with all the rest. `encode`
  and `contrast` are what the method's unit is entered by, so that it does not matter how they use their networks: by
  calling them, by other methods than `forward` (CPC), or by a weight's name (masked words).
- **Scalars cannot be cut.** A temperature is whole everywhere, and its gradient is averaged before the step.
- **Momentum networks move part by part**: a network and its copy are cut alike, so `ema_update` works on what is
  here. What needs whole tensors are norms (LARS, clipping, health, the distance of a momentum network): sums of
  squares of the parts, summed over the processes.
- **Caching's second pass comes after the backward pass** (`encode_in_chunks(deferred=...)`): the hooks that gather
  the weights do not work within another one, and weights would stay whole in it.
- **Checkpoints are whole**, the same file whatever wrote it. Weights and optimiser state are put together on the
  first process, all taking part; who resumes cuts them again. To look at the network (k-NN, rank, evaluation) the
  first process fills a copy that was made before the cut, without hooks, so that it never waits for the others.
"""

from nearfar.distributed.certificate import check_method
from nearfar.distributed.gather import gather, gather_rows
from nearfar.distributed.processes import contrast_shards, encode_shard, run_in_processes
from nearfar.distributed.ring import RingBackend, global_mean, ring
from nearfar.nn.shard import Shard, shard_of

__all__ = [
    "RingBackend",
    "Shard",
    "check_method",
    "contrast_shards",
    "encode_shard",
    "gather",
    "gather_rows",
    "global_mean",
    "ring",
    "run_in_processes",
    "shard_of",
]
