"""The grammar that recipes and transforms share: ``name:key=value,key=value``."""

from traces.errors import InputError


def options(text: str) -> tuple[str, dict[str, str]]:
    """Name and options of ``name:key=value,key=value``; values may hold colons.

    Raises:
        InputError: a piece without ``=``, or an option twice.
    """
    name, _, rest = text.partition(":")
    found: dict[str, str] = {}
    for piece in filter(None, (piece.strip() for piece in rest.split(","))):
        key, equals, value = piece.partition("=")
        if not equals or not value:
            raise InputError(f"{text!r}: {piece!r} is not key=value")
        if key in found:
            raise InputError(f"{text!r}: {key} is given twice")
        found[key] = value
    return name.strip(), found
