"""`nearfar recipes`: known runs, the numbers they reached, and one of them run again."""

from nearfar.cli.parser import Parser


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="nearfar recipes",
        description="List the recipes: what each trains, the numbers it reached and the time it took. With NAME, "
        "print that recipe in full, as YAML to save and change.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this one in full")
    parser.add_argument(
        "--rerun", action="store_true", help="train it again and compare; the exit status is 1 where it reaches less"
    )
    parser.add_argument("--out", help="with --rerun, the run folder (default: the next free one under runs/)")
    options = parser.parse_args(arguments)
    if options.name is None and (options.rerun or options.out is not None):
        parser.error("--rerun and --out need the NAME of a recipe")
    if options.out is not None and not options.rerun:
        parser.error("--out needs --rerun")

    from nearfar.recipes import recipe, recipes
    from nearfar.recipes.listing import full_text, short_text

    if options.name is None:
        for each in recipes():
            print(short_text(each))
        print("\nnearfar recipes NAME shows all of one; nearfar train --config NAME runs it.")
        return 0
    if options.rerun:
        from nearfar.recipes.rerun import rerun

        return rerun(recipe(options.name), options.out)
    print(full_text(recipe(options.name)))
    return 0
