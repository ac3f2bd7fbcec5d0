"""`nearfar embed`: write the vector of every sample of a data set to a file."""

import argparse

from nearfar.cli.parser import Parser
from nearfar.data.names import check_run_there, check_there
from nearfar.weights.names import EXPECTED


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar embed",
        description="Write path, label and vector of every sample to a file, chunk by chunk. After an interruption, "
        "the same command continues after the last finished chunk.",
    )
    parser.add_argument("run", help=f"the encoder: {EXPECTED}")
    parser.add_argument("data", help="a folder, a table, arrays, sentences, 'glyphs', or a torchvision data set")
    parser.add_argument("-o", "--out", required=True, help="a .parquet (best for millions of rows), .npz or .npy")
    parser.add_argument("--dtype", choices=["float32", "float16"], default="float32", help="type of the stored numbers")
    parser.add_argument("--dim", type=int, help="first numbers of each vector to keep (default: all)")
    parser.add_argument("--labels", action="store_true", help="sub-folders are labels")
    parser.add_argument("--split", help="a part of the data, such as test")
    parser.add_argument("--size", type=int, help="side at which files are decoded (default: 1.15 × the encoder's)")
    parser.add_argument("--image-size", type=int, help="input size in pixels of encoders of other libraries")
    parser.add_argument("--batch-size", type=int, default=256, help="samples in a forward pass (default: 256)")
    parser.add_argument("--chunk", type=int, default=16_384, help="rows held in memory at most (default: 16384)")
    parser.add_argument("--device", default="auto", help="where to compute (default: the accelerator, else cpu)")
    parser.add_argument("--frames", action="store_true", help="a row for every frame in time, for runs on sequences")
    options = parser.parse_args(arguments)
    check_run_there(options.run)
    check_there(options.data, run=options.run)

    from nearfar.data.dataset import how_many
    from nearfar.model.load import load
    from nearfar.search.embed import embed

    if options.frames:
        return frames(options)
    done = embed(
        load(options.run, dim=options.dim, image_size=options.image_size),
        options.data,
        options.out,
        dtype=options.dtype,
        batch_size=options.batch_size,
        chunk=options.chunk,
        device=options.device,
        size=options.size,
        split=options.split,
        labels=options.labels or None,
    )
    if done.resumed:
        print(f"{done.resumed:,} rows are from an earlier, interrupted call")
    if done.skipped:
        print(f"{how_many(done.skipped, 'file')} could not be read, see {done.path}.skipped.txt")
    print(f"{done.rows:,} vectors of {done.dim} numbers: {done.path}")
    return 0


def frames(options: argparse.Namespace) -> int:
    from nearfar.data.dataset import how_many
    from nearfar.model.load import load
    from nearfar.search.frames import embed_frames

    model = load(options.run)
    if not model.has_frames:
        raise ValueError(f"{options.run} has no frames, expected a run on series or sounds; leave --frames out")
    data = model.open(options.data, options.split, labels=options.labels or None)
    batch_size = min(options.batch_size, 64)
    path, rows = embed_frames(model, data, options.out, dtype=options.dtype, batch_size=batch_size, name=options.data)
    if data.skipped:
        print(f"{how_many(data.skipped, 'sample')} could not be read, see {path}.skipped.txt")
    print(f"{rows:,} frames of {len(data):,} samples: {path}")
    return 0
