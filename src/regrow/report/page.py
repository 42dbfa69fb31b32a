"""The page: sections in the order of a reader's questions."""

from __future__ import annotations

from html import escape
from importlib.resources import files as resources

from regrow.config import to_toml
from regrow.report import curves, html, maps, tables
from regrow.report.command import command
from regrow.report.history import History
from regrow.report.reading import RunFiles
from regrow.report.snapshot import Snapshot
from regrow.report.tables import duration, percent
from regrow.report.work import TrainingWork

SECTIONS = {
    "learning": "Accuracy and loss",
    "density": "Density per layer",
    "flow": "Flow of weights between layers",
    "churn": "Churn and exploration",
    "schedules": "Learning rate and prune rate",
    "layers": "Layers",
    "speed": "Speed and FLOPs",
    "configuration": "Configuration",
    "environment": "Environment",
    "reproduce": "Reproduce",
}


def page(files: RunFiles, past: History | None, shot: Snapshot, work: TrainingWork | None) -> str:
    """The whole document."""
    body = [
        _learning(files),
        _density(files, past, shot),
        _flow(files, past),
        _churn(files, past),
        _schedules(files),
        _layers(shot),
        _speed(files, shot, work),
        html.section("configuration", SECTIONS["configuration"], html.code(to_toml(files.config))),
        _environment(files),
        _reproduce(files),
    ]
    title = f"{files.config.model} on {_data(files)}"
    version, folder = str(files.environment.get("regrow", "")), files.folder.resolve().name
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            # A second lock: nothing acts and nothing is fetched, whatever a run's files hold.
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">",
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f'<title>{escape(title)} · regrow</title><link rel="icon" href="data:,">',
            f"<style>{resources('regrow.report').joinpath('style.css').read_text()}</style></head>",
            f"<body>{_header(files, title, shot, work)}",
            f"<main>{chr(10).join(body)}</main>",
            f"<footer>regrow {escape(version)} · run folder {escape(folder)}</footer></body></html>\n",
        ]
    )


def _data(files: RunFiles) -> str:
    # A path of one's own data: the last part says enough, and the page must not tell about the machine's folders.
    return files.config.data.name.rstrip("/").rsplit("/", 1)[-1]


def _header(files: RunFiles, title: str, shot: Snapshot, work: TrainingWork | None) -> str:
    config = files.config
    chip = f'<span class="state{"" if files.result else " open"}">{escape(_state(files))}</span>'
    lead = (
        f"{config.sparse.method} at density {config.sparse.density:g} ({config.sparse.scope} scope), seed {config.seed}. One run (n = 1): "
        "figures carry no error bar."
    )
    if shot.handle.method.fixed_counts is not None:
        lead = lead.replace(f" at density {config.sparse.density:g}", "")
    nav = "".join(f'<a href="#{anchor}">{escape(name)}</a>' for anchor, name in SECTIONS.items())
    cards = "".join(_cards(files, shot, work))
    return (
        f'<header><p class="brand">regrow</p><h1>{escape(title)} {chip}</h1><p class="lead">{escape(lead)}</p>{_reason(files)}'
        f'<div class="cards">{cards}</div><nav>{nav}</nav></header>'
    )


def _state(files: RunFiles) -> str:
    if files.diverged is not None:
        return f"diverged at step {files.diverged['steps']:,}"
    return "finished" if files.result else f"in progress, step {files.step:,}"


def _reason(files: RunFiles) -> str:
    return "" if files.diverged is None else f'<p class="lead">{escape(files.diverged["message"])}</p>'


def _cards(files: RunFiles, shot: Snapshot, work: TrainingWork | None) -> list[str]:
    config, environment = files.config, files.environment
    found = [_score_card(files)]
    if files.metrics:
        rows = [row for row in shot.rows if row.sparse]
        note = (
            f"{sum(r.nonzeros for r in rows):,} of {sum(r.numel for r in rows):,} weights" if rows else "sparse layers"
        )
        found.append(html.card("density", percent(files.metrics[-1]["density"]), note))
    if shot.handle.network.allowance.limit is not None:
        share, asked = shot.handle.network.allowance.share() or 0.0, shot.handle.settings.compute or 0.0
        kind = "MACs" if shot.handle.settings.milliseconds is None else "milliseconds"
        found.append(
            html.card("compute", percent(share), f"of dense {kind} in sparse layers; at most {percent(asked)}")
        )
    planned = f" of {files.total_steps:,}" if files.total_steps and files.total_steps != files.step else ""
    epochs = files.step / files.steps_per_epoch if files.steps_per_epoch else 0
    found.append(html.card("steps", f"{files.step:,}{planned}", f"{epochs:.3g} epochs, batch {config.data.batch}"))
    if files.speed:
        seconds = sum(row["seconds"] for row in files.speed)
        where = f"{environment.get('processor', 'unknown processor')}, {_threads(files)}"
        found.append(html.card("training time", duration(seconds), environment.get("gpu") or where))
    if work is not None:
        note = f"of dense FLOPs, by weights only; inference {percent(_inference(shot))}"
        found.append(html.card("training work", percent(work.fraction), note))
    return found


def _threads(files: RunFiles) -> str:
    count = files.environment.get("threads", "?")
    return f"{count} thread" if count == 1 else f"{count} threads"


def _inference(shot: Snapshot) -> float:
    return sum(r.kept_macs or 0 for r in shot.rows) / max(sum(r.macs or 0 for r in shot.rows), 1)


def _score_card(files: RunFiles) -> str:
    if files.result:
        top5 = files.result.get("test_top5")
        note = f"accuracy {100 * files.result['test_accuracy']:.2f}%" + (f", top-5 {100 * top5:.2f}%" if top5 else "")
        return html.card("test error", f"{files.result['test_error']:.2f}%", note)
    rows = files.rows("validation") or files.rows("train")
    if not rows:
        return html.card("test error", html.NONE, "nothing logged yet")
    last = rows[-1]
    return html.card(
        f"{last['kind']} error", f"{100 * (1 - last['accuracy']):.2f}%", f"at step {last['step']:,}; not tested yet"
    )


def _learning(files: RunFiles) -> str:
    name = SECTIONS["learning"]
    if not files.metrics:
        return html.section("learning", name, html.notice("Nothing was logged yet."))
    notes = [
        "The axis of accuracy is stretched towards 100%.",
        "Training: means since the row before, with augmentation and dropout where configured.",
    ]
    notes.append("Test: once, at the end." if files.result else "The test follows at the end of the run.")
    if not files.rows("validation"):
        notes.insert(1, "No validation data were held out or evaluated.")
    pair = html.side_by_side([html.drawing(curves.accuracy(files)), html.drawing(curves.loss(files))])
    return html.section("learning", name, pair, html.paragraph(" ".join(notes), "soft"))


def _no_updates(files: RunFiles) -> str:
    return html.paragraph(
        f"No topology update so far: the masks of {files.config.sparse.method} are those of the start."
    )


def _density(files: RunFiles, past: History | None, shot: Snapshot) -> str:
    name = SECTIONS["density"]
    if past is not None:
        caption = "Each row a layer, first to last; a colour holds until the next journaled update."
        return html.section("density", name, html.drawing(maps.density_map(past, files.step), caption, wide=True))
    if not shot.rows:
        return html.section("density", name, html.notice("Needs a topology update or a checkpoint."))
    bars = maps.density_bars([r.name for r in shot.rows], [r.density for r in shot.rows])
    return html.section("density", name, _no_updates(files), html.drawing(bars, wide=True))


def _flow(files: RunFiles, past: History | None) -> str:
    name = SECTIONS["flow"]
    if past is None:
        return html.section("flow", name, _no_updates(files))
    grown, removed, again = (int(a.sum()) for a in (past.grown, past.removed, past.regrown))
    updates = len(past.steps) - 1
    count = f"{updates:,} journaled topology update{'' if updates == 1 else 's'}"
    lead = f"{count} removed {removed:,} and grew {grown:,} weights; {again:,} came back at once."
    notes = [html.paragraph(lead), *_rarely(files)]
    if past.net.any():
        caption = "Green: the layer gained weights, brown: it lost them; logarithmic beyond the middle."
        map_or_word = html.drawing(maps.flow_map(past, files.step), caption, wide=True)
    else:
        map_or_word = html.paragraph("No weight moved between layers: every layer kept its number of weights.")
    return html.section("flow", name, *notes, map_or_word, html.drawing(curves.turnover(past), wide=True))


def _rarely(files: RunFiles) -> list[str]:
    if files.journals_all:
        return []
    text = (
        "This method rewires often and journals only some updates: removed, grown and ever-active weights are those of "
        "journaled updates; densities and net movement are exact."
    )
    return [html.notice(text)]


def _churn(files: RunFiles, past: History | None) -> str:
    name = SECTIONS["churn"]
    if past is None:
        return html.section("churn", name, _no_updates(files))
    note = (
        "Change: distance to the mask before. Distance of two masks: share of weights not common to both, 0% for equal and 100% for "
        "disjoint masks. Ever active: "
        "share of all positions that were present at some time (R_s of in-time over-parameterisation)."
    )
    return html.section(
        "churn", name, html.side_by_side(map(html.drawing, curves.churn(past))), html.paragraph(note, "soft")
    )


def _schedules(files: RunFiles) -> str:
    name = SECTIONS["schedules"]
    if not files.rows("train"):
        return html.section("schedules", name, html.notice("Nothing was logged yet."))
    return html.section("schedules", name, html.side_by_side(map(html.drawing, curves.schedules(files))))


def _layers(shot: Snapshot) -> str:
    notices = [html.notice(text) for text in shot.notices]
    if not shot.rows:
        return html.section("layers", SECTIONS["layers"], *notices)
    note = (
        f"At step {shot.step:,}, the newest checkpoint. MACs: multiply-accumulates of one image's forward pass. Input non-zero: "
        "share of non-zero entries in what the layer receives. Empty: channels without a single weight; an empty output is a dead unit, "
        "the same for every image (its bias, or what a norm makes of it)."
    )
    parts = [html.paragraph(note, "soft"), tables.layers(shot.rows), "<h3>Sizes</h3>", tables.sizes(shot)]
    return html.section("layers", SECTIONS["layers"], *notices, *parts)


def _speed(files: RunFiles, shot: Snapshot, work: TrainingWork | None) -> str:
    panels = tables.measured(files) + tables.counted(shot, work, tables.images_per_step(files)) + tables.estimated(shot)
    lead = html.paragraph("Three figures that mean different things and must not be mixed.")
    return html.section("speed", SECTIONS["speed"], lead, f'<div class="figures">{panels}</div>')


def _environment(files: RunFiles) -> str:
    known = [(name, "none" if value is None else str(value)) for name, value in files.environment.items()]
    body = html.facts(known) if known else html.notice("The run's folder has no environment.json.")
    return html.section("environment", SECTIONS["environment"], body)


def _reproduce(files: RunFiles) -> str:
    line = command(files.config)
    parts = []
    if line is not None:
        parts += [html.paragraph("From the nearest preset:"), html.code(line)]
    parts += [
        html.paragraph("From the configuration above, saved as run.toml:"),
        html.code("regrow train run.toml --out runs/again"),
    ]
    torch = files.environment.get("torch", "?")
    parts.append(
        html.paragraph(
            f"Bit for bit with torch {torch}, {_threads(files)} and the same processor; elsewhere the same up to rounding.",
            "soft",
        )
    )
    return html.section("reproduce", SECTIONS["reproduce"], *parts)
