"""The one error that bad input ends in."""


class InputError(ValueError):
    """What a user gave cannot be used.

    The message is one line with the value, the place (file, line, column or option) and, where they
    can be named, the valid choices. Commands print it on stderr and exit with code 2.
    """


def choices(names: object) -> str:
    """``a, b or c`` from an iterable of names, for the end of an error line."""
    *most, last = sorted(str(name) for name in names)  # type: ignore[attr-defined]
    return f"{', '.join(most)} or {last}" if most else last
