"""Sentences.

- **A text is one tensor.** Tokens (B, L), 0 where there is no text: no second tensor for the mask, so a text goes
  through views, loaders and encoders as an image does. Tokenizers and models that pad with another id have the two
  ids exchanged on the way in, and again on the way out.
- **Padding changes nothing**, and columns that are padding in every row are cut off before the Transformer. A place
  that may look at nothing takes nothing: a softmax over nothing would be NaN.
- **Tokenizers are `tokenizer.json` alone**, our own and Hugging Face's; weights of `transformers` are safetensors
  alone. Special tokens are matched nowhere in a text: who writes "[SEP]" has written five letters.
- **The projections belong to the towers**, not to the method: zero-shot and search need them after training.
  `TwoTowers` as an encoder is its first tower, in the joint space. Towers are `first` and `second`, since sound and
  text are two towers too.
- **Which pairs are no negatives** is told by `ids`, as everywhere: the connected components of "same image" and "same
  caption" (`merged_ids`). Along chains that excludes more pairs than it must. Where captions chain more than a
  twentieth of all images together, only images whose captions are all the same share an id: a pair that shares one of
  several captions may then be a negative.
- **Pairs and their hard negatives are views.** The partner is the second view, hard negatives follow, so that a
  method sees tensors alone (`Batch.negatives` counts them). Who says the same, as a sentence or as a partner, has one
  id. A hard negative that repeats another sentence or its partner word for word is none of theirs: `pairs` and
  `simcse` see that by the tokens, in one function. Pairs with a score or a label may be no positives: each text is a
  sentence then, the two of a pair one group; only a method that `needs_scores` gets scored pairs as pairs.
- **Batches keep their samples, and are encoded by length** (`by_length` of `nn/text.py`). Drawing batches of similar
  length would change which texts are negatives of each other. Within a batch, texts are encoded in groups of similar
  length, each padded to its own longest; the loss sees the same rows. Groups are found from the lengths of all
  processes' rows, so that dropout does not depend on how many there are: within a group, a `Shard` of the group is
  the current one. Training on an accelerator has one group, as long as the longest text of the batch: to read the
  lengths there would be to wait for the device.
- **Validation of dropout's views.** Where two views are one and the same tensor, dropout stays on for them, seeded,
  and the state of chance is put back.
- **SimCSE's masking** is drawn from (step, first sample of the batch), so `methods` knows `views`.
"""
