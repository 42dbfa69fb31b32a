"""The file is small, complete, readable by others, and refused when anything about it is wrong."""

import json
import os
import random
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from regrow import models
from regrow.errors import ConfigurationError, StateError
from regrow.shipping import file
from regrow.shipping.architecture import registry_entry
from tests.support.networks_to_ship import masks_of

PAGE = Path(__file__).parents[2] / "docs" / "sparse_file.md"


def small_file(path, values="float32", density=0.1):
    model = models.create("lenet300-bn", seed=0, input_shape=(1, 5, 5))
    masks = masks_of(model, density)
    stored = file.store(
        model.state_dict(), masks, registry_entry("lenet300-bn", {"input_shape": (1, 5, 5)}), values=values
    )
    file.write(path, stored)
    return model, masks, path.read_bytes()


def parts_of(content):
    """Header and tensors of a safetensors file."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length])["__metadata__"], load(content)


def signed(metadata, tensors):
    """A file whose checksum is right, whatever else is wrong with it."""
    return save(tensors, {**metadata, "sha256": file.digest(metadata, tensors)})


@pytest.mark.parametrize("values", ["float32", "bfloat16", "float16"])
def test_read_gives_what_was_written(tmp_path, values):
    model, masks, _ = small_file(tmp_path / "a.safetensors", values)
    stored = file.read(tmp_path / "a.safetensors")
    state, found = stored.state_dict()
    assert stored.architecture == {"model": "lenet300-bn", "options": {"input_shape": [1, 5, 5]}}
    assert {name: mask.equal(masks[name]) for name, mask in found.items()} == dict.fromkeys(masks, True)
    for name, tensor in model.state_dict().items():
        wanted = tensor * masks[name] if name in masks else tensor
        kind = getattr(torch, values) if wanted.ndim > 1 else wanted.dtype
        assert torch.equal(state[name], wanted.to(kind).to(tensor.dtype))


@pytest.mark.parametrize("values", ["float32", "bfloat16", "float16"])
def test_numpy_reader_of_the_docs_gets_the_same(tmp_path, values):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    for density in (0.03, 0.3):
        small_file(tmp_path / "a.safetensors", values, density)
        namespace = {}
        exec(code, namespace)
        found = namespace["read"](tmp_path / "a.safetensors")
        state, _ = file.read(tmp_path / "a.safetensors").state_dict()
        assert set(found) == set(state)
        assert all(torch.equal(torch.tensor(found[name]), tensor) for name, tensor in state.items())


@pytest.mark.parametrize(
    ("density", "values", "share"),
    [(0.05, "float32", 0.077), (0.1, "float32", 0.133), (0.05, "bfloat16", 0.052), (0.1, "bfloat16", 0.084)],
)
def test_vgg_file_is_as_small_as_promised(tmp_path, density, values, share):
    model = models.create("vgg16-d", seed=0)
    size = file.write(tmp_path / "v", file.store(model.state_dict(), masks_of(model, density), values=values))
    assert size <= share * len(save(model.state_dict()))


def test_present_zeros_stay_present(tmp_path):
    weight, mask = torch.zeros(4, 6), torch.zeros(4, 6, dtype=torch.bool)
    mask[1, 2] = mask[3, 5] = True
    file.write(tmp_path / "a", file.store({"w": weight}, {"w": mask}))
    assert torch.equal(file.read(tmp_path / "a").state_dict()[1]["w"], mask)


def test_tied_weights_are_stored_once(tmp_path):
    model = nn.ModuleDict({"a": nn.Linear(64, 64, bias=False), "b": nn.Linear(64, 64, bias=False)})
    model["b"].weight = model["a"].weight
    size = file.write(tmp_path / "a", file.store(model.state_dict(), {"b.weight": torch.rand(64, 64) < 0.5}))
    assert size < 12_000
    state, masks = file.read(tmp_path / "a").state_dict()
    assert state["a.weight"] is state["b.weight"]
    assert set(masks) == {"b.weight"}


def test_masks_that_do_not_fit_are_refused():
    with pytest.raises(StateError, match="no such tensor"):
        file.store({"w": torch.ones(2)}, {"v": torch.ones(2, dtype=torch.bool)})
    with pytest.raises(StateError, match="has shape"):
        file.store({"w": torch.ones(2)}, {"w": torch.zeros(3, dtype=torch.bool)})
    with pytest.raises(ConfigurationError, match="did you mean 'float32'"):
        file.store({"w": torch.ones(2)}, {}, values="float23")


def test_names_that_would_meet_are_refused(tmp_path):
    mask = torch.tensor([[True, False]])
    stored = file.store({"w": torch.ones(1, 2), "w.values": torch.ones(3)}, {"w": mask})
    with pytest.raises(StateError, match="same name"):
        file.write(tmp_path / "a", stored)


def damaged(content, rng):
    """The file with one accident: bits flipped, cut, lengthened, bytes replaced, swapped, zeroed."""
    data, at = bytearray(content), rng.randrange(len(content))
    kind = rng.randrange(6)
    if kind == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        data += bytes(rng.randrange(256) for _ in range(rng.randint(1, 9)))
    elif kind == 3:
        del data[at : at + rng.randint(1, 9)]
    elif kind == 4:
        data[at:at] = bytes([rng.randrange(256)])
    else:
        span = rng.randint(1, 64)
        data[at : at + span] = bytes(rng.randrange(256) for _ in data[at : at + span])
    return bytes(data)


def tampered(content, rng):
    """The file with one lie and a right checksum: a part missing, of another size, type or content, another shape, a foreign part."""
    metadata, tensors = parts_of(content)
    index = json.loads(metadata["tensors"])
    name = rng.choice(sorted(index))
    entry, parts = index[name], [part for part in tensors if part.startswith(f"{name}.")]
    part, kind = rng.choice(parts), rng.randrange(6)
    if kind == 0:
        del tensors[part]
    elif kind == 1:
        tensors[part] = tensors[part][:-1]
    elif kind == 2:
        tensors[part] = tensors[part].to(torch.float64) if "values" not in part else tensors[part].to(torch.int64)
    elif kind == 3:
        entry["shape"] = rng.choice(
            [[], [7], [-1, -1], [2**40, 2**40], ["a"], [True, 2], None, [entry["shape"][0] + 1, 25]]
        )
    elif kind == 4:
        entry["layout"] = rng.choice(["csr" if entry["layout"] == "bitmask" else "bitmask", "dense", "x", None, 3])
    else:
        index[rng.choice(["fc9.weight", name + "x"])] = rng.choice([{"same_as": "nothing"}, {"layout": "csr"}, {}, 5])
    return signed({**metadata, "tensors": json.dumps(index)}, tensors)


@pytest.mark.parametrize("accident", [damaged, tampered])
def test_corrupted_files_are_refused(tmp_path, accident):
    """2,000 in all with REGROW_DEEP=1, a sample otherwise."""
    path, rng = tmp_path / "a.safetensors", random.Random(0)
    sources = [small_file(path, density=density)[2] for density in (0.02, 0.3)]
    for _ in range(1000 if os.environ.get("REGROW_DEEP") else 150):
        content = rng.choice(sources)
        broken = accident(content, rng)
        if broken == content:
            continue
        path.write_bytes(broken)
        with pytest.raises(StateError, match="is refused"):
            file.read(path)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"format": "pt"}, "not a file that regrow wrote"),
        ({"version": "2"}, "version 2, this regrow reads 1"),
        ({"sha256": "0" * 64}, "SHA-256"),
        ({"more": "x"}, "must be the texts"),
        ({"tensors": "[" * 100_000}, "refused"),
        ({"tensors": '{"a": {"same_as": "b"}, "a": {"same_as": "c"}}'}, "twice"),
        ({"about": "[]"}, "not what the format says"),
        ({"architecture": "3"}, "not what the format says"),
    ],
)
def test_metadata_is_checked(tmp_path, change, what):
    path = tmp_path / "a.safetensors"
    metadata, tensors = parts_of(small_file(path)[2])
    changed = {**metadata, **change}
    path.write_bytes(save(tensors, changed) if "sha256" in change else signed(changed, tensors))
    with pytest.raises(StateError, match=what):
        file.read(path)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    for content in (b"", b"x", b"\xff" * 8, save({"w": torch.ones(2)}), b"PK\x03\x04" + bytes(100)):
        path.write_bytes(content)
        with pytest.raises(StateError, match="is refused"):
            file.read(path)
