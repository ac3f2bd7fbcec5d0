"""How metrics are written: shares in percent, all others as numbers. Needs no torch."""

# Decimals of metrics that are not shares, by the words before a comma.
_DECIMALS = dict.fromkeys(("alignment", "uniformity", "RankMe", "LiDAR", "participation ratio", "hubness"), 2)
_DECIMALS |= {"median rank": 1, "mean rank": 1, "Spearman": 3, "Pearson": 3}


def decimals(metric: str) -> int | None:
    """Of a metric that is not a share; None for shares."""
    return _DECIMALS.get(metric.partition(",")[0])


def metric_text(metric: str, value: float) -> str:
    """
    >>> metric_text("RankMe", 12.345), metric_text("median rank, image to text", 3.0), metric_text("accuracy", 0.5)
    ('12.35', '3.0', '50.0 %')
    """
    places = decimals(metric)
    return percent(value) if places is None else f"{value:.{places}f}"


def percent(value: float) -> str:
    """
    >>> percent(0.8312)
    '83.1 %'
    """
    return f"{100 * value:.1f} %"
