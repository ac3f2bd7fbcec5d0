"""`nearfar shard`: write images as WebDataset tar files, for data beyond one disk."""

import shlex
from pathlib import Path

from nearfar.cli.parser import Parser


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar shard",
        description="Write images with their labels, captions and groups as WebDataset tar files, and index.json, "
        "which lists them. After an interruption, the same command continues after the last finished shard.",
    )
    parser.add_argument("data", help="a folder, a table, arrays, 'glyphs', shards, or a torchvision data set by name")
    parser.add_argument("-o", "--out", required=True, help="folder for the shards")
    parser.add_argument("--samples", type=int, default=10_000, help="maximum of a shard (default: 10000)")
    parser.add_argument("--megabytes", type=float, default=256, help="maximum of a shard (default: 256)")
    parser.add_argument("--labels", action="store_true", help="sub-folders are labels")
    parser.add_argument("--split", help="a part of the data, such as test; the shards are named after it")
    parser.add_argument("--in-order", action="store_true", help="keep the order of the data (default: shuffle)")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the order (default: 0)")
    parser.add_argument(
        "--no-verify", action="store_true", help="read only headers: faster, but truncated images are kept"
    )
    for column in ("path", "label", "caption", "group"):
        parser.add_argument(f"--{column}-column", help="of a table")
    options = parser.parse_args(arguments)
    if options.seed < 0:
        parser.error(f"--seed is {options.seed}, expected at least 0")

    from nearfar.config import kind_of
    from nearfar.data.dataset import Skipped, counted, how_many
    from nearfar.data.sources import check_apart
    from nearfar.modalities.image.data.opening import find_images
    from nearfar.modalities.image.data.shard_writer import write_shards
    from nearfar.modalities.image.data.shards import is_shards
    from nearfar.modalities.sound.data import are_sounds

    kind = "sound" if are_sounds(options.data) else kind_of(options.data, "", None)
    if kind in ("sound", "text") or (kind == "series" and not Path(options.data).is_file()):  # a table may be of images
        raise ValueError(f"{options.data!r} is data of kind {kind}, expected images: only images can be sharded")
    if not is_shards(options.data):
        check_apart(Path(options.out), options.data)
    source = find_images(
        options.data,
        split=options.split,
        labels=options.labels or None,
        path_column=options.path_column,
        label_column=options.label_column,
        caption_column=options.caption_column,
        group_column=options.group_column,
    )
    done = write_shards(
        source,
        Path(options.out),
        name=options.split or "shard",
        samples=options.samples,
        megabytes=options.megabytes,
        seed=None if options.in_order else options.seed,
        verify=not options.no_verify,
    )
    if done.skipped:
        own = [Skipped(name, reason) for name, reason in done.skipped[len(source.skipped) :]]
        count = how_many([*source.skipped, *own])
        print(f"{count} could not be used, samples or captions; index.json in {options.out} lists the reasons")
    print(f"{counted(done.samples, 'sample')} in {counted(len(done.shards), 'shard')}: {options.out}")
    print(f"to train on them: {shlex.join(['nearfar', 'train', '--data', options.out, '--data.stream', 'true'])}")
    return 0
