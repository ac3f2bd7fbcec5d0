"""`nearfar methods`: what each method is for, what it needs, and its paper."""

from nearfar.cli.parser import Parser


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar methods",
        description="List the methods of training: for which data, where to choose each, what it needs, and its "
        "paper. With NAME, describe that one and its options.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="describe this one, with its options")
    parser.add_argument("--modality", metavar="KIND", help="only those for image, sound, series, text, ...")
    parser.add_argument("--markdown", action="store_true", help="as the table of the docs")
    options = parser.parse_args(arguments)
    if options.name is not None and (options.modality is not None or options.markdown):
        parser.error("--modality and --markdown list several; leave them out, or NAME")

    from nearfar.methods import find_method
    from nearfar.methods.listing import as_markdown, full_text, methods_for, short_text

    if options.name is not None:
        print(full_text(find_method(options.name)))
        return 0
    kinds = methods_for(options.modality)
    if options.markdown:
        print(as_markdown(kinds))
        return 0
    for kind in kinds:
        print(short_text(kind), end="\n\n")
    print("nearfar methods NAME describes one, with its options; nearfar train --method NAME trains with it.")
    return 0
