"""`nearfar doctor`: check a data set before a run."""

import shlex
from pathlib import Path

from nearfar.cli.parser import Parser
from nearfar.data.names import check_run_there, check_there
from nearfar.weights.names import EXPECTED


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar doctor",
        description="Check every image of a data set: broken files, exact and near duplicates, tiny or one-color "
        "images, class balance and, with --test, leaks. Near-duplicates are found by the "
        "cosine of the images at 16 × 16 pixels and a perceptual hash, which ignore size, format, compression, "
        "brightness, contrast and small watermarks; cropped copies are aligned first. Mirrored copies are not found. "
        "With --encoder it also reports labels that are probably wrong, and outliers.",
    )
    parser.add_argument("data", help="a folder, a table, arrays, 'glyphs', or a torchvision data set by name")
    parser.add_argument("--test", help="test data: samples in both are reported as leaks")
    parser.add_argument(
        "--labels",
        "--data.labels",
        nargs="?",
        const="true",
        choices=["true", "leaf", "top", "path"],
        help="which sub-folders are labels (default: as train takes them)",
    )
    for name, what in (("path", "the path of each image"), ("label", "the label")):
        flags = (f"--{name}-column", f"--data.{name}_column", f"--data.{name}-column")
        parser.add_argument(*flags, dest=f"{name}_column", help=f"table column with {what}")
    parser.add_argument("--root", "--data.root", help="folder that the paths of a table start from")
    parser.add_argument("--split", help="a part of the data, such as train")
    parser.add_argument("--test-split", help="a part of the test data")
    parser.add_argument("--tiny", type=int, default=24, help="pixels of the short side of a tiny image (default: 24)")
    parser.add_argument("--index", choices=["exact", "ivf", "hnsw"], default="exact", help="ivf and hnsw need faiss")
    parser.add_argument("--encoder", help=f"judges labels and finds outliers: {EXPECTED}")
    parser.add_argument("-o", "--out", default="doctor", help="folder for the findings (default: doctor)")
    options = parser.parse_args(arguments)
    for data in (options.data, options.test):
        check_there(data)
    check_run_there(options.encoder)

    from nearfar.doctor.audit import audit, write_audit
    from nearfar.doctor.doctor_function import doctor
    from nearfar.model.load import load

    encoder = None if options.encoder is None else load(options.encoder)
    found = doctor(
        options.data,
        test=options.test,
        labels=True if options.labels == "true" else options.labels,
        path_column=options.path_column,
        label_column=options.label_column,
        root=options.root,
        split=options.split,
        test_split=options.test_split,
        tiny=options.tiny,
        index=options.index,
        out=options.out,
    )
    print(found)
    written = found.written
    if "groups" in written:
        words = shlex.join(["nearfar", "train", "--data", options.data, "--group", str(written["groups"])])
        print(f"to train without copies as negatives: {words}")
    if encoder is not None:
        judged = audit(encoder, options.data, **found.reading)
        print(judged.shown())
        for name, where in write_audit(judged, encoder, Path(options.out)).items():
            print(f"{name}: {where}")
    return 0
