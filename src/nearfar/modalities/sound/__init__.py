"""Sounds.

- **A sound is one tensor.** Waves (B, L) int16, -32768 behind the end: no second tensor of lengths, as a text has
  none for its mask. No value of a sound is -32768. Prepared sounds have NaN behind the end, and so have series;
  encoders with `frames` look where only NaN follows, and what is behind an end changes nothing. Image backbones
  cannot: they get the middle of a sound, in one length.
- **One pack for images and sounds** (`data/store.py`). Journal, locks, sums, resuming and taking over from earlier
  packs are those of images; a store of waves has offset and length of each in its journal, and appends.
- **Resampling is scipy's `resample_poly`** without scipy: the same filter, each output value a sum over the few
  inputs it needs, so that rates without a common divisor cost no more memory.
- **What is skipped**: empty, silent (80 dB below the loudest), cut off, not finite, no sound. libsndfile reads a RIFF
  file that is shorter than it says without a word, so its length is compared. Clipped sounds are kept and named in
  `clipped.txt`: they can still be heard, and whole collections are a little clipped.
- **A pattern of file names is a table**: what stands in braces is a column. So labels, groups, splits and `held_out`
  have one implementation. `held_out` is the test part of a run and of its evaluation.
- **Log-mels belong to the preparation**, not to the encoder: batched, on the device, equal to librosa's. Their floor
  is 1e-6, not the least float: padding and digital silence are then no outliers that decide mean and deviation, which
  are measured on the training data and kept on the card.
- **BYOL-A's background comes from the batch**, where the authors keep the last 2,048 inputs: a view is a function of
  (seed, step), so that a run resumes bit for bit.
- **Raw sounds** are mean and deviation of each band over time, of the sound without the silence around it.
- **Connected words** (`ctc`) are made of the data's own words, of one speaker where there are groups. The head is a
  recurrent layer on frozen frames, which are computed once; nothing is chosen, all epochs are run. For "raw" the
  frames are four log-mel frames side by side.
- **`melodies`** are the same four notes in ten orders: averages over time know nothing of them (k-NN 10 %). Test
  melodies are played on other instruments. **`spoken`** words come from eSpeak NG, which is GPL-3, so it is an extra
  of its own and runs in a process of its own. Its state carries over between calls, so all words are spoken in one
  order from a fresh start; voices with an echo differ even then, and are left out.
"""
