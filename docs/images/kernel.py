"""The picture of docs/concepts/kernel.md: `python docs/images/kernel.py` writes kernel.svg beside this file."""

from pathlib import Path

SIDE, TILES = 44, 6  # of a tile in pixels; of the matrix in tiles
INK, QUIET, WORK, DONE, KEPT = "#24292f", "#d0d7de", "#f2a93b", "#9cc9a5", "#6a9fd4"


def box(x: float, y: float, width: float, height: float, fill: str, stroke: str = INK) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}" stroke="{stroke}"/>'


def text(x: float, y: float, words: str, size: int = 13, anchor: str = "start") -> str:
    lines = words.split("\n")
    spans = "".join(f'<tspan x="{x}" dy="{0 if i == 0 else size + 3}">{line}</tspan>' for i, line in enumerate(lines))
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{INK}">{spans}</text>'


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{INK}" stroke-width="1.5" marker-end="url(#head)"/>'


def forward(x: float, y: float) -> list[str]:
    """Tiles on and above the diagonal; one of them gives row sums and column sums."""
    parts = [text(x, y - 34, "Forward: one program per tile", 15)]
    for i in range(TILES):
        for j in range(TILES):
            fill = WORK if (i, j) == (1, 3) else DONE if j >= i else "#ffffff"
            parts.append(box(x + j * SIDE, y + i * SIDE, SIDE, SIDE, fill, INK if j >= i else QUIET))
    below = y + TILES * SIDE
    parts += [
        text(x - 8, y + 1.6 * SIDE, "queries", anchor="end"),
        text(x + 3.5 * SIDE, y - 8, "keys", anchor="middle"),
        box(x + TILES * SIDE + 40, y + SIDE, 16, SIDE, KEPT),
        arrow(x + 4 * SIDE, y + 1.5 * SIDE, x + TILES * SIDE + 36, y + 1.5 * SIDE),
        text(x + TILES * SIDE + 64, y + 1.4 * SIDE, "row sums\nof the tile"),
        box(x + 3 * SIDE, below + 30, SIDE, 16, KEPT),
        arrow(x + 3.5 * SIDE, y + 2 * SIDE, x + 3.5 * SIDE, below + 26),
        text(x + 4 * SIDE + 8, below + 43, "column sums of the tile"),
        text(
            x,
            below + 76,
            "Similarities stay in registers. Of rows with themselves the\ngreen half is enough, as drawn here.",
        ),
    ]
    return parts


def backward(x: float, y: float) -> list[str]:
    """A block of rows goes along the keys; its gradient stays with it."""
    parts = [text(x, y - 34, "Backward: one program per block of rows", 15)]
    for i in range(TILES):
        for j in range(TILES):
            mine = i == 1
            fill = WORK if mine and j == 3 else DONE if mine and j < 3 else "#ffffff"
            parts.append(box(x + j * SIDE, y + i * SIDE, SIDE, SIDE, fill, INK if mine else QUIET))
    end = x + TILES * SIDE
    parts += [
        text(x + 3.5 * SIDE, y - 8, "keys", anchor="middle"),
        arrow(x + 3.1 * SIDE, y + 1.5 * SIDE, x + 5.8 * SIDE, y + 1.5 * SIDE),
        box(end + 30, y + SIDE, 90, SIDE, KEPT),
        text(end + 75, y + 1.58 * SIDE, "gradient", anchor="middle"),
        text(end + 30, y + 2.4 * SIDE, "+= W · keys\nof each tile"),
        text(
            x,
            y + TILES * SIDE + 30,
            "A tile is computed again, turned into weights W by the sums of\n"
            "the forward pass, and multiplied by the keys. No other program\n"
            "writes this block: no atomics, the same bits every time.",
        ),
    ]
    return parts


def main() -> None:
    head = (
        '<marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="{INK}"/></marker>'
    )
    parts = [*forward(90, 70), *backward(560, 70)]
    page = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 440" font-family="sans-serif" role="img">\n'
        f'<defs>{head}</defs>\n<rect width="1000" height="440" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )
    Path(__file__).with_suffix(".svg").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
