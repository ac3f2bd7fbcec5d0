"""Single samples: the map of their embeddings, the neighbours of some, and the negatives that are most alike."""

from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.dataset import counted
from nearfar.evaluation.results import percent
from nearfar.report.markup import Charts, data_address, sentence
from nearfar.report.samples import Samples
from nearfar.report.thumbnail_sheet import sheet_columns, sheet_side

_TITLE = 60  # characters of a text in a caption
_CANVAS = (
    '<canvas id="map-canvas" tabindex="0" role="application" aria-label="Map of the samples" '
    'aria-describedby="map-keys"></canvas>'
)
_KEYS = (
    '<p class="quiet" id="map-keys">Keys on the map: arrows move, + and − zoom, 0 shows the whole, Enter takes the '
    "sample nearest to the middle.</p>"
)
_ZOOM = (
    '<span class="zoom" role="group" aria-label="Zoom of the map">'
    '<button type="button" id="map-in" aria-label="Zoom in">+</button>'
    '<button type="button" id="map-out" aria-label="Zoom out">−</button>'
    '<button type="button" id="map-whole">Whole</button></span>'
)


def sheet_style(samples: Samples | None) -> str:
    """The rule that gives every thumbnail its picture: one for all of them."""
    if samples is None or not samples.sheet.size:
        return ""
    content = samples.sheet.tobytes()
    small = "image-rendering: pixelated; " if sheet_side(content, len(samples)) <= 32 else ""
    columns = sheet_columns(len(samples))
    return f".thumb {{ {small}--columns: {columns}; background-image: url({data_address(content)}); }}\n"


def embedding_map(samples: Samples, charts: Charts) -> str:
    """The map with its controls."""
    places = {"PCA": samples.components[:, :2]} | ({"UMAP": samples.umap} if len(samples.umap) else {})
    labelled = bool((samples.labels >= 0).any())
    groups = np.bincount(samples.clusters, minlength=1)
    data = {
        "kind": "map",
        "places": {name: {"x": _rounded(at[:, 0]), "y": _rounded(at[:, 1])} for name, at in places.items()},
        "label": samples.labels.tolist(),
        "classes": samples.classes.tolist(),
        "cluster": samples.clusters.tolist(),
        "clusters": groups.tolist(),
        "names": samples.names.tolist(),
        "texts": samples.texts.tolist(),
        "nearest": samples.nearest.tolist(),
        "similarity": np.round(samples.similarity.astype(np.float64), 3).tolist(),
        "columns": sheet_columns(len(samples)) if samples.sheet.size else 0,
        "start": int(samples.random[0]) if len(samples.random) else 0,
    }
    name, split, whole = samples.data.tolist()
    told = f"{len(samples):,} of {counted(int(whole), f'{split} sample')} of {name}"
    share = [percent(float(value)) for value in samples.variance[:2]]
    caption = (
        f"{told}, each at the place of its unit embedding in the plane of greatest variance (PCA: {share[0]} and "
        f"{share[1]} of it)" + (", or as UMAP lays out their neighbourhoods" if len(samples.umap) else "") + ". "
        f"{counted(len(groups), 'cluster')} by k-means. Point at a sample, or give its number, to see it and its "
        "nearest; drag to move."
    )
    controls = "".join(
        [
            _select("map-place", "Place by", list(places)),
            _select("map-colour", "Colour by", ["label", "cluster"] if labelled else ["cluster"]),
            '<label>Show <select id="map-only"><option value="">all</option></select></label>',
            f'<label>Sample <input type="number" id="map-sample" min="1" max="{len(samples)}"></label>',
            _ZOOM,
            '<output id="map-count" class="quiet"></output>',
        ]
    )
    absent = "<noscript><p>The map needs JavaScript; the neighbours below do not.</p></noscript>"
    return (
        f'{absent}<div class="controls">{controls}</div><div class="legend" id="map-legend" role="group" '
        f'aria-label="Groups of the map"></div><figure><div class="spread">{charts.place(_CANVAS, data, "cloud")}'
        f'<div class="detail" id="map-detail" aria-live="polite"></div></div>'
        f"{_KEYS}<figcaption>{escape(caption)}</figcaption></figure>"
    )


def neighbours(samples: Samples) -> str:
    """The nearest others of a few samples, drawn at random, and of those with the worst neighbours."""
    labelled = len(np.unique(samples.labels[samples.labels >= 0])) > 1
    explained = "First the query, then its nearest others among the samples of the map with their cosine similarity."
    if labelled:
        known = samples.labels >= 0
        hits = (samples.labels[samples.nearest[known]] == samples.labels[known][:, None]).mean()
        explained += (
            f" Of all samples, {percent(float(hits))} of the {samples.nearest.shape[1]} nearest have its label."
        )
    worst = "Fewest neighbours of their own label" if labelled else "Farthest from all others"
    return (
        sentence(explained)
        + f"<h3>Drawn at random</h3>{''.join(_strip(samples, int(i)) for i in samples.random)}"
        + f"<h3>Worst: {worst[0].lower()}{worst[1:]}</h3>{''.join(_strip(samples, int(i)) for i in samples.worst)}"
    )


def negatives(samples: Samples) -> str:
    """Pairs that training pushes apart although they are alike."""
    crossed, labelled = bool(samples.crossed), len(np.unique(samples.labels[samples.labels >= 0])) > 1
    what = "an image and the text of another" if crossed else "two samples"
    possible, over, same = (int(n) for n in samples.counts)
    middle = float(samples.positive)
    words = f"Pairs of {what}, of other ids, which a loss with negatives pushes apart. "
    measured = bool(np.isfinite(middle)) and possible > 0
    if measured:
        own = "an image and its own text" if crossed else "two views of one sample"
        words += (
            f"{over:,} of {possible:,} such pairs ({100 * over / possible:.2g} %) are at least as alike as the middle "
            f"pair of {own} ({middle:.2f})"
        )
        words += f"; {percent(same / over)} of them have the same label. " if labelled and over else ". "
    else:
        words += "How alike two views of one sample are was not measured here. "
    kind = ", of other labels" if labelled else ", less alike than the middle positive" if measured else ""
    hard = _pairs(samples, samples.hard, samples.hard_similarity)
    suspected = _pairs(samples, samples.suspected, samples.suspected_similarity)
    reason = "the same label" if labelled else "more alike than half of the positives"
    none = "There are none." if measured or labelled else "Not told: it takes how alike two views of one sample are."
    help_ = "Where these are truly the same, give them one group (nearfar doctor finds copies, --group takes them)."
    return (
        sentence(words)
        + f"<h3>Hardest negatives{escape(kind)}</h3>"
        + (hard or sentence("There are none."))
        + f"<h3>Suspected false negatives{f': {escape(reason)}' if measured or labelled else ''}</h3>"
        + (suspected + sentence(help_) if suspected else sentence(none))
    )


def _strip(samples: Samples, query: int) -> str:
    similar = zip(samples.nearest[query].tolist(), samples.similarity[query].tolist(), strict=True)
    if samples.sheet.size:
        shown = _shown(samples, query, _label(samples, query) or "query", "Query")
        shown += "".join(_shown(samples, j, f"{_label(samples, j)} {s:.2f}".strip(), "Neighbour") for j, s in similar)
        label = f"Neighbours of sample {query + 1}"
        return f'<div class="strip scroll" tabindex="0" role="group" aria-label="{label}">{shown}</div>'
    items = "".join(f"<li>{escape(_called(samples, j))} <small>{s:.2f}</small></li>" for j, s in similar)
    return f'<p><strong>{escape(_called(samples, query))}</strong></p><ol class="words-of">{items}</ol>'


def _shown(samples: Samples, i: int, caption: str, role: str) -> str:
    return f"<figure>{_thumb(samples, i, role)}<figcaption>{escape(caption)}</figcaption></figure>"


def _thumb(samples: Samples, i: int, role: str) -> str:
    columns = sheet_columns(len(samples))
    words = escape(f"{role} {_called(samples, i)}".strip())
    return f'<span class="thumb" role="img" aria-label="{words}" style="--c:{i % columns};--r:{i // columns}"></span>'


def _pairs(samples: Samples, pairs: NDArray[Any], similarity: NDArray[Any]) -> str:
    items = ""
    pictured, crossed = bool(samples.sheet.size), bool(samples.crossed)
    for (i, j), alike in zip(pairs.tolist(), similarity.tolist(), strict=True):
        sides = []
        for place, k in enumerate((i, j)):
            words = _called(samples, k) if crossed or not pictured else _label(samples, k) or str(samples.names[k])
            caption = f"<figcaption>{escape(_cut(words))}</figcaption>"
            picture = _thumb(samples, k, "") if pictured and not (crossed and place) else ""
            if crossed and pictured:
                caption = f"<figcaption>{escape(_cut(str(samples.texts[k])))}</figcaption>" if place else ""
            sides.append(f"<figure>{picture}{caption}</figure>")
        items += f'<li class="pair"><div class="two">{"".join(sides)}</div><small>similarity {alike:.2f}</small></li>'
    kind = "pairs" if pictured else "pairs words"
    return f'<ul class="{kind}">{items}</ul>' if items else ""


def _label(samples: Samples, i: int) -> str:
    return str(samples.classes[samples.labels[i]]) if samples.labels[i] >= 0 else ""


def _called(samples: Samples, i: int) -> str:
    return ": ".join(word for word in (_label(samples, i), str(samples.texts[i]) or str(samples.names[i])) if word)


def _cut(text: str) -> str:
    return text if len(text) <= _TITLE else f"{text[: _TITLE - 1]}…"


def _select(name: str, words: str, options: list[str]) -> str:
    choices = "".join(f'<option value="{escape(option)}">{escape(option)}</option>' for option in options)
    return f'<label>{words} <select id="{name}">{choices}</select></label>'


def _rounded(values: NDArray[Any]) -> list[float]:
    return [float(f"{value:.4g}") for value in values.tolist()]
