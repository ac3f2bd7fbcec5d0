"""Time series.

- **A sequence is one tensor.** (B, C, T), NaN behind the end of a shorter one: no second tensor for lengths, so it
  goes through loaders, views and encoders as an image does. Encoders put 0 there before every convolution, so that
  what is behind an end changes nothing: a padded sequence gives what it gives alone. `frames` says which frames are
  of it.
- **What is missing inside is filled when a file is read**, along the line between its neighbours, so that NaN has one
  meaning afterwards. A row that is no series is a `Skipped`, as a broken file is.
- **CPC needs no trainer of its own.** It takes the first of the batch's views; its preset ("whole") has but one.
  Latents and contexts are per sample (`encode`); the W_k and the negatives are across samples (`contrast`). Every
  horizon is one InfoNCE through the engine. Which rows are candidates is told by ids; where a sequence shares its id
  with another one of the batch, its own other times are left out, too: equality of ids cannot say less. Negatives of
  the same sequence alone are blocks of frames by frames, of which all is needed.
- **Horizons go to the health report as what they compared**, and it looks at 256 queries of each when it looks at
  all: accuracy and ceiling cost nothing on the other steps.
- **Latents are normalised over features**, not over the batch or time: batch-norm would let the future, and other
  samples, leak into a frame.
- **A view of a series is a map of time and a map of values.** Window, warp and permutation are put one after the
  other as functions from [0, 1] to [0, 1], and the series is read once, between its steps.
- **An encoder that knows the length.** `kernels` has dilations up to the length of the longest training series, and
  frames far enough apart that there are 128 to 255 of them; `series.length` in the run folder holds it, as
  `series.channels` does.
- **Normalised by itself or by the data.** By default each series by its own mean and deviation; `series.normalize
  data` keeps what height says, with statistics of the training data, which the configuration in the run folder then
  holds.
- **DTW is a protocol of "raw" alone** (`Measure.raw`): it compares series, not embeddings. It is exact, along
  anti-diagonals of one series against all; giving up early was tried and saved nothing.
- **`waves`** have a shape of ten, and any period, phase, height, drift and noise. Euclid finds 25 % of 600, 39 % of
  4,000.
"""
