"""Line figures: learning, churn and exploration, schedules, speed."""

from __future__ import annotations

from typing import Any

import numpy as np

from regrow.report.draw import ACCENT, CAME, GONE, SOFT, TEST, TRAIN, VALIDATION, big_number, look, new, thin, to_svg
from regrow.report.history import History
from regrow.report.reading import RunFiles

_SIZE = (5.2, 3.0)
_SMALL = (5.2, 2.5)
_STYLE = {"train": (TRAIN, 1.2), "validation": (VALIDATION, 1.9)}
_SHARES = (0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.99)
_LEAST_ERROR = 0.01
_FEW = 40
_FEW_LAYERS = 12
_FEWEST_MARKS = 2
_FINE_RANGE = 60


def accuracy(files: RunFiles) -> str:
    """Accuracy over steps, on an axis that stretches towards 100% as a logarithmic one of the error does."""
    with look("accuracy"):
        figure, axes = new(*_SIZE)
        seen = _learning(axes, files, lambda row: -np.log10(max(100 * (1 - row["accuracy"]), _LEAST_ERROR)))
        low, high = min(seen), max(seen)
        pad = max(0.04 * (high - low), 0.02)
        axes.set_ylim(low - pad, high + pad)
        marks = [(share, -np.log10(max(100 - share, _LEAST_ERROR))) for share in _SHARES]
        marks = _apart([mark for mark in marks if low - pad <= mark[1] <= high + pad], 0.07 * (high - low + 2 * pad))
        if len(marks) < _FEWEST_MARKS:
            marks = [(round(100 - 10**-place, 2), place) for place in sorted({low, high})]
        axes.set_yticks([place for _, place in marks], [f"{share:g}%" for share, _ in marks])
        axes.set_title("Accuracy")
        return to_svg(figure, "accuracy", "Accuracy over training steps")


def _apart(marks: list[tuple[float, float]], least: float) -> list[tuple[float, float]]:
    """The marks, from the top, that keep a distance."""
    kept: list[tuple[float, float]] = []
    for mark in reversed(marks):
        if not kept or kept[-1][1] - mark[1] >= least:
            kept.append(mark)
    return kept


def loss(files: RunFiles) -> str:
    """Cross entropy over steps, logarithmic where it spans much."""
    with look("loss"):
        figure, axes = new(*_SIZE)
        seen = _learning(axes, files, lambda row: row["loss"])
        if min(seen) > 0 and max(seen) / min(seen) > 5:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: big_number(value))
            fine = max(seen) / min(seen) < _FINE_RANGE
            axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if fine and f"{value:e}"[0] in "25" else "")
        axes.set_title("Loss (cross entropy)")
        return to_svg(figure, "loss", "Loss over training steps")


def _learning(axes: Any, files: RunFiles, value: Any) -> list[float]:
    seen: list[float] = []
    for kind, (colour, width) in _STYLE.items():
        rows = files.rows(kind)
        if rows:
            x, y = thin([row["step"] for row in rows], [value(row) for row in rows])
            mark = "o" if len(x) <= _FEW else None
            axes.plot(x, y, color=colour, linewidth=width, marker=mark, markersize=3, label=kind)
            seen.extend(y)
    for row in files.rows("test")[-1:]:
        axes.plot([row["step"]], [value(row)], "D", color=TEST, markersize=6, label="test", clip_on=False, zorder=5)
        seen.append(value(row))
    _legend(axes)
    _steps_axis(axes)
    return seen


def _legend(axes: Any) -> None:
    """On the title's line, where no curve can be hidden."""
    entries = len(axes.get_legend_handles_labels()[1])
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=entries, borderaxespad=0.1, columnspacing=1.2)


def _steps_axis(axes: Any) -> None:
    axes.set_xlabel("step")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda value, _: big_number(value))


def schedules(files: RunFiles) -> list[str]:
    """Learning rate and prune rate over steps."""
    rows = files.rows("train")
    found = []
    for name, field, title in (("lr", "lr", "Learning rate"), ("rate", "prune_rate", "Prune rate")):
        with look(name):
            figure, axes = new(*_SMALL)
            axes.plot(
                [r["step"] for r in rows],
                [r[field] for r in rows],
                color=ACCENT,
                marker="o" if len(rows) <= _FEW else None,
                markersize=3,
            )
            axes.set_ylim(0, 1.1 * max((r[field] or 0 for r in rows), default=0) or 1)
            axes.set_title(title)
            _steps_axis(axes)
            found.append(to_svg(figure, name, f"{title} over training steps"))
    return found


def churn(past: History) -> list[str]:
    """Four measures of how masks move: every layer as a thin line, the whole network bold."""
    totals = past.totals()
    regrown = np.divide(past.regrown, past.removed, out=np.zeros(past.removed.shape), where=past.removed > 0)
    return [
        _measure(
            "previous",
            "Change at one update",
            past,
            past.to_previous,
            totals["to_previous"],
        ),
        _measure("start", "Distance to the first mask", past, past.to_start, totals["to_start"]),
        _measure("ever", "Ever active", past, past.ever_active, totals["ever_active"]),
        _measure("regrown", "Regrown at once, of the removed", past, regrown, totals["regrown"]),
    ]


def _measure(name: str, title: str, past: History, layers: np.ndarray, total: np.ndarray) -> str:
    with look(name):
        figure, axes = new(*_SMALL)
        x, mark = past.steps[1:], "o" if len(total) <= _FEW else None
        faint = 0.4 if layers.shape[1] <= _FEW_LAYERS else 0.22
        for index in range(layers.shape[1]):
            axes.plot(
                *thin(x, 100 * layers[:, index]),
                color=SOFT,
                alpha=faint,
                linewidth=0.8,
                label="each layer" if index == 0 else None,
            )
        axes.plot(*thin(x, 100 * total), color=ACCENT, linewidth=2, marker=mark, markersize=3, label="network")
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}%")
        axes.set_title(title)
        _legend(axes)
        _steps_axis(axes)
        return to_svg(figure, name, title)


def turnover(past: History) -> str:
    """Weights removed and grown at each journaled update."""
    with look("turnover"):
        figure, axes = new(10.4, 2.3)
        x = past.steps[1:]
        for values, colour, label, sign in ((past.grown, CAME, "grown", 1), (past.removed, GONE, "removed", -1)):
            axes.fill_between(x, 0, sign * values.sum(1), color=colour, alpha=0.22, linewidth=0)
            mark = "o" if len(x) <= _FEW else None
            axes.plot(x, sign * values.sum(1), color=colour, label=label, marker=mark, markersize=3)
        axes.axhline(0, color=SOFT, linewidth=0.8)
        axes.yaxis.set_major_formatter(lambda value, _: big_number(abs(value)))
        axes.set_title("Weights per update, whole network")
        _legend(axes)
        _steps_axis(axes)
        return to_svg(figure, "turnover", "Weights removed and grown at each topology update")


def throughput(files: RunFiles) -> str:
    """Images per second of training steps alone, as logged."""
    with look("throughput"):
        figure, axes = new(*_SMALL)
        x, y = thin([row["step"] for row in files.speed], [row["images_per_second"] for row in files.speed])
        axes.plot(x, y, color=ACCENT, marker="o" if len(x) <= _FEW else None, markersize=3)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: big_number(value))
        axes.set_title("Images per second")
        _steps_axis(axes)
        return to_svg(figure, "throughput", "Images per second of training steps alone")
