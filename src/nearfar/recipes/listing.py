"""Recipes as text."""

from nearfar.recipes import Recipe


def short_text(recipe: Recipe) -> str:
    """What is known about a recipe, in a few lines."""
    reached = ", ".join(map(str, recipe.numbers)) or "was not measured"
    lines = [recipe.name, f"  {recipe.about}", f"  on      {recipe.data}", f"  reached {reached}"]
    if recipe.numbers:
        lines += [f"  by      {recipe.command}  ({recipe.file})", f"  time    {recipe.time or 'was not noted'}"]
    return "\n".join([*lines, f"  run     {recipe.run}"])


def full_text(recipe: Recipe) -> str:
    """The file, followed by its numbers as comments: valid YAML."""
    lines = [f"on {recipe.data}"]
    for number in recipe.numbers:
        beside = "".join(f"; {who} {number.shown(value)}" for who, value in number.beside.items())
        lines.append(f"reached: {number}{beside}")
    if recipe.numbers:
        lines += [f"by: {recipe.command} ({recipe.file})", f"time: {recipe.time or 'was not noted'}"]
    else:
        lines.append("reached: was not measured")
    return "\n".join([recipe.text.rstrip(), "", *(f"# {line}" for line in [*lines, f"run: {recipe.run}"])])
