"""Texts as files state them: which can be used, and what is wrong with the others."""

LONGEST = 2_000  # characters of a caption; what is longer is a page that slipped into the column, not a caption


def text_of(value: object, longest: int = LONGEST) -> tuple[str, str]:
    """The text with single spaces, and what is wrong with it, or nothing.

    A text that is too long is refused, not cut: its beginning need not say what the picture shows.

    >>> text_of("  a teal\\n letter K "), text_of(" ")
    (('a teal letter K', ''), ('', 'is empty'))
    """
    if missing(value):
        return "", "is empty"
    if not isinstance(value, str | int | float):
        return "", f"is a {type(value).__name__}, expected a text"
    text = " ".join(str(value).split())
    if printable(text) != text:
        return text, "is not UTF-8"
    if len(text) > longest:
        return text, f"has {len(text):,} characters, more than {longest:,}"
    return text, ""


def missing(value: object) -> bool:
    """None, an empty text or NaN.

    >>> [missing(value) for value in (None, " ", float("nan"), 0)]
    [True, True, True, False]
    """
    return value is None or (isinstance(value, str) and not value.strip()) or value != value


def printable(text: str) -> str:
    """The text, bytes in it that were not UTF-8 spelled out: equal to the text where there are none.

    >>> printable(b"caf\\xe9".decode(errors="surrogateescape"))
    'caf\\\\xe9'
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="surrogateescape" if _escaped(text) else "backslashreplace").decode(
            errors="backslashreplace"
        )
    return text


def _escaped(text: str) -> bool:
    """Whether every surrogate stands for a byte, and none was written as such (as JSON can)."""
    return all(not "\ud800" <= c <= "\udfff" or "\udc80" <= c <= "\udcff" for c in text)
