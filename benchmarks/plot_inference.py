"""Times of other runtimes over ours, from files of `inference_peers.py --json`.

python benchmarks/plot_inference.py OUT.png FILE.json ...
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from matplotlib.figure import Figure

ARMS = {"torch": "#9a9a9a", "ONNX Runtime": "#5b8db8", "OpenVINO": "#7fb069", "DeepSparse": "#d1603d"}


def main() -> None:
    """Draw one group of bars per network, density and batch."""
    out, *files = map(Path, sys.argv[1:])
    rows = [row for file in files for row in json.loads(file.read_text())["rows"]]
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for place, row in enumerate(rows):
        times = dict(row["p50_ms"])
        times["torch"] = min(times.pop(arm) for arm in list(times) if arm.startswith("torch"))
        for shift, (arm, colour) in enumerate(ARMS.items()):
            if arm in times:
                ratio = times[arm] / times["regrow"]
                middle, side = place + 0.2 * shift - 0.3, "bottom" if ratio >= 1 else "top"
                axes.bar(middle, ratio - 1, 0.19, bottom=1, color=colour, label=arm if place == 0 else None)
                axes.text(middle, ratio, f"{ratio:.1f}", ha="center", va=side, fontsize=7.5)
    names = [f"{row['model']}\n{row['density']:.0%}, batch {row['batch']}" for row in rows]
    axes.set_xticks(range(len(rows)), names, fontsize=8)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log", base=2)
    axes.set_yticks([0.5, 1, 2, 4, 8, 16], ["0.5", "1", "2", "4", "8", "16"])
    axes.set_ylabel("its time / regrow's time")
    axes.set_title("up: regrow is faster; down: the other runtime is", fontsize=10, loc="left")
    axes.margins(y=0.08)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=len(ARMS), fontsize=9, loc="lower right", bbox_to_anchor=(1, 1))
    figure.savefig(out, dpi=130)


if __name__ == "__main__":
    main()
