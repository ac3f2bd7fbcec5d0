"""What all modalities share: sources, tables, packed samples, shards, the loader."""

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
