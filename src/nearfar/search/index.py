"""faiss indices over a file of embeddings: built once, stored beside the file, reused while it is unchanged."""

import hashlib
import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor

from nearfar.data.cache import replacing, write_file
from nearfar.losses.arguments import l2_normalize
from nearfar.search.files import Embeddings
from nearfar.search.search import Hits, Lookup, Vectors, exact

Kind = Literal["exact", "ivf", "hnsw"]
KINDS = ("exact", "ivf", "hnsw")
PER_LIST = 39  # rows for each center of k-means, as faiss recommends
LINKS = 32  # of each row in the HNSW graph


def lookup(vectors: Vectors, kind: Kind = "exact", *, effort: int = 64) -> Lookup:
    """A function that finds the nearest rows.

    Args:
        vectors: what is searched.
        kind: "exact" compares every row; "ivf" searches the nearest clusters; "hnsw" walks a graph.
        effort: clusters searched (ivf) or candidates kept (hnsw): more is slower and finds more.
    """
    if kind not in KINDS:
        raise ValueError(f"the index is {kind!r}, expected one of {', '.join(KINDS)}")
    if effort < 1:
        raise ValueError(f"effort is {effort}, expected at least 1")
    if kind == "exact":
        return exact(vectors)
    faiss = _faiss()
    index = _stored_index(faiss, vectors, kind) if isinstance(vectors, Embeddings) else build(faiss, vectors, kind)

    def find(query: Tensor, k: int) -> Hits:
        if kind == "ivf":
            index.nprobe = min(effort, index.nlist)
        else:
            index.hnsw.efSearch = max(effort, k)
        values, rows = index.search(query.numpy(), k)
        return Hits(torch.from_numpy(values), torch.from_numpy(rows))

    return find


def build(faiss: ModuleType, vectors: Vectors, kind: Kind) -> Any:
    """An index over unit rows, filled a piece at a time."""
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(vectors.dim, LINKS, faiss.METRIC_INNER_PRODUCT)
    else:
        lists = max(1, min(round(4 * math.sqrt(len(vectors))), len(vectors) // PER_LIST))
        coarse = faiss.IndexFlatIP(vectors.dim)
        index = faiss.IndexIVFFlat(coarse, vectors.dim, lists, faiss.METRIC_INNER_PRODUCT)
        index.train(_sample(vectors, lists * 256).numpy())
    for _, x in vectors.pieces():
        index.add(l2_normalize(x).numpy())
    return index


def _sample(vectors: Vectors, count: int) -> Tensor:
    """About `count` rows, evenly spaced."""
    step = max(1, len(vectors) // count)
    return torch.cat(
        [l2_normalize(x[(-start) % step :: step]) for start, x in vectors.pieces() if len(x) > (-start) % step]
    )


def _stored_index(faiss: ModuleType, vectors: Embeddings, kind: Kind) -> Any:
    """The index beside the file where it matches it; else a new one, stored there."""
    path = vectors.path.with_name(f"{vectors.path.name}.{kind}.faiss")
    note = path.with_name(f"{path.name}.json")
    state = vectors.path.stat()
    source = {"size": state.st_size, "changed": state.st_mtime_ns, "rows": len(vectors), "dim": vectors.dim}
    try:
        if json.loads(note.read_text(encoding="utf-8")) == {**source, "digest": _digest(path)}:
            return faiss.read_index(str(path))
    except (OSError, ValueError, RuntimeError):
        pass  # missing or broken
    index = build(faiss, vectors, kind)
    with replacing(path) as fresh:
        faiss.write_index(index, str(fresh))
    write_file(note, json.dumps({**source, "digest": _digest(path)}))
    return index


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _faiss() -> ModuleType:
    try:
        import faiss
    except ImportError:
        raise ModuleNotFoundError("--index needs faiss: pip install 'nearfar[search]', or use --index exact") from None
    module: ModuleType = faiss
    return module
