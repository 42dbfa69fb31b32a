"""Tests of class specialisation beside the paper's."""

from regrow.analysis.features import Comparison, LayerTest
from regrow.experiments.analyses.specialisation import described


def test_features_stand_beside_the_papers():
    names = [f"relu{number}" for number in range(1, 6)]
    comparison = Comparison(
        LayerTest("all", 1200, 800, 0.2, 0.18, 30.0, 4e-8),
        [LayerTest(name, 240, 160, 0.15, 0.14, 2.5, 0.11, 0.55) for name in names],
    )
    text = described("alexnet-s", comparison)
    assert (
        "Paper: H = 4.43, p = 0.035. The channels that its authors stored, 1214 / 813, give H = 31.68, p = 1.8e-08.\n"
        in text
    )
    assert "| all | 1200 / 800 | 0.2000 / 0.1800 | 30.00 | 4e-08 |  | 0.1973 / 0.1800 |" in text
    assert "| relu5 | 240 / 160 | 0.1500 / 0.1400 | 2.50 | 0.11 | 0.55 | 0.2927 / 0.2496 |" in text
    assert "Paper" not in described("another network", comparison)
