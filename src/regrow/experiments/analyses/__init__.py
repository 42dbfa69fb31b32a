"""What some experiments show besides their table: tests, differences, speed-ups, features.

One module per question, each with `describe(material)`: Markdown, or nothing where there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable

from regrow.experiments.analyses import (
    curves,
    differences,
    equivalence,
    medians,
    overhead,
    sensitivity,
    specialisation,
    top5,
    trade,
    windows,
)
from regrow.experiments.analyses.material import Material
from regrow.files import write_atomically

__all__ = ["ANALYSES", "Material", "run"]

ANALYSES: dict[str, dict[str, Callable[[Material], str]]] = {
    "mnist-compression": {"overhead": overhead.describe},
    "cifar-snip": {"overhead": overhead.describe},
    "imagenet": {"top5": top5.describe},
    "ablation": {"differences": differences.describe},
    "sensitivity": {"wilcoxon": sensitivity.describe, "medians": medians.describe},
    "dense-equivalence": {"equivalence": equivalence.describe},
    "features": {"specialisation": specialisation.describe},
    "growth-window": {"window": windows.describe},
    "cost-redistribution": {"trade": trade.describe},
    "cifar-check": {"curves": curves.describe},
}


def run(material: Material) -> list[str]:
    """The experiment's further analyses as Markdown, each written to the results too."""
    texts = []
    for name, analyse in ANALYSES.get(material.experiment.name, {}).items():
        text = analyse(material)
        if text:
            write_atomically(material.results / f"{name}.md", text.encode())
            texts.append(text)
    return texts
