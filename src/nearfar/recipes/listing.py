"""Recipes as text."""

import textwrap

from nearfar.recipes import Recipe


def short_text(recipe: Recipe, width: int = 80) -> str:
    """A recipe in a list: its name, what it does, and what it reached in which time."""
    lines = [recipe.name, *(f"  {line}" for line in textwrap.wrap(recipe.about, width - 2))]
    if recipe.numbers:
        reached = ", ".join(f"{each.what} {each.shown(each.value)}" for each in recipe.numbers[:2])
        found = f"reached {reached}" + (f"; {recipe.time}" if recipe.time else "")
    else:
        found = "not measured yet"
    return "\n".join([*lines, *(f"  {line}" for line in textwrap.wrap(found, width - 2))])


def full_text(recipe: Recipe) -> str:
    """The file, followed by its numbers as comments: valid YAML."""
    lines = [f"on {recipe.data}"]
    for number in recipe.numbers:
        beside = "".join(f"; {who} {number.shown(value)}" for who, value in number.beside.items())
        lines.append(f"reached: {number}{beside}")
    if recipe.numbers:
        lines += [f"by: {recipe.command} ({recipe.file})", f"time: {recipe.time or 'not recorded'}"]
    else:
        lines.append("reached: not measured yet")
    return "\n".join([recipe.text.rstrip(), "", *(f"# {line}" for line in [*lines, f"run: {recipe.run}"])])
