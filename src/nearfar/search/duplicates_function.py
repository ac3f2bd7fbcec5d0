"""`nearfar.duplicates`: near-duplicate groups of embeddings, with their names."""

from dataclasses import dataclass
from pathlib import Path

from nearfar.data.dataset import counted
from nearfar.modalities.image.data.decode import SUFFIXES
from nearfar.notebook import Printed
from nearfar.progress import progress_bar
from nearfar.search.duplicates import Duplicates, check_threshold, find_duplicates, write_groups
from nearfar.search.files import sample_embeddings
from nearfar.search.index import Kind, lookup

SHOWN = 5  # groups, and names in each


@dataclass(frozen=True)
class DuplicateGroups(Printed):
    """Samples whose embeddings are nearer than chance explains.

    Attributes:
        names: of all N samples.
        found: their groups, as row numbers.
        given: whether the threshold was given.
        path: of the table of groups, if one was written.
    """

    names: list[str]
    found: Duplicates
    given: bool
    path: Path | None = None

    @property
    def groups(self) -> list[list[str]]:
        """The names of each group of two or more, largest first."""
        return [[self.names[row] for row in rows] for rows in self.found.members()]

    def shown(self) -> str:
        found, groups = self.found, self.groups
        inside = sum(map(len, groups))
        of, among = f"{len(self.names):,} samples", counted(len(groups), "group")
        lines = [f"{inside:,} of {of} are duplicates, in {among}." if groups else f"No duplicates among {of}."]
        for names in groups[:SHOWN]:
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            lines.append(f"  {len(names)}: {', '.join(names[:SHOWN])}{more}")
        if len(groups) > SHOWN:
            lines.append(f"  and {len(groups) - SHOWN:,} more groups")
        source = "given" if self.given else "chosen from the data; --threshold overrides it"
        lines.append(f"threshold: cosine {found.threshold:.5f} ({source})")
        if self.path is not None:
            lines.append(f"groups: {self.path}")
        if self.names and Path(self.names[0]).suffix.lower() in SUFFIXES:
            lines.append("embeddings miss some copies: nearfar doctor DATA compares the pictures themselves")
        return "\n".join(lines)


def duplicates(
    embeddings: str | Path,
    *,
    threshold: float | None = None,
    index: Kind = "exact",
    out: str | Path | None = None,
    progress: bool = True,
) -> DuplicateGroups:
    """Samples whose embeddings are nearer than chance explains, as `nearfar duplicates` finds them.

    Args:
        embeddings: a file that `nearfar.embed` wrote.
        threshold: a cosine; None: found from the data.
        index: "exact", or "ivf" or "hnsw" of faiss.
        out: where to write the table of path and group, which `data.groups_file` takes; None: nowhere.
        progress: show a bar.
    """
    check_threshold(threshold)
    file = sample_embeddings(embeddings)
    find = lookup(file, index)
    with progress_bar(progress and "comparing", len(file)) as advance:
        found = find_duplicates(file, threshold=threshold, half=file.half, find=find, advance=advance)
    names, path = list(file.names()), None if out is None else Path(out)
    if path is not None:
        write_groups(path, names, found.groups, found.nearest.tolist())
    return DuplicateGroups(names, found, threshold is not None, path)
