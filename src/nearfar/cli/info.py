"""`nearfar info`: the environment, as a bug report needs it."""

from nearfar.cli.parser import Parser


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar info",
        description="Print the versions of nearfar, Python and the packages below it, the devices and threads, for a "
        "bug report. No path, no name of a user or a machine is in it.",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(arguments)

    from nearfar.environment import environment, shown_as_json, shown_as_lines

    found = environment()
    print(shown_as_json(found) if options.json else shown_as_lines(found))
    return 0
