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
    layers.append({"layer": "linear 4096->4096 batch 128", "density": 0.1, "ratio": 4.04})
    write(tmp_path, "layers", layers)
    write(tmp_path, "vgg16-d", [{"density": 0.05, "ratio": 5.0, "step_ratio": 6.0, "epoch_ratio": None}])
    write(tmp_path, "wrn-16-8", [])
    lines = summary.table(tmp_path, "5,10,goals").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["", "5%", "10%"]
    found = {(row[0], place): row[1:] for place, row in enumerate(cells[2:])}
    assert found["3x3 conv, batch 128, median of 64@32, 128@16, 256@8, 512@4", 0] == ["7.5x (8x)", ""]
    assert found["linear 4096 x 4096, batch 128", 1] == ["", "4.0x (4.5x)"]
    assert found["VGG16-D, forward + backward, batch 128", 3] == ["5.0x (5x)", ""]
    assert found["the same with SGD", 4] == ["6.0x", ""]
    assert found["the same over an epoch with growth windows", 5] == ["", ""]
