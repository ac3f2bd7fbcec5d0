"""How metrics are written: shares in percent, all others as numbers. Needs no torch."""

from dataclasses import dataclass

MOST_DECIMALS = 12


@dataclass(frozen=True)
class MetricStyle:
    """What a protocol says of one of its metrics.

    Attributes:
        decimals: places of a metric that is no share; None: a share, in percent.
        less_is_better: whether the smaller of two values is the better one.
        least: the smallest value of a share.
    """

    decimals: int | None = None
    less_is_better: bool = False
    least: float = 0.0

    @classmethod
    def read(cls, content: object) -> "MetricStyle":
        """The style that a file states, which may be anyone's."""
        match content:
            case {
                "decimals": None | int() as decimals,
                "less_is_better": bool(less),
                "least": int() | float() as least,
            }:
                if decimals is None or 0 <= decimals <= MOST_DECIMALS:
                    return cls(decimals, less, least)
        raise ValueError(f"the style of a metric is {content!r:.80}, expected decimals, less_is_better and least")


SHARE = MetricStyle()


def metric_text(value: float, decimals: int | None) -> str:
    """
    >>> metric_text(12.345, 2), metric_text(3.0, 1), metric_text(0.5, None)
    ('12.35', '3.0', '50.0 %')
    """
    return percent(value) if decimals is None else f"{value:.{decimals}f}"


def percent(value: float) -> str:
    """
    >>> percent(0.8312)
    '83.1 %'
    """
    return f"{100 * value:.1f} %"
