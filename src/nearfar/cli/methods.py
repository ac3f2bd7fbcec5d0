"""`nearfar methods`: what each method is for, what it needs, and its paper."""

from nearfar.cli.parser import Parser


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar methods",
        description="List the training methods: for which data, and when to choose each. With NAME, print what "
        "that one needs, its paper and its options.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="describe this one, with its options")
    parser.add_argument("--modality", metavar="KIND", help="only those for image, sound, series, text, ...")
    parser.add_argument("--markdown", action="store_true", help="as the table of the docs")
    options = parser.parse_args(arguments)
    if options.name is not None and (options.modality is not None or options.markdown):
        parser.error("--modality and --markdown list several; leave them out, or NAME")

    from nearfar.methods import find_method
    from nearfar.methods.listing import as_markdown, full_text, line, methods_for

    if options.name is not None:
        print(full_text(find_method(options.name)))
        return 0
    kinds = methods_for(options.modality)
    if options.markdown:
        print(as_markdown(kinds))
        return 0
    for kind in kinds:
        print(line(kind))
    print("\nnearfar methods NAME shows all of one; nearfar train --method NAME uses it.")
    return 0
