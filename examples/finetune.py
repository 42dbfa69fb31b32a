"""Fine-tune a trained Hugging Face model into a sparse one: movement pruning and STR, in a plain loop and in the Trainer.

python examples/finetune.py

The model is made and trained here, without a download: a small transformer that tells whether a sequence holds one token more often
than another.
"""

from __future__ import annotations

import copy
import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from torch import Tensor

import regrow

STEPS, BATCH, LENGTH, WORDS = 150, 32, 16, 12
# Embeddings are dense by default; the small head that is new to the task stays dense too.
SCOPE = regrow.Scope(dense=("score",))


def batch(number: int, count: int = BATCH) -> tuple[Tensor, Tensor]:
    """Sequences, and whether token 1 comes more often than token 2."""
    tokens = torch.randint(1, WORDS, (count, LENGTH), generator=torch.Generator().manual_seed(number))
    return tokens, ((tokens == 1).sum(1) > (tokens == 2).sum(1)).long()


def trained_model() -> transformers.PreTrainedModel:
    """A small transformer, trained dense."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=LENGTH, num_labels=2, pad_token_id=0,
    )  # fmt: skip
    model = transformers.LlamaForSequenceClassification(config)
    loop(model, torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0), 2 * STEPS)
    return model


def loop(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int = STEPS) -> None:
    """The training loop of anybody."""
    model.train()
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    for number in range(steps):
        tokens, labels = batch(number)
        optimizer.zero_grad()
        model(input_ids=tokens, labels=labels).loss.backward()
        optimizer.step()
        schedule.step()


@torch.no_grad()
def accuracy(model: torch.nn.Module) -> float:
    """Share of right answers on sequences not trained on."""
    model.eval()
    tokens, labels = batch(10_000, 1000)
    return float((model(input_ids=tokens).logits.argmax(1) == labels).float().mean())


def prune(model: torch.nn.Module, optimizer: torch.optim.Optimizer, method: str) -> regrow.Handle:
    """One line each. STR's density is an outcome of weight decay; here it is cut to a budget for the last steps."""
    if method == "movement":
        return regrow.sparsify(model, optimizer, "movement", density=0.3, steps=STEPS, scope=SCOPE, score_lr=1e-2)
    return regrow.sparsify(
        model, optimizer, "str", density=0.3, steps=STEPS, scope=SCOPE, s_init=-6.0, decay=1.0,
        budget="exact", finetune_steps=STEPS // 3,
    )  # fmt: skip


def in_a_loop(model: torch.nn.Module, method: str) -> regrow.Handle:
    """The plain loop, unchanged."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    sparse = prune(model, optimizer, method)
    loop(model, optimizer)
    return sparse


def in_the_trainer(model: torch.nn.Module, method: str) -> regrow.Handle:
    """The Trainer, given the optimizer."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    sparse = prune(model, optimizer, method)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=STEPS)
    data = [
        {"input_ids": tokens, "labels": label} for n in range(STEPS) for tokens, label in zip(*batch(n), strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder, max_steps=STEPS, per_device_train_batch_size=BATCH, use_cpu=True, report_to=[],
            save_strategy="no", logging_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        transformers.Trainer(model=model, args=arguments, train_dataset=data, optimizers=(optimizer, schedule)).train()
    return sparse


def main() -> None:
    """Both methods, both ways; what is left is a plain model with masks."""
    dense = trained_model()
    print(f"dense: {accuracy(dense):.1%}")
    for method in ("movement", "str"):
        for name, way in (("loop", in_a_loop), ("Trainer", in_the_trainer)):
            model = copy.deepcopy(dense)
            sparse = way(model, method)
            sparse.finish()
            print(f"{method}, {name}: {accuracy(model):.1%} with {sparse.density:.1%} of {sparse.numel:,} weights")


if __name__ == "__main__":
    main()
