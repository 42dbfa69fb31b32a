"""Keep torch off matrix instructions (AMX) that a processor announces but traps.

Some virtual machines show AMX in ``/proc/cpuinfo`` and kill whoever uses it: torch's bfloat16 products die there, and float32
convolutions of the same process fail after them. A child process tries once per machine (:mod:`regrow.amx_probe`); where it dies,
oneDNN, which torch computes with, is limited to older instructions before its first use. A limit that the user has set is left
alone. Imported with the package: nothing here may take time where no AMX is announced.
"""

from __future__ import annotations

import os

VARIABLE = "ONEDNN_MAX_CPU_ISA"
# oneDNN reads its former name too.
NAMES = (VARIABLE, "DNNL_MAX_CPU_ISA")
CPUINFO = "/proc/cpuinfo"
# Enough for the first processor; a server's whole file takes milliseconds to make.
_FIRST_PROCESSOR = 16384


def keep_off_traps(probe: bool = True) -> None:
    """Limit oneDNN, and say so, if AMX traps on this machine; with ``probe=False`` only if that is known already."""
    if any(name in os.environ for name in NAMES) or not announced():
        return
    from regrow import amx_probe

    verdict = amx_probe.known() or (amx_probe.probe() if probe else None)
    if verdict is not None and verdict.limit is not None:
        os.environ[VARIABLE] = verdict.limit
        amx_probe.log.warning("%s", verdict)


def announced() -> bool:
    """Whether the processor says that it has AMX."""
    return any(flag.startswith("amx") for flag in processor().get("flags", "").split())


def processor() -> dict[str, str]:
    """The first processor as the system describes it; empty where it does not."""
    try:
        with open(CPUINFO) as file:
            lines = file.read(_FIRST_PROCESSOR).split("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}
