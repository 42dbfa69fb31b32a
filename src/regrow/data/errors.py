"""What can go wrong with data."""

from regrow.errors import RegrowError


class DataError(RegrowError, ValueError):
    """Data that are missing, damaged or of an unexpected form; the message names the file and the remedy."""


class FetchError(DataError):
    """No source of a data set answered with the right content; the message lists every source and its reason."""

    lists = True


class SourceError(Exception):
    """One source failed; `get` notes the reason and turns to the next."""
