r"""The primitive under every contrastive loss, and its backends.

- **Order instead of masks.** Rows and columns are sorted by id, so equal ids lie side by side. A tile whose row ids
  and column ids do not overlap has nothing to exclude; where they do, the few equal pairs are written to by index,
  and only where they are many (classes as ids) a mask of one tile is made. Tiles of a single id are skipped.
- **Symmetry.** When keys are the queries, the tiles on and above the diagonal serve both triangles: half a product
  forward; in the backward pass half to compute the tiles anew and one for the gradient. Two products in all, where a
  dense implementation takes three.
- **One pass for two directions.** Row sums and column sums of the same tiles (CLIP); the gradient is `E ∘ (a ⊕ b)`
  with `a` and `b` the shares of rows and columns.
- **No maximum unless it is needed.** By Cauchy-Schwarz $|s \langle q, k \rangle| \le s \max|q| \max|k|$, $s$ the
  scale. Where that is below half the range of exp (44 in float32, so cosine at τ > 0.023) plain exponentials cannot
  overflow, and their sums keep full precision. Otherwise sums are kept as log-sum-exps, each exponential relative to
  its own sum.
- **The scale's gradient is free**: `Σ <q, dq> / scale`, without the division.
- **A single tile is kept** from forward to backward: a bounded amount of memory that spares a small batch the second
  computation. Its entries are used up in place; a second backward pass computes them anew.
- **Tile size** follows from the second-level cache and the number of threads, or from `tile_size(n)`.
- **Three ways to compute the sums**: tiles, fused Triton kernels on GPUs (docs/concepts/kernel.md) and
  the whole matrix. `use_engine` chooses, for the process, so that torch.compile sees a change; each call notes it for
  its backward pass.
- **Exact whatever torch is set to.** `torch.set_float32_matmul_precision("medium")` lets torch round the factors of
  products, on some CPUs, too. The engine turns that off around its own products and back on afterwards.
  `use_engine(precision=)` is how to ask for TF32 or bfloat16: the factors are then rounded on every device, so that
  the result differs between them by float32 only.
- **Half precision** is widened to float32 on entry, and autocast is off inside: accumulation is never in 16 bits.
- **Small batches take the whole matrix**, on a CPU, since there the number of calls takes the time. NT-Xent, InfoNCE,
  DCL's, CLIP's and SigLIP's losses are one autograd function from the rows as they come to the loss
  (`small_pairs.py`), up to 512 × 512 entries. Other softmax losses take the matrix up to 181 × 181 entries (128 × 128
  of rows with themselves). `tile_size` turns it off.
- **Small compiled batches are traced**: up to 512 × 512 entries on a CPU, torch.compile sees the whole matrix and
  fuses what is around the products, which are an operator of their own (`nearfar::product`) so that they stay exact.
- **Compiled and exported.** The sums are operators of torch, `nearfar::log_sums`, `nearfar::softplus_sums` and
  `nearfar::top_k`, with their shapes and derivatives declared: `torch.compile(fullgraph=True)` and `torch.export`
  take every loss, with the batch size left free. An exported program needs `import nearfar.losses` where it is
  loaded. Eager code reaches the same kernels by autograd functions, which cost less per call and serve `torch.func`:
  grad, vmap (one entry after the other), jvp, jacrev, jacfwd, and hessian. Not supported: jacfwd of jacfwd,
  `is_grads_batched`, and a ring inside any of these.
- **Second derivatives** are exact for every loss but `batch_triplet` of Euclidean distances, for which torch's
  `cdist` has none. Let $T$ be how the logits move along a direction $v$. Then $L(v) = \sum W \circ T$ is the
  derivative of the loss along $v$, its gradient in $v$ is the first gradient, and its gradient in the rows the
  second: two more passes over the tiles. So memory stays linear for the softmax and sigmoid losses. A third
  derivative is refused, except in a small batch, where torch has it.
- **No waiting for a device.** On an accelerator no loss reads a value: a Python temperature stays a number, a learned
  one is not checked for its sign and multiplies the queries, exponentials are kept relative to a sum unless the scale
  is a number, and ids that a caller gives are compared tile by tile instead of being sorted.
  `tests/losses/test_no_waiting.py` runs every loss on torch's meta device, which has no values, and
  `tests/methods/test_no_waiting.py` a training step of every method, `tests/training/test_no_waiting.py` the
  trainer's with its views. Counters that are buffers are known on the host,
  too (`nn/host_numbers.py`), as are the numbers of a batch's samples (`Batch.host_index`) and its longest text. Only
  CPC still reads values: how many frames are predicted depends on the lengths of the sequences.
- **The losses' own ids** (where none are given) and their order are remembered between steps; ids that a caller gives
  are looked at anew each time, since their memory may change unseen.
- **`tile_size` is a context variable**: threads started inside it do not inherit it.

Two deviations from the first sketch: `two_way` is a function of its own beside `similarity_logsumexp`, since its
result has two parts; and the squared Euclidean similarity needs nothing of the engine: two more features per row make
$-|q - k|^2$ an inner product.
"""
