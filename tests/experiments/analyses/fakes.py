"""Material of experiments that nobody ran."""

from regrow.analysis.statistics import Summary
from regrow.experiments.analyses import Material
from regrow.experiments.catalogue import find
from regrow.experiments.tables import Line


def material(name, tmp_path, cells, means, se=0.01, rows=()):
    ways = ["dense" if c.config.sparse.method == "dense" else "masked" for c in cells]
    table = [Line(c, Summary(5, mean, se), way) for c, mean, way in zip(cells, means, ways, strict=True)]
    return Material(find(name), cells, [0], table, rows, tmp_path, tmp_path)


def published(name, tmp_path, model=None):
    cells = find(name).chosen(model, None, None)
    return material(name, tmp_path, cells, [c.target.error for c in cells])
