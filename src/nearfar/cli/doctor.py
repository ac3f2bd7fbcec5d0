"""`nearfar doctor`: check a data set before a run."""

import shlex
from pathlib import Path

from nearfar.cli.parser import Parser


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar doctor",
        description="Check every image of a data set: broken files, exact and near duplicates, tiny or one-colour "
        "images, class balance and, with --test, leaks. No encoder is needed: near-duplicates are found by the "
        "cosine of the images at 16 × 16 pixels, which ignores size, format, compression, brightness and contrast, "
        "but misses crops and mirroring.",
    )
    parser.add_argument("data", help="a folder, a table, arrays, 'glyphs', or a torchvision data set by name")
    parser.add_argument("--test", help="data that must not be in it")
    parser.add_argument("--labels", action="store_true", help="sub-folders are labels")
    parser.add_argument("--split", help="a part of the data, such as train")
    parser.add_argument("--test-split", help="a part of the test data")
    parser.add_argument("--tiny", type=int, default=24, help="pixels of the short side of a tiny image (default: 24)")
    parser.add_argument("--index", choices=["exact", "ivf", "hnsw"], default="exact", help="ivf and hnsw need faiss")
    parser.add_argument("-o", "--out", default="doctor", help="folder for the findings (default: doctor)")
    options = parser.parse_args(arguments)

    from nearfar.doctor import examine
    from nearfar.doctor.summary import summary, write_findings
    from nearfar.modalities.image.data.opening import find_images

    labels = options.labels or None
    train = find_images(options.data, split=options.split, labels=labels)
    test = None if options.test is None else find_images(options.test, split=options.test_split)
    found = examine(train, test, tiny=options.tiny, index=options.index)
    for line in summary(found):
        print(line)
    written = write_findings(found, Path(options.out))
    for name, path in written.items():
        print(f"{name}: {path}")
    if "groups" in written:
        words = shlex.join(["nearfar", "train", "--data", options.data, "--group", str(written["groups"])])
        print(f"to train without copies as negatives: {words}")
    return 0
