"""Layers, sizes and the three speed figures as tables."""

from __future__ import annotations

from html import escape
from statistics import median

from regrow.analysis.flops import dense_gradient_step, dense_step, rigl_step, static_step
from regrow.analysis.sizes import Storage, storage
from regrow.memory import readable
from regrow.report import curves, html
from regrow.report.draw import big_number
from regrow.report.html import Cell
from regrow.report.reading import RunFiles
from regrow.report.snapshot import LayerRow, Snapshot
from regrow.report.work import Estimate, TrainingWork, estimates

_GROUPS = {"conv": "convolutions", "shortcut": "1x1 shortcuts", "linear": "linear layers"}
_RIGL_INTERVAL = 100


def percent(share: float) -> str:
    """A share as text with three digits that matter.

    Example:
        >>> percent(0.05), percent(0.12345), percent(1.0)
        ('5.00%', '12.3%', '100%')
    """
    value = 100 * share
    return f"{value:.0f}%" if value >= 99.95 else f"{value:.1f}%" if value >= 10 else f"{value:.2f}%"


def number(value: float) -> str:
    """Three digits that matter, no exponent.

    Example:
        >>> number(4.567), number(12411.3)
        ('4.57', '12,411')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Seconds as a reader says them.

    Example:
        >>> duration(4.21), duration(95), duration(7300)
        ('4.2 s', '1 min 35 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def layers(rows: list[LayerRow]) -> str:
    """Every layer with its weights and its work."""
    head: list[Cell] = [("layer", "name"), ("kind", "name"), ("shape", "name"), "density", "non-zeros", "of weights"]
    head += ["MACs dense", "MACs kept", "input<br>non-zero", "empty<br>inputs", "empty<br>outputs"]
    return html.table(head, [_layer(row) for row in rows], _sum(rows), kind="layers")


def _layer(row: LayerRow) -> list[Cell]:
    kind = row.group if row.sparse else f"{row.group}, dense ({row.reason})" if row.reason else f"{row.group}, dense"
    bar = f'<span class="bar"><i style="width:{100 * row.density:.1f}%"></i></span>'
    return [
        (escape(row.name), "name"),
        (escape(kind), "name"),
        ("x".join(map(str, row.shape)), "name"),
        percent(row.density) + bar,
        f"{row.nonzeros:,}",
        f"{row.numel:,}",
        html.NONE if row.macs is None else f"{row.macs:,}",
        html.NONE if row.kept_macs is None else f"{round(row.kept_macs):,}",
        html.NONE if row.input_density is None else percent(row.input_density),
        f"{row.empty.inputs:,}",
        f"{row.empty.outputs:,}",
    ]


def _sum(rows: list[LayerRow]) -> list[Cell]:
    nonzeros, numel = sum(r.nonzeros for r in rows), sum(r.numel for r in rows)
    macs, kept = sum(r.macs or 0 for r in rows), sum(r.kept_macs or 0 for r in rows)
    empty = (sum(r.empty.inputs for r in rows), sum(r.empty.outputs for r in rows))
    sums = [percent(nonzeros / numel), f"{nonzeros:,}", f"{numel:,}", f"{macs:,}", f"{round(kept):,}", ""]
    return [("all", "name"), "", "", *sums, f"{empty[0]:,}", f"{empty[1]:,}"]


def sizes(shot: Snapshot) -> str:
    """Shares of weights and of all parameters; bytes in three formats."""
    nonzeros, numel = sum(r.nonzeros for r in shot.rows), sum(r.numel for r in shot.rows)
    sparse = [r for r in shot.rows if r.sparse]
    params = shot.table.params
    total = sum((storage(r.shape, r.nonzeros) for r in shot.rows), Storage(0, 0, 0))
    inside, scope = sum(r.nonzeros for r in sparse), sum(r.numel for r in sparse)
    return html.facts(
        [
            ("sparse layers", f"{percent(inside / scope)}: {inside:,} of {scope:,} weights in {len(sparse)} layers"),
            ("weights of all layers", f"{percent(nonzeros / numel)}: {nonzeros:,} of {numel:,}"),
            (
                "all parameters",
                f"{percent((params - numel + nonzeros) / params)}: {params - numel + nonzeros:,} of {params:,}, biases and norms included",
            ),
            (
                "storage of the weights",
                f"{readable(total.dense)} dense, {readable(total.bitmask)} as bit mask and values, "
                f"{readable(total.csr)} as CSR (fp32)",
            ),
        ]
    )


def measured(files: RunFiles) -> str:
    """What the clock said: the whole of the logged time, and the rate of training steps alone."""
    note = html.paragraph(
        "Wall time on the machine below up to the last logged row. Training time includes evaluation, checkpoints and the first step; "
        "images per second, here and in the figure, are those of training steps alone."
    )
    if not files.speed:
        return _panel("Measured", "", note, html.notice("No times were logged yet."))
    seconds = sum(row["seconds"] for row in files.speed)
    steps, images = _done(files)
    rates = [row["images_per_second"] for row in files.speed]
    pairs = [
        ("training time", f"{duration(seconds)} for {steps:,} steps, {images:,} images"),
        ("images per second", f"{number(median(rates))}, median of {len(rates)} rows"),
    ]
    return _panel("Measured", "", note, html.facts(pairs + _traffic(files)), html.drawing(curves.throughput(files)))


def images_per_step(files: RunFiles) -> float:
    """Images of a step on average: the last one of an epoch may have few."""
    steps, images = _done(files)
    return images / steps if steps else files.config.data.batch


def _done(files: RunFiles) -> tuple[int, int]:
    """Steps and images of the logged seconds; rows without these counts, of older runs, by their step numbers and whole batches."""
    steps = images = before = 0
    for row in files.speed:
        own = row.get("steps", row["step"] - before)
        steps, before = steps + own, row["step"]
        images += row.get("images", own * files.config.data.batch)
    return steps, images


def _traffic(files: RunFiles) -> list[tuple[str, str]]:
    """Mean bytes that one of several processes hands over in a step, growth windows included; nothing for one process."""
    rows = [row for row in files.speed if "bytes_per_step" in row]
    if not rows:
        return []
    steps = sum(row["steps"] for row in rows)
    sent, dense = (
        sum(row["steps"] * row[key] for row in rows) / steps for key in ("bytes_per_step", "bytes_per_step_dense")
    )
    share = f"{percent(sent / dense)} of dense ({readable(round(dense))})"
    return [("gradient traffic per step and process", f"{readable(round(sent))}, {share}")]


def counted(shot: Snapshot, work: TrainingWork | None, images: float) -> str:
    """FLOPs by weights alone; ``images`` are those of a step on average."""
    note = html.paragraph(
        "A count, not a time: 2 x MACs of present weights; a training step is three such products, and in growth windows the "
        "weight gradient is dense (RigL's accounting)."
    )
    if work is None:
        return _panel("Weights-only FLOPs", "count", note, html.notice("Needs a checkpoint and a logged step."))
    dense, now = work.dense_forward, 2.0 * sum(row.kept_macs or 0 for row in shot.rows)
    train, per_step = dense_step(dense), work.step
    rows: list[list[Cell]] = [
        [("inference, dense", "name"), big_number(dense), "100%"],
        [("inference, these masks", "name"), big_number(now), percent(now / dense)],
        [("training step, dense", "name"), big_number(train), "100%"],
        [("training step, this run", "name"), big_number(per_step), percent(work.fraction)],
    ]
    for label, value in (
        ("as fixed masks or SET", static_step(work.forward)),
        (f"as RigL, every {_RIGL_INTERVAL} steps", rigl_step(work.forward, dense, _RIGL_INTERVAL)),
        ("as SNFS", dense_gradient_step(work.forward, dense)),
    ):
        rows.append([(label, "name soft"), big_number(value), percent(value / train)])
    whole = html.paragraph(
        f"FLOPs per image, means over {work.steps:,} steps. {percent(work.window_share)} of the steps had dense weight gradients. "
        f"Whole training so far: {big_number(per_step * work.steps * images)} FLOPs, dense {big_number(train * work.steps * images)}."
    )
    return _panel("Weights-only FLOPs", "count", note, html.table([("", "name"), "FLOPs", "of dense"], rows), whole)


def estimated(shot: Snapshot) -> str:
    """The paper's estimate: weights x activations."""
    note = html.paragraph(
        "An estimate that no kernel here realises: work if zero weights and zero inputs were both free. Forward pass of the "
        "convolutions only, as in the sparse-momentum paper; MACs stand for its measured times, these masks for its mean "
        "over training."
    )
    found = estimates(shot.rows)
    if not found:
        return _panel("Weights x activations", "estimate", note, html.notice("Activation densities were not measured."))
    head: list[Cell] = [("forward", "name"), "weights", "inputs", "both", "saving"]
    rows = [_estimate(item) for item in found]
    apart = (
        ""
        if found[0].group == "conv"
        else " This network has no convolution, so the paper's figure does not exist for it."
    )
    below = html.paragraph(
        f"Shares of dense MACs; only the line of convolutions is the paper's figure, the others stand apart.{apart} "
        f"Inputs: one batch of {shot.images} {shot.split} images."
    )
    return _panel("Weights x activations", "estimate", note, html.table(head, rows), below)


def _estimate(item: Estimate) -> list[Cell]:
    saving = f"{item.dense / item.both:.2f}x" if item.both else html.NONE
    shares = (item.weights / item.dense, item.activations / item.dense, item.both / item.dense)
    return [(f"{_GROUPS[item.group]} ({item.layers})", "name"), *(percent(share) for share in shares), saving]


def _panel(title: str, kind: str, *parts: str) -> str:
    return f'<div class="panel {kind}"><h3>{title}</h3>{"".join(parts)}</div>'
