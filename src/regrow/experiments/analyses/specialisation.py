"""Class specialisation of channels, dense against sparse, beside the paper's."""

from __future__ import annotations

from regrow.analysis.features import Comparison
from regrow.experiments.analyses.feature_pairs import Pair, analyse_pair, channels_of, pairs
from regrow.experiments.analyses.material import Material
from regrow.experiments.tables import markdown, number
from regrow.experiments.targets import FEATURES

_COLLAPSED = "Not analysed: one of the two networks has collapsed.\n"
_NOT_MEASURED = "Not analysed yet: the same command without --tables-only, where the runs are, measures the channels.\n"


def describe(material: Material) -> str:
    """Class specialisation of each pair of a dense and a sparse network with the same seed, where both learned."""
    titled = (
        f"Class specialisation, {pair.model}, seed {pair.seed}\n\n{_features_of(pair, material)}"
        for pair in pairs(material.cells, material.rows)
    )
    return "\n".join(titled)


def _features_of(pair: Pair, material: Material) -> str:
    if not pair.learned:
        return _COLLAPSED
    found = channels_of(pair, material.folder, material.results, material.measures)
    if found is None:
        return _NOT_MEASURED
    return described(pair.model, analyse_pair(pair, *found, material.results))


def described(model: str, comparison: Comparison) -> str:
    """The pooled test and those of the layers, beside the means that the authors stored, where they have the network."""
    paper = FEATURES.get(model)
    header = ["layer", "channels dense / sparse", "mean S dense / sparse", "H", "p", "p (Holm)"]
    tests = [comparison.pooled, *comparison.layers]
    rows = [
        [
            test.layer,
            f"{test.dense_channels} / {test.sparse_channels}",
            f"{test.dense_mean:.4f} / {test.sparse_mean:.4f}",
            number(test.statistic, ".2f"),
            number(test.p, ".2g"),
            number(test.corrected, ".2g"),
        ]
        for test in tests
    ]
    if paper is None:
        return markdown(header, rows)
    stored = [f"{dense:.4f} / {sparse:.4f}" for dense, sparse in (paper.means, *zip(*paper.layers, strict=True))]
    rows = [[*row, mean] for row, mean in zip(rows, stored, strict=True)]
    head = (
        f"Paper: {paper.printed}. The channels that its authors stored, {paper.channels[0]} / {paper.channels[1]}, give "
        f"H = {paper.statistic:g}, p = {paper.p:.2g}.\n\n"
    )
    return head + markdown([*header, "theirs, mean S dense / sparse"], rows)
