"""What can go wrong with data."""

from regrow.errors import RegrowError


class DataError(RegrowError, ValueError):
    """Data that are missing, damaged or of an unexpected form; the message names the file and the remedy."""


class FetchError(DataError):
    """No source of a data set answered with the right content; the message lists every source and its reason."""

    lists = True


class UnreadableError(DataError):
    """Files that cannot be read, one per line."""

    lists = True

    def __init__(self, problems: list[str]) -> None:
        many = f"{len(problems)} files" if len(problems) > 1 else "1 file"
        super().__init__("\n".join([f"{many} cannot be used:", *problems]))


class SourceError(Exception):
    """One source failed; `get` notes the reason and turns to the next."""
