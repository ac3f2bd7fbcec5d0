"""Average precision of boxes, as loops."""

Box = tuple[float, float, float, float]
Detection = tuple[int, float, Box]  # image, score, box
Truth = tuple[int, Box]


def overlap(a: Box, b: Box) -> float:
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    both = width * height
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def average_precision(found: list[Detection], truth: list[Truth], threshold: float) -> float:
    """One class: detections by falling score, each takes the free true box of its image that it overlaps most;
    precision made monotone, read at 101 recalls.
    """
    taken: set[int] = set()
    hits: list[bool] = []
    for image, _, box in sorted(found, key=lambda detection: -detection[1]):
        best, most = None, threshold
        for number, (where, true) in enumerate(truth):
            if where == image and number not in taken and overlap(box, true) >= most:
                best, most = number, overlap(box, true)
        hits.append(best is not None)
        if best is not None:
            taken.add(best)
    points = [(sum(hits[: k + 1]) / len(truth), sum(hits[: k + 1]) / (k + 1)) for k in range(len(hits))]
    total = 0.0
    for step in range(101):
        total += max((precision for recall, precision in points if recall >= step / 100), default=0.0)
    return total / 101
