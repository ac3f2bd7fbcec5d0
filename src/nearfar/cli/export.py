"""`nearfar export`: write the encoder in a format for other programs."""

from nearfar.cli.parser import Parser
from nearfar.data.names import check_run_there
from nearfar.model.export import FORMATS
from nearfar.weights.names import EXPECTED


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar export",
        description="Write the encoder of a run for other programs. The outputs of graphs and plain weights are "
        "compared with the encoder's before the files are kept.",
    )
    parser.add_argument("run", help=f"the encoder: {EXPECTED}")
    parser.add_argument(
        "--format",
        default="nearfar",
        choices=list(FORMATS),
        help="; ".join(f"{name}: {each.help}" for name, each in FORMATS.items()),
    )
    parser.add_argument("-o", "--out", help="the file or folder (default: RUN/export/...)")
    parser.add_argument("--image-size", type=int, help="input size in pixels of encoders of other libraries")
    parser.add_argument("--licence", help="license of the weights for the card, such as Apache-2.0")
    parser.add_argument("--push", metavar="USER/NAME", help="upload a huggingface folder to the hub, privately")
    options = parser.parse_args(arguments)
    check_run_there(options.run)
    if options.push and options.format != "huggingface":
        parser.error(f"--push needs --format huggingface, not {options.format}")

    from nearfar.model.export.export import export

    about = {"licence": options.licence, "push": options.push, "image_size": options.image_size}
    done = export(options.run, options.format, options.out, **about)
    if done.difference is not None:
        print(f"checked: the outputs differ from the encoder's by at most {done.difference:.1e} (relative)")
    print(f"{options.format}: {done.path}")
    if done.note is not None:
        print(f"note: {done.note}")
    for path in done.beside:
        print(f"also written: {path}")
    if done.address is not None:
        print(f"uploaded: {done.address}")
    return 0
