"""What the doctor found, in plain words and in files."""

import csv
import json
from collections import Counter
from pathlib import Path

from nearfar.data.cache import replacing
from nearfar.data.dataset import counted
from nearfar.doctor.examine import Findings
from nearfar.search.duplicates import write_groups

UNBALANCED = 10  # times as many in the largest class as in the smallest
FEW = 5  # pictures of a class


def summary(found: Findings) -> list[str]:
    """A line for each thing worth knowing; the first says how much there is."""
    kinds = Counter(problem.kind for problem in found.problems)
    lines = [f"{found.samples:,} images, {len(found.names):,} of them readable."]
    if kinds["broken"]:
        lines.append(f"{kinds['broken']:,} cannot be read; training leaves them out.")
    if found.repeated:
        lines.append(
            f"{found.repeated:,} are one more copy of another: {counted(found.exact_groups, 'group')} of equal files, "
            f"{found.near_groups:,} of near-duplicates. Training would push copies apart; --group keeps them together."
        )
    else:
        lines.append("No duplicates.")
    if kinds["label conflict"]:
        lines.append(f"{kinds['label conflict']:,} have a duplicate with another label.")
    if kinds["tiny"]:
        lines.append(f"{kinds['tiny']:,} are tiny: enlarging them adds blur and no detail.")
    if kinds["even"]:
        lines.append(f"{kinds['even']:,} are one colour all over: nothing can be learned from them.")
    if kinds["long"]:
        lines.append(f"{kinds['long']:,} are at least three times as long as wide: the middle square leaves much out.")
    lines += _balance(found.classes)
    if found.tested is not None:
        exact = sum(leak.exact for leak in found.leaks)
        lines.append(
            f"{len(found.leaks):,} of {found.tested:,} test images are in the training data, {exact:,} of them as "
            "equal files: their scores would flatter. Take them out of one of the two."
            if found.leaks
            else f"None of the {found.tested:,} test images is in the training data."
        )
    return lines


def _balance(classes: dict[str, int]) -> list[str]:
    if not classes:
        return []
    (most, high), (least, low) = max(classes.items(), key=lambda c: c[1]), min(classes.items(), key=lambda c: c[1])
    span = f", from {low:,} ({least}) to {high:,} images ({most})" if low < high else f" of {low:,} images each"
    lines = [f"{len(classes):,} classes{span}." if len(classes) > 1 else f"One class ({most}) of {high:,} images."]
    if high >= UNBALANCED * low:
        lines.append(
            f"The largest class has {high / low:.0f} times as many as the smallest: look at balanced accuracy."
        )
    few = sum(count < FEW for count in classes.values())
    if few:
        lines.append(f"{few:,} classes have fewer than {FEW} images.")
    return lines


def write_findings(found: Findings, folder: Path) -> dict[str, Path]:
    """`report.json`, and the tables of what was found: problems, groups (for `nearfar train --group`), leaks."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in ("problems.csv", "groups.csv", "leaks.csv"):
        (folder / old).unlink(missing_ok=True)
    written = {"report": folder / "report.json"}
    report = {
        "summary": summary(found),
        "samples": found.samples,
        "readable": len(found.names),
        "problems": dict(Counter(problem.kind for problem in found.problems)),
        "exact_groups": found.exact_groups,
        "near_groups": found.near_groups,
        "repeated": found.repeated,
        "near_duplicates": {
            "method": "cosine of the pictures at 16 × 16 RGB, each channel minus its mean; threshold from the data",
            "threshold": found.threshold,
        },
        "classes": found.classes,
        "leaks": len(found.leaks),
        "tested": found.tested,
    }
    with replacing(written["report"]) as fresh:
        fresh.write_text(json.dumps(report, indent=1, ensure_ascii=False), encoding="utf-8")
    if found.repeated:
        written["groups"] = folder / "groups.csv"
        write_groups(written["groups"], found.names, found.groups)
    problems = [(p.path, p.kind, p.detail) for p in found.problems]
    leaks = [(leak.test, leak.train, "equal file" if leak.exact else "near-duplicate") for leak in found.leaks]
    for name, header, rows in (("problems", "path,problem,detail", problems), ("leaks", "test,train,how", leaks)):
        if rows:
            written[name] = folder / f"{name}.csv"
            with replacing(written[name]) as fresh, fresh.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([header.split(","), *rows])
    return written
