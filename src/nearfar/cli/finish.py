"""`nearfar finish`: make a stopped run usable as it is."""

from nearfar.cli.parser import Parser


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar finish",
        description="Write the model of the newest checkpoint of a stopped run, so that embed, evaluate, search, "
        "export and explore open it. It can still be resumed.",
    )
    parser.add_argument("run", help="the folder of a run that was stopped")
    options = parser.parse_args(arguments)

    from nearfar.training.finish import finish

    print(f"model of step {finish(options.run):,}: {options.run}")
    return 0
