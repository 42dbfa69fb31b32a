"""A real Hugging Face Trainer on a tiny language model, built here without any download."""

import warnings

import pytest
import torch

import regrow
from regrow import native
from regrow.errors import StateError
from tests.support.training import assert_sparse

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers", exc_type=ImportError)
    pytest.importorskip("accelerate", exc_type=ImportError)

pytestmark = pytest.mark.filterwarnings("ignore")
needs_kernels = pytest.mark.skipif(not native.available(), reason="native kernels not built")
ARGUMENTS = {"density": 0.25, "steps": 40, "update_every": 3}


def language_model():
    torch.manual_seed(0)
    shape = {
        "vocab_size": 20,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    config = transformers.LlamaConfig(
        **shape, num_key_value_heads=2, max_position_embeddings=16, bos_token_id=1, eos_token_id=2, pad_token_id=0
    )
    return transformers.LlamaForCausalLM(config)


def sentences(count=64):
    source = torch.Generator().manual_seed(3)
    tokens = torch.randint(20, (count, 8), generator=source)
    return [{"input_ids": row, "labels": row} for row in tokens]


def trainer_for(model, folder, optimizers=(None, None), callbacks=(), strategy="no", **options):
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=8, per_device_train_batch_size=4, use_cpu=True, report_to=[], save_strategy=strategy,
        logging_strategy="no", disable_tqdm=True, dataloader_num_workers=0, **options,
    )  # fmt: skip
    return transformers.Trainer(
        model=model, args=arguments, train_dataset=sentences(), optimizers=optimizers, callbacks=list(callbacks)
    )


class Check(transformers.TrainerCallback):
    """Sparsify with the Trainer's own optimizer as training begins, and look after every step."""

    handle = None
    seen = 0

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **_):
        if self.handle is None:
            self.handle = regrow.handle_of(optimizer) or regrow.sparsify(model, optimizer, **ARGUMENTS)

    def on_step_end(self, *_, **__):
        assert_sparse(self.handle)
        self.seen += 1


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 2, "max_grad_norm": 0.1}, {"bf16": True}])
def test_own_optimizer_handed_to_the_trainer(tmp_path, options):
    model = language_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    handle = regrow.sparsify(model, optimizer, **ARGUMENTS)
    start = {name: mask.clone() for name, mask in handle.masks.items()}
    check = Check()
    trainer_for(model, tmp_path, (optimizer, None), [check], **options).train()
    assert check.handle is handle
    assert check.seen == handle.step == 8
    assert handle.updates == 2
    assert any(not torch.equal(mask, handle.masks[name]) for name, mask in start.items())
    assert {d.reason for d in handle.decisions if "embed" in d.name} <= {"embedding: dense unless asked for"}
    assert "lm_head" in handle.masks


def test_optimizer_made_by_the_trainer(tmp_path):
    check = Check()
    trainer_for(language_model(), tmp_path, callbacks=[check]).train()
    assert check.seen == check.handle.step == 8
    assert check.handle.updates == 2
    assert check.handle.nonzeros == round(0.25 * check.handle.numel)


def test_saved_weights_are_ordinary_ones(tmp_path):
    model = language_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    handle = regrow.sparsify(model, optimizer, **ARGUMENTS)
    trainer = trainer_for(model, tmp_path, (optimizer, None))
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "saved")
    for sparse in handle.parameters:
        assert torch.equal(dict(again.named_parameters())[sparse.name] != 0, sparse.parameter != 0)
        assert not (dict(again.named_parameters())[sparse.name] * ~sparse.mask).any()


@pytest.mark.parametrize("execution", ["masked", pytest.param("sparse", marks=needs_kernels)])
def test_masks_are_kept_when_the_trainer_resumes(tmp_path, execution):
    from regrow.integrations.transformers import FILE, KeepMasks

    def run(folder, resume=False, **options):
        model = language_model()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        handle = regrow.sparsify(model, optimizer, **ARGUMENTS, execution=execution)
        trainer = trainer_for(
            model, folder, (optimizer, None), [KeepMasks(handle)], save_steps=4, strategy="steps", **options
        )
        trainer.train(resume_from_checkpoint=resume)
        return model, handle

    whole, its_handle = run(tmp_path / "whole")
    assert its_handle.updates == 2
    again, handle = run(tmp_path / "whole", resume=str(tmp_path / "whole" / "checkpoint-4"))
    assert (handle.step, handle.updates) == (8, 2)
    for a, b in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    for name, mask in its_handle.masks.items():
        assert torch.equal(mask, handle.masks[name])
    (tmp_path / "whole" / "checkpoint-4" / FILE).unlink()
    with pytest.raises(StateError, match="written without KeepMasks"):
        run(tmp_path / "whole", resume=str(tmp_path / "whole" / "checkpoint-4"))


def test_gpt2_is_sparse_in_its_blocks():
    config = transformers.GPT2Config(vocab_size=20, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    model = transformers.GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    handle = regrow.sparsify(model, optimizer, **ARGUMENTS)
    assert handle.numel == 16 * 48 + 16 * 16 + 2 * 16 * 64
    for _ in range(4):
        optimizer.zero_grad()
        model(input_ids=torch.randint(20, (2, 8)), labels=torch.randint(20, (2, 8))).loss.backward()
        optimizer.step()
    assert handle.updates == 1
    assert_sparse(handle)
