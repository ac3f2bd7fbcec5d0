"""The sections of the page about single samples: the map, nearest neighbors, and the negatives most alike."""

from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.dataset import counted
from nearfar.messages import shorten
from nearfar.metric_text import percent
from nearfar.report.markup import Charts, data_address, sentence
from nearfar.report.samples import ReportSamples
from nearfar.report.thumbnail_sheet import sheet_columns, sheet_side

_MAX_CAPTION = 60  # characters
_CANVAS = (
    '<canvas id="map-canvas" tabindex="0" role="application" aria-label="Map of the samples" '
    'aria-describedby="map-keys"></canvas>'
)
_KEYS = (
    '<p class="quiet" id="map-keys">Keys on the map: arrows move, + and − zoom, 0 shows the whole map, Enter selects '
    "the sample nearest to the center.</p>"
)
_CONTROLS = (
    '<label>Show <select id="map-only"><option value="">all</option></select></label>'
    '<label>Sample <input type="number" id="map-sample" min="1" max="{count}"></label>'
    '<span class="zoom" role="group" aria-label="Zoom of the map">'
    '<button type="button" id="map-in" aria-label="Zoom in">+</button>'
    '<button type="button" id="map-out" aria-label="Zoom out">−</button>'
    '<button type="button" id="map-whole">Whole</button></span><output id="map-count" class="quiet"></output>'
)


def thumbnail_style(samples: ReportSamples | None) -> str:
    """The CSS rule with the one image that holds all thumbnails."""
    if samples is None or not samples.sheet.size:
        return ""
    content = samples.sheet.tobytes()
    small = "image-rendering: pixelated; " if sheet_side(content, len(samples)) <= 32 else ""
    columns = sheet_columns(len(samples))
    return f".thumb {{ {small}--columns: {columns}; background-image: url({data_address(content)}); }}\n"


def map_section(samples: ReportSamples, charts: Charts) -> str:
    """The map with its controls."""
    places = {"PCA": samples.components[:, :2]} | ({"UMAP": samples.umap} if len(samples.umap) else {})
    clusters = np.bincount(samples.clusters, minlength=1)
    data = {
        "kind": "map",
        "places": {name: {"x": _rounded(at[:, 0]), "y": _rounded(at[:, 1])} for name, at in places.items()},
        "label": samples.labels.tolist(),
        "classes": samples.classes.tolist(),
        "cluster": samples.clusters.tolist(),
        "clusters": clusters.tolist(),
        "names": samples.names.tolist(),
        "texts": samples.texts.tolist(),
        "nearest": samples.nearest.tolist(),
        "similarity": np.round(samples.similarity.astype(np.float64), 3).tolist(),
        "columns": sheet_columns(len(samples)) if samples.sheet.size else 0,
        "start": int(samples.random[0]) if len(samples.random) else 0,
    }
    name, split, total = samples.data.tolist()
    share = [percent(float(value)) for value in samples.variance[:2]]
    caption = (
        f"{len(samples):,} of {counted(int(total), f'{split} sample')} of {name}. PCA: the two principal components of "
        f"the unit embeddings, {share[0]} and {share[1]} of the variance"
        + ("; UMAP keeps neighbourhoods" if len(samples.umap) else "")
        + f". {counted(len(clusters), 'cluster')} by k-means. Point at a sample or enter its number to see it and its "
        "nearest neighbors; drag to move."
    )
    colors = ["label", "cluster"] if (samples.labels >= 0).any() else ["cluster"]
    controls = _select("map-place", "Place by", list(places)) + _select("map-colour", "Color by", colors)
    controls += _CONTROLS.format(count=len(samples))
    absent = "<noscript><p>The map needs JavaScript; the neighbours below do not.</p></noscript>"
    return (
        f'{absent}<div class="controls">{controls}</div><div class="legend" id="map-legend" role="group" '
        f'aria-label="Groups of the map"></div><figure><div class="spread">{charts.place(_CANVAS, data, "cloud")}'
        f'<div class="detail" id="map-detail" aria-live="polite"></div></div>'
        f"{_KEYS}<figcaption>{escape(caption)}</figcaption></figure>"
    )


def neighbors_section(samples: ReportSamples) -> str:
    """The nearest neighbors of some random samples, and of those with the worst neighbours."""
    explained = "Each row: the query, then its nearest neighbors among the samples of the map, with cosine similarity."
    worst = "farthest from all others"
    if _is_labelled(samples):
        known = samples.labels >= 0
        hits = (samples.labels[samples.nearest[known]] == samples.labels[known][:, None]).mean()
        k, worst = samples.nearest.shape[1], "fewest neighbours of their own label"
        explained += f" Over all samples, {percent(float(hits))} of the {k} nearest have the same label."
    random, bad = ("".join(_neighbors(samples, i) for i in rows.tolist()) for rows in (samples.random, samples.worst))
    return f"{sentence(explained)}<h3>Random</h3>{random}<h3>Worst: {worst}</h3>{bad}"


def negatives_section(samples: ReportSamples) -> str:
    """Negative pairs that are very similar: hard ones, and suspected false ones."""
    crossed, labelled = bool(samples.crossed), _is_labelled(samples)
    pairs, above, same = (int(n) for n in samples.counts)
    median = float(samples.positive)
    what = "an image and another text" if crossed else "two samples"
    text = f"Pairs of {what} that a contrastive loss pushes apart. "
    measured = bool(np.isfinite(median)) and pairs > 0
    if measured:
        own = "an image and its own text" if crossed else "two views of one sample"
        text += f"{above:,} of {pairs:,} ({100 * above / pairs:.2g} %) are at least as similar as the median of {own} "
        text += f"({median:.2f})" + (f"; {percent(same / above)} of them share a label." if labelled and above else ".")
    else:
        text += "The similarity of two views of one sample was not measured."
    kind = ", of different labels" if labelled else ", below the median positive" if measured else ""
    reason = ": same label" if labelled else ": above the median positive" if measured else ""
    hard = _pairs(samples, samples.hard, samples.hard_similarity) or sentence("There are none.")
    suspected = _pairs(samples, samples.suspected, samples.suspected_similarity)
    if suspected:
        suspected += sentence("If they are the same, give them one group: nearfar doctor finds copies for --group.")
    else:
        suspected = sentence("There are none." if reason else "Unknown without the similarity of views.")
    return (
        f"{sentence(text)}<h3>Hardest negatives{kind}</h3>{hard}<h3>Suspected false negatives{reason}</h3>{suspected}"
    )


def _is_labelled(samples: ReportSamples) -> bool:
    return len(np.unique(samples.labels[samples.labels >= 0])) > 1


def _neighbors(samples: ReportSamples, query: int) -> str:
    similar = list(zip(samples.nearest[query].tolist(), samples.similarity[query].tolist(), strict=True))
    if not samples.sheet.size:
        items = "".join(f"<li>{escape(_title(samples, j))} <small>{s:.2f}</small></li>" for j, s in similar)
        return f'<p><strong>{escape(_title(samples, query))}</strong></p><ol class="words-of">{items}</ol>'
    captions = [(query, "Query", _label(samples, query) or "query")]
    captions += [(j, "Neighbour", f"{_label(samples, j)} {s:.2f}".strip()) for j, s in similar]
    figures = "".join(
        f"<figure>{_thumbnail(samples, i, role)}<figcaption>{escape(caption)}</figcaption></figure>"
        for i, role, caption in captions
    )
    label = f"Neighbours of sample {query + 1}"
    return f'<div class="strip scroll" tabindex="0" role="group" aria-label="{label}">{figures}</div>'


def _thumbnail(samples: ReportSamples, i: int, role: str) -> str:
    columns = sheet_columns(len(samples))
    alt = escape(f"{role} {_title(samples, i)}".strip())
    return f'<span class="thumb" role="img" aria-label="{alt}" style="--c:{i % columns};--r:{i // columns}"></span>'


def _pairs(samples: ReportSamples, pairs: NDArray[Any], similarity: NDArray[Any]) -> str:
    items, pictured, crossed = "", bool(samples.sheet.size), bool(samples.crossed)
    for pair, alike in zip(pairs.tolist(), similarity.tolist(), strict=True):
        sides = ""
        for side, i in enumerate(pair):
            if crossed and pictured:  # the image of one beside the text of the other
                picture, text = ("", str(samples.texts[i])) if side else (_thumbnail(samples, i, ""), "")
            else:
                picture = _thumbnail(samples, i, "") if pictured else ""
                text = _title(samples, i) if not pictured else _label(samples, i) or str(samples.names[i])
            caption = f"<figcaption>{escape(shorten(text, _MAX_CAPTION))}</figcaption>" if text else ""
            sides += f"<figure>{picture}{caption}</figure>"
        items += f'<li class="pair"><div class="two">{sides}</div><small>similarity {alike:.2f}</small></li>'
    return f'<ul class="{"pairs" if pictured else "pairs words"}">{items}</ul>' if items else ""


def _label(samples: ReportSamples, i: int) -> str:
    return str(samples.classes[samples.labels[i]]) if samples.labels[i] >= 0 else ""


def _title(samples: ReportSamples, i: int) -> str:
    return ": ".join(part for part in (_label(samples, i), str(samples.texts[i]) or str(samples.names[i])) if part)


def _select(name: str, title: str, options: list[str]) -> str:
    choices = "".join(f'<option value="{escape(option)}">{escape(option)}</option>' for option in options)
    return f'<label>{title} <select id="{name}">{choices}</select></label>'


def _rounded(values: NDArray[Any]) -> list[float]:
    return [float(f"{value:.4g}") for value in values.tolist()]
