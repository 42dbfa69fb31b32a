"""The picture of a handle, and tables in notebooks."""

import copy

import numpy as np
import torch
from rich.table import Table
from torch import nn

import regrow
from regrow.text import as_html


def trained(steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    handle = regrow.sparsify(model, optimizer, density=0.3, steps=40, update_every=5)
    inputs, targets = torch.randn(32, 12), torch.randint(4, (32,))
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    return handle, optimizer


def test_before_the_first_update_densities_are_bars():
    handle, _ = trained(0)
    (axes,) = handle.plot().axes
    assert [bar.get_width() for bar in axes.patches] == [100 * row.density for row in handle.plan() if row.sparse]


def test_densities_and_flow_are_the_journals():
    handle, _ = trained(12)
    figure = handle.plot()
    densities, flow = figure.axes
    for line, layer in zip(densities.lines, handle.journal[-1].layers, strict=True):
        assert line.get_label() == layer.layer
        assert np.isclose(line.get_ydata()[-1], 100 * layer.density)
    gains = [layer.after - layer.before for record in handle.journal for layer in record.layers]
    assert sorted(bar.get_height() for bar in flow.patches) == sorted(gains)
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_plan_explanation_and_journal_are_tables_in_notebooks():
    handle, _ = trained(12)
    for shown in (handle.plan(), handle.explain(), handle.journal):
        html = shown._repr_html_()
        assert html.startswith("<table>")
        assert "<td>0</td>" in html, "the first layer"
    assert handle.journal._repr_html_().count("<tr>") == 1 + 2 * len(handle.journal[-1].layers)


def test_the_journal_stays_a_list():
    handle, _ = trained(12)
    assert handle.journal == list(handle.journal)
    assert copy.deepcopy(handle.journal) == handle.journal
    state = handle.state_dict()
    again, _optimizer = trained(0)
    again.load_state_dict(state)
    assert again.journal == handle.journal
    assert again.journal._repr_html_() == handle.journal._repr_html_()


def test_html_is_escaped():
    table = Table("<b>", title="[bold]x[/bold] & y", caption="one\ntwo")
    table.add_row("\\[0]")
    assert as_html(table) == (
        "<table><caption>x &amp; y</caption><thead><tr><th>&lt;b&gt;</th></tr></thead>"
        "<tbody><tr><td>[0]</td></tr></tbody></table><p>one</p><p>two</p>"
    )
