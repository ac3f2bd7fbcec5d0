"""What all modalities share: sources, tables, packed samples, shards, the loader.

- **Captions are tuples.** A sample has one or more texts; a data set has captions for all of its samples or for none.
- **One way from columns to samples** (`data/rows.py`). A table, COCO's or Karpathy's JSON and shards all become
  columns; there alone columns are found, rows of one image joined, splits taken, captions checked. What cannot be
  used is a `Skipped` with its row. A caption that is empty, not UTF-8 or longer than 2,000 characters is left out,
  and its image only when no other caption remains. Too long is not cut: such a text is a page that slipped into the
  column.
- **Encodings are not guessed.** UTF-8, or UTF-16 where the file begins by saying so. Other bytes cost their own row:
  a wrong guess would train on mojibake in silence. Tab-separated files are read without quotes where quotes do not
  close, as in GLUE's.
- **Repeated paths are joined only in tables with captions**, even where the captions are not wanted
  (`captions=False`): an image with five captions is not five images.
- **Shards** are read in place, by offset, never unpacked; links and folders in them are nothing. The list of members
  is kept in the cache by the shard's size and time, so a second start reads no header, and pixels come from the pack:
  a new shard costs its own pictures alone. A broken header ends a shard, which Python's tarfile would take for its
  end.
- **The order of streamed shards is one permutation** of all samples (`by_parts`): shards in a drawn order, each
  sample moved by less than a window. It is what a shuffle buffer does, as a function of (seed, epoch) and not of what
  was read before. So ranks and workers take their shares of the same global batches, as of any data; nothing is lost
  or doubled when there are more of them than shards, and batch n is the same wherever one starts. The price is that
  ranks read from the same shards, and that names, labels and captions of all samples are in memory (see
  docs/scaling.md).
- **`glyphs:compositional`** holds out a fifth of the pairs of letter and colour, evenly over both, in the fonts that
  it trains on: the combination is new, and nothing else.
- **`icons`** are 16,930 drawings of six design teams from the fonts inside qtawesome's wheel, found by its metadata.
  A family is a team, not a font: Font Awesome 5 and 6 share drawings, so only the newest counts. 898 concepts (names
  without words of style) are drawn by two or more. The test split has icons of the held-out family whose concept
  another family draws, since no other name could be known. Equal concepts are one group: never negatives.
- **`open_texts`** is the door for sentences: a file has one text a row, two (pairs, with scores) or three (triples).
"""

from typing import TYPE_CHECKING

from nearfar.lazy import lazy_names

if TYPE_CHECKING:
    from nearfar.data.cache import cache_folder
    from nearfar.data.dataset import ArrayDataset, Dataset, Skipped
    from nearfar.data.groups import with_groups
    from nearfar.data.loader import Loader
    from nearfar.data.pack import pack_samples
    from nearfar.data.sources import Source

__all__ = [
    "ArrayDataset",
    "Dataset",
    "Loader",
    "Skipped",
    "Source",
    "cache_folder",
    "pack_samples",
    "with_groups",
]
__getattr__ = lazy_names(
    __name__,
    {
        "ArrayDataset": "dataset",
        "Dataset": "dataset",
        "Loader": "loader",
        "Skipped": "dataset",
        "Source": "sources",
        "cache_folder": "cache",
        "pack_samples": "pack",
        "with_groups": "groups",
    },
)
