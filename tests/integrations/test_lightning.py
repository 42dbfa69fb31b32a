"""A real Lightning Trainer: it passes a closure to every step, clips, accumulates and saves on its own."""

import copy
import warnings

import pytest
import torch
from torch.utils.data import DataLoader

import regrow
from tests.support.training import assert_sparse, batches, bits, loss_of, same_weights, sgd, small_net, train

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lightning = pytest.importorskip("lightning", exc_type=ImportError)

pytestmark = pytest.mark.filterwarnings("ignore")

ARGUMENTS = {"density": 0.3, "steps": 40, "update_every": 4}


class Task(lightning.LightningModule):
    def __init__(self, method="sparse-momentum"):
        super().__init__()
        self.net, self.method, self.checked = small_net(), method, 0

    def training_step(self, batch, _):
        return loss_of(self.net, batch)

    def configure_optimizers(self):
        optimizer = sgd(self.net)
        self.handle = regrow.sparsify(self.net, optimizer, self.method, **ARGUMENTS)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1000)}

    def on_train_batch_end(self, *_):
        assert_sparse(self.handle)
        self.checked += 1

    def on_save_checkpoint(self, checkpoint):
        checkpoint["regrow"] = self.handle.state_dict()

    def on_load_checkpoint(self, checkpoint):
        self.restored = copy.deepcopy((checkpoint["state_dict"], checkpoint["regrow"]))

    def on_train_start(self):
        if hasattr(self, "restored"):  # Lightning loads weights before configure_optimizers, which zeroes some
            weights, state = self.restored
            self.load_state_dict(weights)
            self.handle.load_state_dict(state)


def fit(task, steps, resume=None, first=0, **options):
    trainer = lightning.Trainer(
        max_steps=steps, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, **options,
    )  # fmt: skip
    trainer.fit(task, DataLoader(batches(40)[first:], batch_size=None), ckpt_path=resume)
    return trainer


@pytest.mark.parametrize("method", ["sparse-momentum", "rigl"])
def test_the_trainer_equals_the_plain_loop(method):
    task = Task(method)
    fit(task, 13)
    model = small_net()
    optimizer = sgd(model)
    handle = regrow.sparsify(model, optimizer, method, **ARGUMENTS)
    train(model, optimizer, batches(40)[:13])
    assert task.checked == task.handle.step == 13
    assert task.handle.updates == handle.updates >= 3
    assert torch.equal(bits(task.handle), bits(handle))
    assert same_weights(task.net, model)


def test_accumulation_and_clipping():
    task = Task()
    fit(task, 9, accumulate_grad_batches=2, gradient_clip_val=0.5)
    assert task.handle.step == 9
    assert task.handle.updates == 2


def test_bf16_mixed():
    task = Task()
    fit(task, 9, precision="bf16-mixed")
    assert task.handle.updates == 2


def test_resume_from_a_checkpoint(tmp_path):
    whole, first, second = Task(), Task(), Task()
    fit(whole, 13)
    fit(first, 6).save_checkpoint(tmp_path / "six.ckpt")
    # A plain loader begins anew when Lightning resumes: it is given what is left of the data.
    fit(second, 13, resume=tmp_path / "six.ckpt", first=6, use_distributed_sampler=False)
    assert second.handle.step == 13
    assert same_weights(second.net, whole.net)
    assert torch.equal(bits(second.handle), bits(whole.handle))
    assert second.handle.updates == whole.handle.updates
    assert [r.step for r in second.handle.journal] == [4, 8, 12]
