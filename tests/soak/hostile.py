"""Hostile configurations and data files: one-line errors only, no hang, memory bounded.

Cases run in children of many each, under limits on memory and time. A child writes down each case before it begins, so that a crash or a
hang names its case. What is accepted of a configuration must come back the same from its own TOML.
"""

import contextlib
import gzip
import io
import json
import os
import random
import resource
import shutil
import signal
import tarfile
import tempfile
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from regrow import data
from regrow.config import load, to_toml
from regrow.data.errors import SourceError
from regrow.data.idx import dump_idx
from regrow.data.unpack import cifar10_from_png, mnist_from_csv, tar_members
from regrow.errors import RegrowError
from regrow.presets import PRESETS
from regrow.training.forms import is_ending, read_json
from regrow.training.plan import plan_of
from tests.soak.mutations import mutated

GOAL = {"cases": 4500}
ZERO = ("tracebacks", "hangs", "crashes", "over memory")
MEMORY = 3 << 30
"""Bytes a child may take beyond what it began with."""
CASE_SECONDS = 60
PER_CHILD = 150
VALUES = (
    "1" * 400, "-1", "0", "1e400", "nan", "inf", "''", "'../../etc/passwd'", "[]", "[[[[1]]]]", "{}", "{a = {b = 1}}", "true", "1979-05-27",
    "9223372036854775808", "0.5", "'x'", "[1, 'a', 2.5]", "'\\u0000'", "07:32:00", "[nan]", "{lr = 1}", "2147483648",
)  # fmt: skip


def run(deadline, first):
    counts = dict.fromkeys((*GOAL, *ZERO, "refused", "accepted"), 0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="regrow-hostile-") as work:
        seeds = originals(Path(work))
        while time.monotonic() < deadline or not counts["cases"]:
            begin = first + counts["cases"]
            for name, count in children(
                begin, min(PER_CHILD, begin % 7 * 10 + 80), deadline, seeds, Path(work)
            ).items():
                counts[name] = counts.get(name, 0) + count
    return counts


def children(begin, number, deadline, seeds, work):
    """Do cases in a child; what it did, and the case that ended it if one did."""
    log, counts = work / "log.jsonl", dict.fromkeys((*GOAL, *ZERO), 0)
    log.write_text("")
    child = os.fork()
    if not child:
        try:
            limit()
            for case in range(begin, begin + number):
                if time.monotonic() > deadline and case > begin:
                    break
                note(log, {"begun": case})
                signal.alarm(CASE_SECONDS)
                note(log, {"case": case, **attempt(case, seeds, work / "case")})
        finally:
            os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    for row in rows:
        if "case" in row:
            counts["cases"] += 1
            counts[row["outcome"]] = counts.get(row["outcome"], 0) + 1
            if row["outcome"] in ZERO:
                print(f"hostile: case {row['case']}: {row['outcome']}: {row['what']}: {row['error']}", flush=True)
    if code:
        counts["cases"] += 1
        counts["hangs" if code == -signal.SIGALRM else "crashes"] += 1
        print(f"hostile: case {rows[-1].get('begun')}: ended by {code}", flush=True)
    return counts


def limit():
    taken = (
        int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        if Path("/proc/self/statm").exists()
        else 0
    )
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def note(log, row):
    with open(log, "a") as file:
        file.write(json.dumps(row) + "\n")


def attempt(case, seeds, folder):
    """One case: its outcome."""
    draw = random.Random(case)
    kind = draw.choice(["configuration"] * 5 + list(KINDS))
    what = kind
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            folder.mkdir(exist_ok=True)
            what = configuration(draw, folder) if kind == "configuration" else KINDS[kind](draw, seeds, folder)
        return {"outcome": "accepted", "what": what}
    except (RegrowError, SourceError) as error:
        return {"outcome": "refused", "what": kind, "error": str(error)[:100]}
    except MemoryError as error:
        return {"outcome": "over memory", "what": kind, "error": repr(error)[:200]}
    except BaseException as error:
        return {"outcome": "tracebacks", "what": kind, "error": repr(error)[:300]}


# ------------------------------------------------------------------------------------------------ configurations


def configuration(draw, folder):
    """A preset's TOML with lines replaced, doubled or damaged; what is accepted must survive its own TOML, and may be planned."""
    lines = to_toml(PRESETS[draw.choice(sorted(PRESETS))]).splitlines()
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(lines))
        key = lines[place].partition("=")[0]
        choice = draw.random()
        if choice < 0.6:
            lines[place] = f"{key}= {draw.choice(VALUES)}" if key.strip() else lines[place]
        elif choice < 0.7:
            lines.insert(place, lines[draw.randrange(len(lines))])
        elif choice < 0.8:
            lines.insert(place, f"option.{draw.choice('abc')} = {draw.choice(VALUES)}")
    content = "\n".join(lines).encode()
    path = folder / "a.toml"
    path.write_bytes(mutated(content, draw)[0] if draw.random() < 0.3 else content)
    config = load(path)
    path.write_text(to_toml(config))
    again = load(path)
    if to_toml(again) != to_toml(config):
        raise AssertionError("another configuration came back")
    config.identity(), config.folder_name()
    if config.model.startswith("lenet") and draw.random() < 0.3 and config.data.name == "mnist":
        plan_of(config)
    return "configuration"


# ------------------------------------------------------------------------------------------------ data files


def originals(work):
    """Files as they should be, by name."""
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 256, (12, 8, 8), np.uint8), np.arange(12) % 3
    made = {"idx": dump_idx(pixels), "labels": dump_idx(labels.astype(np.uint8))}
    made["idx.gz"] = gzip.compress(made["idx"])
    for name, save in (("npz", np.savez), ("npz.z", np.savez_compressed)):
        file = io.BytesIO()
        save(file, x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
        made[name] = file.getvalue()
    picture = Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8))
    for form in ("PNG", "JPEG", "BMP", "WEBP", "PPM"):
        file = io.BytesIO()
        picture.save(file, form)
        made[form] = file.getvalue()
    made["tgz"] = archive({"data_batch_1.png": made["PNG"], "test_lables.json": b"[1]", "train_lables.json": b"[1, 2]"})
    table = b"label" + b",p" * 784 + b"\n" + b"\n".join(b"3" + b",7" * 784 for _ in range(4)) + b"\n"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as wheel:
        for part in ("train", "test"):
            wheel.writestr(f"mnist_{part}.csv", table)
    made["whl"] = file.getvalue()
    made["json"] = json.dumps({"identity": "a", "steps": 3, "test_error": 1.5, "speedup": {"a": 1.0}}).encode()
    return made


def archive(members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def idx_folder(draw, seeds, folder):
    place = empty(folder / "idx")
    images = seeds[draw.choice(["idx", "idx.gz"])]
    (place / "train-images").write_bytes(header(images, draw) if draw.random() < 0.3 else mutated(images, draw)[0])
    (place / "train-labels").write_bytes(mutated(seeds["labels"], draw)[0] if draw.random() < 0.5 else seeds["labels"])
    return repr(data.load(place))


def header(content, draw):
    """Sizes and dimensions that ask for anything, also compressed, also followed by very much."""
    head = bytes((0, 0, draw.choice([8, 13, 14]), draw.choice([1, 3, 4, 64, 65, 255]))) + draw.randbytes(
        draw.choice([0, 12, 1020])
    )
    if draw.random() < 0.2:
        head += bytes(50_000_000)
    return gzip.compress(head, 1) if draw.random() < 0.5 else head


def npz(draw, seeds, folder):
    path = folder / "a.npz"
    path.write_bytes(mutated(seeds[draw.choice(["npz", "npz.z"])], draw)[0])
    if draw.random() < 0.3:
        with (
            contextlib.suppress(zipfile.BadZipFile),
            warnings.catch_warnings(),
            zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file,
        ):
            warnings.simplefilter("ignore")
            shape = draw.choice(
                ["(1000000, 1000, 1000)", "(10**9,)", "(-5, 2)", "()", "(2, 2, 2)", "('a',)", "(1,) * 99", "[["]
            )
            text = f"{{'descr': '{draw.choice(['<f8', '|O', '<u1', '<c16', 'V9'])}', 'fortran_order': False, 'shape': {shape}, }}"
            content = (
                b"\x93NUMPY"
                + bytes((draw.choice([1, 1, 1, 2, 3, 9]), 0))
                + len(text).to_bytes(2, "little")
                + text.encode()
            )
            file.writestr(
                f"{draw.choice(['x_train', 'x_val', 'mine'])}.npy", content + bytes(draw.choice([0, 100, 30_000_000]))
            )
    return repr(data.load(path))


def labels(draw, seeds, folder):
    path, found = folder / "a.npz", np.arange(6) % 2
    found = found.astype(draw.choice([np.int64, np.uint64, np.int8, np.float32]))
    with np.errstate(all="ignore"):
        found[draw.randrange(6)] = np.array(draw.choice([10**9, 2**62, -1, 255, 10**6 - 1])).astype(found.dtype)
    np.savez(path, x_train=np.zeros((6, 4, 4), np.uint8), y_train=found)
    return repr(data.load(path))


def pictures(draw, seeds, folder):
    place = empty(folder / "pictures")
    form = draw.choice(["PNG", "JPEG", "BMP", "WEBP", "PPM"])
    for split in ("train", "test"):
        for name in ("a", "b"):
            (place / split / name).mkdir(parents=True)
            for number in range(2):
                (place / split / name / f"{number}.{'jpg' if form == 'JPEG' else form.lower()}").write_bytes(
                    seeds[form]
                )
    odd = next((place / "train" / "a").iterdir())
    odd.write_bytes(mutated(seeds[form], draw)[0])
    if draw.random() < 0.2:
        odd.unlink()
        draw.choice(
            [os.mkfifo, os.mkdir, lambda path: os.symlink(path, path), lambda path: os.symlink("/dev/zero", path)]
        )(odd)
    dataset = data.load(place, image_size=8)
    if problems := dataset.problems(quick=draw.random() < 0.5):
        raise data.DataError(problems[0])
    return str(next(dataset.batches(batch_size=2))[0].shape)


def unpacking(unpack, seed):
    def unpacked(draw, seeds, folder):
        path = folder / f"a.{seed}"
        content = mutated(seeds[seed], draw)[0]
        if draw.random() < 0.1 and seed == "tgz":
            content = archive({"big": bytes(20_000_000)})
        path.write_bytes(content)
        return str(len(list(unpack(path))))

    return unpacked


def result(draw, seeds, folder):
    path = folder / "result.json"
    path.write_bytes(draw.choice([mutated(seeds["json"], draw)[0], b"[" * 10**6, b'{"steps": ' + b"9" * 5000 + b"}"]))
    return str(read_json(path, is_ending))


def empty(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


KINDS = {
    "idx": idx_folder,
    "npz": npz,
    "labels": labels,
    "pictures": pictures,
    "tar": unpacking(tar_members, "tgz"),
    "png": unpacking(cifar10_from_png, "tgz"),
    "wheel": unpacking(mnist_from_csv, "whl"),
    "result": result,
}
