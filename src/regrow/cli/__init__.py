"""The ``regrow`` command. Parsing imports no torch; commands import what they need."""
