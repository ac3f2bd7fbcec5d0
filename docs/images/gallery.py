"""The pictures of docs/gallery.md.

python docs/images/gallery.py STORY --data FOLDER     # photos, words, sentences, series or detection

photos and words: the story's commands are run in FOLDER, which holds the data under the names of the page, and what
they drew is made small; what is there already is not made again. The others are bars of the numbers in
benchmarks/results that the page names, and need no FOLDER.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from PIL import Image

from nearfar.recipes import recipe

HERE = Path(__file__).parent
PAGE, RESULTS = HERE.parent / "gallery.md", HERE.parents[1] / "benchmarks" / "results"
DRAWN = {"photos": "photos.png", "words": "runs/words/evaluation/*/knn-trained.png"}
WIDTH = 1100  # pixels at most
Rows = dict[str, list[float]]


def commands(story: str) -> list[list[str]]:
    """Those of the first block of code below the heading of a story."""
    section = re.search(rf'<a id="{story}"></a>.*?```sh\n(.*?)```', PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert section is not None, f"{PAGE} has no story {story}"
    lines = section[1].replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("nearfar ")]


def table(file: str, heading: str) -> Rows:
    """The percentages of each row of the first table whose heading ends so."""
    lines = (RESULTS / file).read_text(encoding="utf-8").splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("|") and line.endswith(heading))
    rows: Rows = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        name, *cells = (cell.strip(" *") for cell in line.strip("|").split("|"))
        found = [re.match(r"[\d.]+", cell) for cell in cells]
        rows[name.split(" (")[0]] = [float(each[0]) if each else float("nan") for each in found]
    return rows


def bars(story: str, groups: dict[str, dict[str, float]], ylabel: str) -> None:
    """Bars from 0 to 100 %, those of one group beside each other, each with its number."""
    mpl.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axis = plt.subplots(figsize=(8.6, 3.2), dpi=120, layout="constrained")
    names = list(next(iter(groups.values())))
    width = 0.8 / len(names)
    for place, (name, color) in enumerate(zip(names, ("#1f66b0", "#8fb5dc", "#7a828c", "#c3c8ce"), strict=False)):
        at = [group + (place - (len(names) - 1) / 2) * width for group in range(len(groups))]
        drawn = axis.bar(at, [group[name] for group in groups.values()], 0.92 * width, label=name, color=color)
        axis.bar_label(drawn, fmt="%.0f" if len(groups) > 3 else "%.1f", fontsize=8 if len(groups) > 3 else 10)
    axis.set(xticks=range(len(groups)), ylim=(0, 105), ylabel=ylabel)
    axis.set_xticks(
        range(len(groups)),
        list(groups),
        **({"rotation": 20, "ha": "right", "rotation_mode": "anchor"} if len(groups) > 3 else {}),
    )
    axis.legend(ncols=len(names), frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1))
    figure.savefig(HERE / f"gallery-{story}.png")


def chart(story: str) -> None:
    if story == "series":
        rows = table("series.md", "| DTW, s |")
        who = ("nearfar", "untrained", "DTW", "Euclid")
        found = {name: dict(zip(who, values, strict=False)) for name, values in rows.items()}
        bars(story, found, "1-NN accuracy, %")
    elif story == "detection":
        rows, who = table("detection.md", "| pretrained | from scratch |"), ("pretrained", "from scratch")
        bars(
            story, {name: dict(zip(who, values, strict=False)) for name, values in rows.items()}, "average precision, %"
        )
    else:
        names = {"adapted": None, "MiniLM": "untrained", "tf-idf": "tf-idf"}
        found = {}
        for number in recipe("clinc150-minilm").numbers:
            found[number.what] = {name: number.beside[who] if who else number.value for name, who in names.items()}
        bars(story, found, "accuracy, %")


def shrunk(drawn: Path, out: Path) -> None:
    with Image.open(drawn) as found:
        picture = found.convert("RGB")
    picture.thumbnail((WIDTH, 2 * WIDTH))
    picture.quantize(128, dither=Image.Dither.NONE).save(out, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("story", choices=("photos", "words", "sentences", "series", "detection"))
    parser.add_argument("--data", type=Path, default=Path(), help="where the commands run (default: here)")
    arguments = parser.parse_args()
    out = HERE / f"gallery-{arguments.story}.png"
    if arguments.story in DRAWN:
        pattern = DRAWN[arguments.story]
        for words in [] if list(arguments.data.glob(pattern)) else commands(arguments.story):
            print("$", shlex.join(words), flush=True)
            environment = {**os.environ, "COLUMNS": "80"}
            subprocess.run([sys.executable, "-m", *words], check=True, cwd=arguments.data, env=environment)
        shrunk(next(arguments.data.glob(pattern)), out)
    else:
        chart(arguments.story)
    print(f"{out}: {out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
