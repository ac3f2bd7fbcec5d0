"""`nearfar finish`: the model of a stopped run as a file."""

from nearfar.cli.parser import Parser
from nearfar.data.names import check_files_there


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar finish",
        description="Write the model of the newest checkpoint of a stopped run, for programs that read files; embed, "
        "evaluate, search, export and explore open such a run without it. It can still be resumed.",
    )
    parser.add_argument("run", help="the folder of a run that was stopped")
    options = parser.parse_args(arguments)
    check_files_there(options.run, expected="a run folder")

    from nearfar.training.finish import finish

    print(f"model of step {finish(options.run):,}: {options.run}")
    return 0
