"""The table of records."""

import json

from regrow.bench import summary


def write(folder, file, rows):
    (folder / f"{file}.json").write_text(json.dumps({"rows": rows}))


def test_medians_of_the_right_records_with_goals(tmp_path):
    names = ("64->64@32", "128->128@16", "256->256@8", "512->512@4", "512->512@2")
    layers = [
        {"layer": f"conv 3x3/1 {name} batch 128", "density": 0.05, "ratio": ratio}
        for name, ratio in zip(names, (6, 7, 8, 9, 99), strict=True)
    ]
    layers.append({"layer": "linear 4096->4096 batch 128", "density": 0.1, "ratio": 3.0, "compact_ratio": 4.04})
    folder = tmp_path / "avx2"
    folder.mkdir()
    write(folder, "layers", layers)
    write(folder, "vgg16-d", [{"density": 0.05, "ratio": 5.0, "step_ratio": 6.0, "epoch_ratio": None}])
    write(folder, "wrn-16-8", [])
    lines = summary.table(folder, "5,10,goals").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["", "5%", "10%"]
    assert cells[2:] == [
        ["3x3 conv, batch 128, median of 64@32, 128@16, 256@8, 512@4", "7.5x (9x)", ""],
        ["linear 4096 x 4096, batch 128", "", "3.0x"],
        ["the same, compact storage", "", "4.0x (5x)"],
        ["VGG16-D, forward + backward, batch 128", "5.0x", ""],
        ["the same with SGD", "6.0x (8x)", ""],
    ]
    assert "7.5x (8x)" in summary.table(folder.rename(tmp_path / "avx512"), "5,goals")


def test_what_was_not_measured_is_left_out(tmp_path):
    write(tmp_path, "layers", [{"layer": "conv 1x1/1 256->256@16 batch 128", "density": 0.05, "ratio": 6.04}])
    assert summary.table(tmp_path, "5").splitlines()[2:] == ["| 1x1 conv, median of 256@16 and 512@8 | 6.0x |"]


def test_real_masks_beside_their_bound(tmp_path):
    rows = [
        {"density": 0.1000001, "bound": 2.5, "bound_share": 0.8, "ratio": 2.0, "step_ratio": 2.1},
        {"density": 0.05, "bound": 4.0, "bound_share": 0.7, "ratio": 2.8, "step_ratio": 2.9},
    ]
    write(tmp_path, "vgg16-d-masks", rows)
    lines = summary.masks(tmp_path).splitlines()
    assert lines[2:] == ["| 5% | 25% | 4.0x | 2.8x | 70% | 2.9x |", "| 10% | 40% | 2.5x | 2.0x | 80% | 2.1x |"]


def test_overhead_is_shown_as_relative_speed(tmp_path):
    record = {
        "network": "net",
        "batch": [64, 3, 8, 8],
        "rounds": 7,
        "ratio": 1.25,
        "ratio_lowest": 0.8,
        "ratio_highest": 2.0,
    }
    (tmp_path / "overhead.json").write_text(json.dumps({"results": [record | {"alone_share": 0.012}]}))
    assert "| net | 64 | 7 | 0.800, 0.50 .. 1.25 | 1.2% |" in summary.overhead(tmp_path)
