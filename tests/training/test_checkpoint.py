"""Checkpoints: exact round trips, atomic, rotating, and damage that is noticed."""

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regrow.errors import CheckpointWarning, StateError
from regrow.files import checksum
from regrow.training import checkpoint
from regrow.training.checkpoint import Checkpoints, DamageError, join, read, split

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool)


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=5))
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))).mul(9)
    tensor = tensor.to(draw(st.sampled_from(DTYPES)))
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(len(shape))
    return tensor.contiguous(memory_format=last) if last is not None and draw(st.booleans()) else tensor


names = st.one_of(st.text(max_size=6), st.sampled_from(["$tensor", "$keyed", "$format"]))
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5), tensors())
states = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(names, inner, max_size=3),
        st.dictionaries(st.one_of(st.integers(), st.text(max_size=3)), inner, max_size=3),
    ),
    max_leaves=12,
)


def same(a, b):
    if isinstance(a, Tensor):
        return (
            isinstance(b, Tensor)
            and (a.dtype, a.shape) == (b.dtype, b.shape)
            and (
                not a.numel()
                or [s for s, n in zip(a.stride(), a.shape, strict=True) if n > 1]
                == [s for s, n in zip(b.stride(), b.shape, strict=True) if n > 1]
            )
            and torch.equal(a, b)
        )
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@given(states)
def test_split_and_join_are_inverse_through_json(state):
    plain, found = split(state)
    assert same(join(json.loads(json.dumps(plain)), found), state)


@settings(max_examples=50)
@given(states)
def test_saved_state_comes_back(tmp_path_factory, state):
    folder = tmp_path_factory.mktemp("checkpoints")
    state = {"inner": state}
    assert same(read(Checkpoints(folder).save(3, state)), state)
    shutil.rmtree(folder)


def test_tied_tensors_are_stored_apart(tmp_path):
    shared = torch.arange(6.0)
    path = Checkpoints(tmp_path).save(1, {"a": shared, "b": shared, "part": shared[2:4]})
    assert same(read(path), {"a": shared, "b": shared.clone(), "part": shared[2:4].clone()})


@pytest.mark.parametrize("state", [{"x": object()}, {("a", 1): 2}, {"x": {1, 2}}])
def test_what_is_neither_tensor_nor_plain_is_refused(state):
    with pytest.raises(StateError, match="checkpoint"):
        split(state)


def test_no_pickle_anywhere(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("pickle")

    for name in ("dump", "dumps", "load", "loads"):
        monkeypatch.setattr(pickle, name, refuse)
    for name in ("save", "load"):
        monkeypatch.setattr(torch, name, refuse)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"w": torch.ones(3)})
    assert torch.equal(checkpoints.latest()[1]["w"], torch.ones(3))
    package = Path(checkpoint.__file__).parents[1]
    sources = [path for path in package.rglob("*.py") if package / "testing" not in path.parents]
    unsafe = re.compile(r"import pickle|torch\.load\((?!.*weights_only=True)")
    assert not [path for path in sources if unsafe.search(path.read_text())]


def test_rotation_keeps_two(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (9, 10, 99_999_999, 100_000_000):
        checkpoints.save(step, {"step": step})
    assert [p.name for p in checkpoints.paths()] == ["step-99999999", "step-100000000"]
    assert checkpoints.latest() == (100_000_000, {"step": 100_000_000})
    assert sorted(os.listdir(tmp_path)) == ["step-100000000", "step-99999999"]


def test_a_save_killed_before_older_checkpoints_went_is_tidied_by_the_next(tmp_path):
    killed = Checkpoints(tmp_path, keep=3)
    for step in (1, 2, 3):
        killed.save(step, {"step": step})
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, {"step": 3})
    assert [p.name for p in checkpoints.paths()] == ["step-00000002", "step-00000003"]


def test_saving_a_step_twice_keeps_the_first(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    path = checkpoints.save(1, {"a": 1})
    before = (path / "manifest.json").stat().st_mtime_ns
    checkpoints.save(1, {"a": 1})
    assert (path / "manifest.json").stat().st_mtime_ns == before


def cut(path):
    path.write_bytes(path.read_bytes()[:-3])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def garble(path):
    path.write_text("[1, 2")


DAMAGES = [cut, flip, os.remove, garble, lambda path: path.write_bytes(b""), lambda path: path.write_text("[]")]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
def test_damage_is_noticed_and_the_checkpoint_before_is_used(tmp_path, name, damage):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.save(step, {"w": torch.full((50,), float(step)), "text": "x" * 50})
    damage(tmp_path / "step-00000002" / name)
    with pytest.warns(UserWarning, match=r"step-00000002.*trying the checkpoint before"):
        step, state = checkpoints.latest()
    assert step == 1
    assert state["w"][0] == 1
    checkpoints.drop_after(step)
    assert [p.name for p in checkpoints.paths()] == ["step-00000001"]


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(0, 255))
def test_any_changed_byte_is_noticed(tmp_path_factory, place, value):
    folder = tmp_path_factory.mktemp("bytes")
    path = Checkpoints(folder).save(1, {"w": torch.arange(5.0), "n": 3})
    for name in ("tensors.safetensors", "state.json"):
        content = bytearray((path / name).read_bytes())
        original = bytes(content)
        content[place % len(content)] = value
        (path / name).write_bytes(bytes(content))
        if bytes(content) != original:
            with pytest.raises(StateError, match=name):
                read(path)
        (path / name).write_bytes(original)
    shutil.rmtree(folder)


def test_no_whole_checkpoint_is_an_error_that_names_the_remedy(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        cut(checkpoints.save(step, {"w": torch.ones(3)}) / "tensors.safetensors")
    with (
        pytest.warns(UserWarning, match="SHA-256"),
        pytest.raises(StateError, match=r"no checkpoint .* delete that folder"),
    ):
        checkpoints.latest()
    assert len(checkpoints.paths()) == 2


def test_no_checkpoint_at_all_is_a_fresh_start(tmp_path):
    assert Checkpoints(tmp_path / "missing").latest() is None
    assert Checkpoints(tmp_path).latest() is None


def test_unfinished_ones_are_neither_read_nor_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"a": 1})
    shutil.copytree(tmp_path / "step-00000001", tmp_path / ".unfinished-00000002")
    (tmp_path / ".unfinished-step-00000000").mkdir()
    assert checkpoints.latest() == (1, {"a": 1})
    checkpoints.clean()
    assert os.listdir(tmp_path) == ["step-00000001"]


def test_a_save_that_fails_leaves_no_checkpoint(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"a": 1})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_through", full)
    with pytest.raises(OSError, match="No space"):
        checkpoints.save(2, {"a": 2})
    assert checkpoints.latest() == (1, {"a": 1})
    monkeypatch.undo()
    checkpoints.save(2, {"a": 2})
    assert checkpoints.latest() == (2, {"a": 2})


def test_files_reach_the_disk_before_the_rename(tmp_path, monkeypatch):
    events = []
    real_rename, real_sync = os.rename, os.fsync
    monkeypatch.setattr(checkpoint.os, "rename", lambda a, b: (events.append("rename"), real_rename(a, b)))
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append("fsync"), real_sync(fd)))
    Checkpoints(tmp_path).save(1, {"w": torch.ones(2)})
    assert events == ["fsync"] * 4 + ["rename", "fsync"]


def test_folders_with_other_names_are_ignored(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for name in ("step-foo", "step-", "step-00000007 (copy)"):
        (tmp_path / name).mkdir()
    assert checkpoints.latest() is None
    for step in (1, 2, 3):
        checkpoints.save(step, {"step": step})
    assert checkpoints.latest() == (3, {"step": 3})
    assert [path.name for path in checkpoints.paths()] == ["step-00000002", "step-00000003"]
    assert (tmp_path / "step-foo").is_dir()


def test_a_renamed_checkpoint_is_refused_and_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (10, 20):
        checkpoints.save(step, {"step": step})
    os.rename(tmp_path / "step-00000020", tmp_path / "step-00000072")
    with pytest.raises(StateError, match=r"step-00000072 holds step 20: give its folder the name step-00000020 again"):
        checkpoints.latest()
    assert len(checkpoints.paths()) == 2


def test_a_checkpoint_that_cannot_be_opened_stops_and_is_kept(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.save(step, {"step": step})
    original = Path.read_bytes

    def refuse(path):
        if "step-00000002" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return original(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(
        StateError, match=r"step-00000002 cannot be opened \(Permission denied\): make its files readable"
    ):
        checkpoints.latest()
    assert len(checkpoints.paths()) == 2


def forge(path, **contents):
    """Files of a checkpoint replaced, with the right checksums."""
    manifest = json.loads((path / "manifest.json").read_text())
    for name, content in contents.items():
        file = {"state": "state.json", "tensors": "tensors.safetensors"}[name]
        (path / file).write_bytes(content)
        manifest["sha256"][file] = checksum(content)
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "content", [b"[" * 200_000, b"[]", b"null", b'{"w": {"$tensor": "t9"}}', b'{"w": {"$tensor": []}}']
)
def test_a_forged_state_is_damage(tmp_path, content):
    path = Checkpoints(tmp_path).save(1, {"w": torch.ones(2)})
    forge(path, state=content)
    with pytest.raises(DamageError, match="cannot be read"):
        read(path)


def test_a_folder_or_a_pipe_in_place_of_a_file_is_damage(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step, make in ((1, os.mkdir), (2, os.mkfifo)):
        path = checkpoints.save(step, {"w": torch.ones(2)})
        os.remove(path / "state.json")
        make(path / "state.json")
        with pytest.raises(DamageError, match=r"state\.json is no file"):
            read(path)


def test_checkpoints_that_are_a_link_are_refused_and_nothing_is_removed(tmp_path):
    other = tmp_path / "other"
    (other / ".unfinished-1").mkdir(parents=True)
    (tmp_path / "checkpoints").symlink_to(other)
    with pytest.raises(StateError, match=r"is a link.*--out"):
        Checkpoints(tmp_path / "checkpoints").clean()
    assert (other / ".unfinished-1").is_dir()


def test_links_among_checkpoints_are_removed_not_followed(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    folder = tmp_path / "checkpoints"
    checkpoints = Checkpoints(folder)
    checkpoints.save(1, {"step": 1})
    (folder / ".unfinished-x").symlink_to(other)
    (folder / "step-00000005").symlink_to(other)
    (folder / "step-00000006").touch()
    checkpoints.clean()
    with pytest.warns(CheckpointWarning):
        assert checkpoints.latest()[0] == 1
    checkpoints.drop_after(1)
    assert os.listdir(folder) == ["step-00000001"]
    assert (other / "file").exists()


def test_without_memory_the_checkpoint_is_named(tmp_path, monkeypatch):
    class PanicException(BaseException):  # as safetensors raises it
        pass

    def panic(_):
        raise PanicException("out of memory")

    monkeypatch.setattr(checkpoint, "serialise_tensors", panic)
    with pytest.raises(OSError, match=r"cannot be written \(Cannot allocate memory\): '.*step-00000003'"):
        Checkpoints(tmp_path).save(3, {"w": torch.ones(2)})
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path, monkeypatch, name):
    written = checkpoint.write_through

    def full(path, content):
        if path.name != name:
            return written(path, content)
        path.write_bytes(content[:3])
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(checkpoint, "write_through", full)
    with pytest.raises(OSError, match=rf"cannot be written \(No space left on device\): '.*/step-00000002/{name}'"):
        Checkpoints(tmp_path).save(2, {"a": 2})
    assert not os.listdir(tmp_path)


LIMITED = """
import resource, sys, torch
from pathlib import Path
from regrow.training.checkpoint import Checkpoints
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    Checkpoints(Path(sys.argv[1])).save(2, {"step": 2, "w": torch.zeros(int(sys.argv[2])), "text": "x" * int(sys.argv[3])})
except OSError as error:
    print(error)
"""


@pytest.mark.parametrize(("numbers", "letters", "name"), [(5000, 0, "tensors.safetensors"), (1, 5000, "state.json")])
def test_a_limit_on_sizes_names_the_file_and_leaves_nothing(tmp_path, numbers, letters, name):
    command = [sys.executable, "-c", LIMITED, str(tmp_path), str(numbers), str(letters)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.search(rf"cannot be written \(File too large\): '.*/step-00000002/{name}'", said)
    assert not os.listdir(tmp_path)


def test_where_no_file_is_to_blame_the_checkpoint_is_named(tmp_path, monkeypatch):
    def refuse(path):
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(checkpoint, "sync_directory", refuse)
    with pytest.raises(OSError, match=r"cannot be written \(Input/output error\): '.*/step-00000002'"):
        Checkpoints(tmp_path).save(2, {"a": 2})
    assert not os.listdir(tmp_path)
