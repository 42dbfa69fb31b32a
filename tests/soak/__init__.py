"""Long searches for faults, as long as asked; counts add up over calls.

    python -m tests.soak [NAME ...] --minutes 10

A suite is a module here with

- ``GOAL``: how many of what must be done, e.g. ``{"kills": 200}``; the first is the number of cases;
- ``ZERO``: what must never be counted, e.g. ``("lost", "different")``;
- ``run(deadline, first)``: does cases number ``first``, ``first + 1``, ... until ``time.monotonic()`` has passed ``deadline`` and returns
  the counts of this call by the names above (others are shown too). A case is a function of its number, so that calls never repeat
  themselves and a failure can be done again. It prints one line for each failure.
"""
