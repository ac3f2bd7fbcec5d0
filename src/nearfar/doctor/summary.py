"""The diagnosis of a data set in sentences and in files."""

import csv
import io
import json
from collections import Counter
from pathlib import Path

from nearfar.data.cache import write_file
from nearfar.data.dataset import counted
from nearfar.doctor.examine import LONG, Diagnosis
from nearfar.search.duplicates import write_groups

UNBALANCED = 10  # ratio of the largest class to the smallest
FEW = 5  # images of a class
NAMED = 3  # images that cannot be read


def summary(found: Diagnosis) -> list[str]:
    """A sentence for each thing worth knowing; the first says how many images there are."""
    kinds = Counter(problem.kind for problem in found.problems)
    lines = [_first(found)]
    if kinds["broken"]:
        broken = [problem for problem in found.problems if problem.kind == "broken"]
        named = ", ".join(f"{each.path} ({each.detail})" for each in broken[:NAMED])
        more = f" and {len(broken) - NAMED:,} more" if len(broken) > NAMED else ""
        lines.append(f"{kinds['broken']:,} cannot be read; training skips them: {named}{more}.")
    if found.repeated:
        lines.append(
            f"{found.repeated:,} are further copies of another: {counted(found.exact_groups, 'group')} of equal files, "
            f"{found.near_groups:,} of near-duplicates. Training would push copies apart; --group prevents it."
        )
    else:
        lines.append("No duplicates.")
    explained = {
        "several pages": "have several pages or frames: only the first is read",
        "label conflict": "have a duplicate with another label",
        "tiny": "are tiny: enlarging them adds blur and no detail",
        "one colour": "have one color everywhere: they teach nothing",
        "long": f"are at least {LONG:g} times as long as wide: the center crop drops most of them",
    }
    lines += [f"{kinds[kind]:,} {text}." for kind, text in explained.items() if kinds[kind]]
    lines += _class_balance(found.classes)
    if found.tested is not None:
        exact = sum(leak.exact for leak in found.leaks)
        lines.append(
            f"{len(found.leaks):,} of {found.tested:,} test images are in the training data, {exact:,} of them as "
            "equal files: scores would be too high. Remove them from one of the two."
            if found.leaks
            else f"None of the {found.tested:,} test images is in the training data."
        )
    return lines


def _first(found: Diagnosis) -> str:
    """The verdict: whether there is anything to do before training."""
    read = f"{found.samples:,} images, all readable" if len(found.names) == found.samples else None
    read = read or f"{len(found.names):,} of {found.samples:,} images are readable"
    clean = not (found.problems or found.repeated or found.leaks)
    return f"No problems found: {read}." if clean else f"Problems found: {read}."


def _class_balance(classes: dict[str, int]) -> list[str]:
    if not classes:
        return []
    (most, high), (least, low) = max(classes.items(), key=lambda c: c[1]), min(classes.items(), key=lambda c: c[1])
    span = f", from {low:,} ({least}) to {high:,} images ({most})" if low < high else f" of {low:,} images each"
    lines = [f"{len(classes):,} classes{span}." if len(classes) > 1 else f"One class ({most}) of {high:,} images."]
    if high >= UNBALANCED * low:
        lines.append(f"The largest class has {high / low:.0f} times as many as the smallest: use balanced accuracy.")
    few = sum(count < FEW for count in classes.values())
    return lines + ([f"{few:,} classes have fewer than {FEW} images."] if few else [])


def write_findings(found: Diagnosis, folder: Path) -> dict[str, Path]:
    """Write `report.json` and tables of problems, groups (for `nearfar train --group`) and leaks; their paths."""
    for old in ("problems.csv", "groups.csv", "leaks.csv"):
        (folder / old).unlink(missing_ok=True)
    report = {
        "summary": summary(found),
        "samples": found.samples,
        "readable": len(found.names),
        "problems": dict(Counter(problem.kind for problem in found.problems)),
        "exact_groups": found.exact_groups,
        "near_groups": found.near_groups,
        "repeated": found.repeated,
        "near_duplicates": {
            "method": "cosine of the images at 16 × 16 RGB, each channel minus its mean; a perceptual hash of 256 bits",
            "threshold": found.threshold,
        },
        "classes": found.classes,
        "leaks": len(found.leaks),
        "tested": found.tested,
    }
    written = {"report": write_file(folder / "report.json", json.dumps(report, indent=1, ensure_ascii=False))}
    if found.repeated:
        written["groups"] = folder / "groups.csv"
        write_groups(written["groups"], found.names, found.groups)
    problems = [(p.path, p.kind, p.detail) for p in found.problems]
    leaks = [(leak.test, leak.train, "equal file" if leak.exact else "near-duplicate") for leak in found.leaks]
    for name, header, rows in (("problems", "path,problem,detail", problems), ("leaks", "test,train,how", leaks)):
        if rows:
            table = io.StringIO(newline="")
            csv.writer(table).writerows([header.split(","), *rows])
            written[name] = write_file(folder / f"{name}.csv", table.getvalue())
    return written
