"""Built-in data found in an installed package: the named icons in the fonts of qtawesome, by several designers."""

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import PIL
import torch
from PIL import Image, ImageDraw, ImageFont

from nearfar.data.columns import nearest
from nearfar.data.sources import MadeItems
from nearfar.modalities.image.data.source import ImageSource

PACKAGE = "qtawesome"
HELD_OUT = "fontawesome"  # whose icons the test split has where no family is named
SIZE = 64  # stored side where none is asked for
CANVAS = 128  # side that an icon is drawn at; larger sizes are stretched
EM, MOST = 0.75, 0.9  # of the canvas: size of the font, and of the widest drawing
UNUSED = "\U0010ffff"  # a character that no font has: it shows what a missing one looks like
VERSION = 1  # part of the cache's key; raise it when the same icon is drawn otherwise

# Last words that say how a family drew an icon, not what of.
STYLES = {
    "codicon": ("filled", "outline"),
    "elusiveicons": ("alt",),
    "fontawesome": ("alt",),
    "materialdesignicons": ("outline", "variant"),
    "phosphor": ("bold", "fill", "light", "thin", "duotone"),
    "remixicon": ("fill", "line"),
}


@dataclass(frozen=True)
class Icon:
    """One drawing: a character of a font, and the names it has there, the best known first."""

    family: str
    style: str  # "solid" where a family has a font for each style, else ""
    names: tuple[str, ...]
    font: Path
    character: str

    @property
    def name(self) -> str:
        return "/".join(part for part in (self.family, self.style, self.names[0]) if part)

    @property
    def concept(self) -> str:
        """What it is a drawing of."""
        return concept(self.names[0], self.family)

    def captions(self) -> tuple[str, ...]:
        """Its names as they are read aloud, with and without the style."""
        texts = [text for name in self.names for text in (readable(name), concept(name, self.family))]
        return tuple(dict.fromkeys(texts))


def icons_source(held_out: str = HELD_OUT, *, split: str | None = None) -> ImageSource:
    """Icons in black on white, with names as captions; equal names are one label, and one group.

    Families are design teams, and the newest of each of their fonts is taken. Names begin with the family:
    "phosphor/arrow-left-bold", "fontawesome/solid/bell". Labels are numbered over all families.

    Args:
        held_out: the family for the test split.
        split: "train", the other families; "test", icons of the held-out family of which another family has the
            concept, so that its name can be known; "all", every icon; None is "train".
    """
    package = _package()
    every = find_icons(package)
    families = sorted({icon.family for icon in every})
    if held_out not in families:
        raise ValueError(f"icons have no family {held_out!r}, but {', '.join(families)}{nearest(held_out, families)}")
    known = {icon.concept for icon in every if icon.family != held_out}
    if split in (None, "train"):
        chosen = [icon for icon in every if icon.family != held_out]
    elif split == "test":
        chosen = [icon for icon in every if icon.family == held_out and icon.concept in known]
    elif split == "all":
        chosen = every
    else:
        raise ValueError(f"icons have the splits 'train', 'test' and 'all', not {split!r}")
    if not chosen:
        raise ValueError(f"icons have nothing in the split {split or 'train'!r} with {held_out!r} held out")
    classes = sorted({icon.concept for icon in every})
    number_of = {name: number for number, name in enumerate(classes)}
    labels = torch.tensor([number_of[icon.concept] for icon in chosen])
    return ImageSource(
        description=f"icons of {PACKAGE}",  # of all splits: what one has drawn, another need not draw again
        names=[icon.name for icon in chosen],
        load=lambda: MadeItems(len(chosen), lambda index: drawn(chosen[index])),
        version=f"{package.version} {VERSION} pillow{PIL.__version__}",
        versions=[icon.name for icon in chosen],
        labels=labels,
        classes=classes,
        groups=labels,
        captions=[icon.captions() for icon in chosen],
        size=SIZE,
    )


def drawn(icon: Icon) -> Image.Image:
    """(CANVAS, CANVAS) in gray: the ink in the middle, at the font's own size where it fits."""
    ink = _ink(icon.font, icon.character)
    if ink is None or ink == _absent(icon.font):
        raise ValueError("the font has no glyph for it")
    if (scale := MOST * CANVAS / max(ink.size)) < 1:
        ink = ink.resize((max(round(ink.width * scale), 1), max(round(ink.height * scale), 1)))
    picture = Image.new("L", (CANVAS, CANVAS), 255)
    picture.paste(0, ((CANVAS - ink.width) // 2, (CANVAS - ink.height) // 2), mask=ink)
    return picture


def _ink(path: Path, character: str) -> Image.Image | None:
    """The drawing, cut to its edges; None where there is none."""
    wide = Image.new("L", (2 * CANVAS, 2 * CANVAS))
    ImageDraw.Draw(wide).text((CANVAS, CANVAS), character, font=_font(path), fill=255, anchor="mm")
    box = wide.getbbox()
    return None if box is None else wide.crop(box)


@cache
def _absent(path: Path) -> Image.Image | None:
    """What a font draws in place of what it does not have."""
    return _ink(path, UNUSED)


@cache
def _font(path: Path) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(path, EM * CANVAS, layout_engine=ImageFont.Layout.BASIC)


def find_icons(package: Distribution) -> list[Icon]:
    """Every drawing of the newest font of each family and style, sorted by name."""
    newest: dict[tuple[str, str], tuple[tuple[int, ...], Path, Path]] = {}
    files = {file.name: Path(str(package.locate_file(file))) for file in package.files or ()}
    for name, path in files.items():
        found = re.fullmatch(r"([a-z]+)\d*(?:-(\w+?))??(?:-webfont)?-charmap-([\d.]+)\.json", name)
        font = files.get(name.replace("-charmap", "").replace(".json", ".ttf"))
        if found is not None and font is not None:
            version = tuple(int(part) for part in found[3].split(".") if part)
            key = (found[1], found[2] or "")
            if key not in newest or version > newest[key][0]:
                newest[key] = version, font, path
    stated = {key: (font, _charmap(path)) for key, (_, font, path) in newest.items()}
    drawn_by: dict[str, set[str]] = {}
    for (family, _), (_, characters) in stated.items():
        for name in characters:
            drawn_by.setdefault(concept(name, family), set()).add(family)
    icons = []
    for (family, style), (font, characters) in stated.items():
        names: dict[str, list[str]] = {}
        for name in sorted(characters, key=lambda n: (-len(drawn_by[concept(n, family)]), n)):
            names.setdefault(characters[name], []).append(name)
        icons += [Icon(family, style, tuple(aliases), font, character) for character, aliases in names.items()]
    if not icons:
        raise ValueError(f"there are no fonts in {PACKAGE} {package.version}, expected *-charmap-*.json beside *.ttf")
    return sorted(icons, key=lambda icon: icon.name)


def _package() -> Distribution:
    """Found by its metadata and never imported: it would want Qt."""
    try:
        return distribution(PACKAGE)
    except PackageNotFoundError:
        raise ModuleNotFoundError(f"icons are in the fonts of {PACKAGE}; run: pip install 'nearfar[icons]'") from None


def _charmap(path: Path) -> dict[str, str]:
    """Character by name."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): chr(int(code, 16)) for name, code in content.items()}
    except (OSError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{path} is not a map of names to characters ({error}); reinstall {PACKAGE}") from None


def readable(name: str) -> str:
    """
    >>> readable("arrow-left-circle")
    'arrow left circle'
    """
    return " ".join(re.split(r"[-_.\s]+", name.lower()))


def concept(name: str, family: str) -> str:
    """The name without the words that tell the family's style.

    >>> concept("bell-ring-outline", "materialdesignicons"), concept("traffic-light", "materialdesignicons")
    ('bell ring', 'traffic light')
    """
    words = readable(name).split()
    while len(words) > 1 and words[-1] in STYLES.get(family, ()):
        words.pop()
    return " ".join(words)
