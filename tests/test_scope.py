"""Which parameters are sparse: layer types, rules, positions, and what cannot be handled."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import prune

import regrow
from regrow import Scope
from regrow.errors import ConfigurationError, ScopeWarning, UnsupportedError
from regrow.scope import choose, resolve, unwrap
from tests.support.training import assert_sparse, sgd, train

CASES = {
    "linear": (lambda: nn.Linear(6, 4), lambda: torch.randn(5, 6), ["weight"]),
    "conv1d": (lambda: nn.Conv1d(3, 6, 3), lambda: torch.randn(2, 3, 8), ["weight"]),
    "conv2d": (lambda: nn.Conv2d(3, 6, 3), lambda: torch.randn(2, 3, 6, 6), ["weight"]),
    "conv3d": (lambda: nn.Conv3d(2, 4, 2), lambda: torch.randn(2, 2, 4, 4, 4), ["weight"]),
    "transposed1d": (lambda: nn.ConvTranspose1d(3, 6, 3), lambda: torch.randn(2, 3, 6), ["weight"]),
    "transposed2d": (lambda: nn.ConvTranspose2d(3, 6, 3), lambda: torch.randn(2, 3, 4, 4), ["weight"]),
    "transposed3d": (lambda: nn.ConvTranspose3d(3, 4, 2), lambda: torch.randn(2, 3, 2, 2, 2), ["weight"]),
    "grouped": (lambda: nn.Conv2d(4, 8, 3, groups=2), lambda: torch.randn(2, 4, 6, 6), ["weight"]),
    "depthwise": (lambda: nn.Conv2d(6, 6, 3, groups=6), lambda: torch.randn(2, 6, 6, 6), ["weight"]),
    "rnn": (lambda: nn.RNN(4, 6), lambda: torch.randn(3, 2, 4), ["weight_ih_l0", "weight_hh_l0"]),
    "gru": (
        lambda: nn.GRU(4, 5, bidirectional=True),
        lambda: torch.randn(3, 2, 4),
        ["weight_ih_l0", "weight_hh_l0", "weight_ih_l0_reverse", "weight_hh_l0_reverse"],
    ),
    "lstm": (
        lambda: nn.LSTM(4, 6, num_layers=2, proj_size=3),
        lambda: torch.randn(3, 2, 4),
        ["weight_ih_l0", "weight_hh_l0", "weight_hr_l0", "weight_ih_l1", "weight_hh_l1", "weight_hr_l1"],
    ),
    "cell": (lambda: nn.LSTMCell(4, 6), lambda: torch.randn(2, 4), ["weight_ih", "weight_hh"]),
    "bilinear": (lambda: nn.Bilinear(3, 4, 5), lambda: (torch.randn(6, 3), torch.randn(6, 4)), ["weight"]),
    "attention": (
        lambda: nn.MultiheadAttention(8, 2),
        lambda: (torch.randn(5, 3, 8),) * 3,
        ["in_proj_weight[q]", "in_proj_weight[k]", "in_proj_weight[v]", "out_proj"],
    ),
    "attention-kv": (
        lambda: nn.MultiheadAttention(8, 2, kdim=6, vdim=4),
        lambda: (torch.randn(5, 3, 8), torch.randn(5, 3, 6), torch.randn(5, 3, 4)),
        ["q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj"],
    ),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0),
        lambda: torch.randn(5, 3, 8),
        [*(f"self_attn.in_proj_weight[{part}]" for part in "qkv"), "self_attn.out_proj", "linear1", "linear2"],
    ),
}


def output_of(model, inputs):
    found = model(*inputs) if isinstance(inputs, tuple) else model(inputs)
    return found[0] if isinstance(found, tuple) else found


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("method", ["sparse-momentum", "rigl"])
def test_every_layer_type_trains_sparse(kind, method):
    build, inputs, names = CASES[kind]
    torch.manual_seed(0)
    model = build()
    others = {n: p.detach().clone() for n, p in model.named_parameters() if "bias" in n or "norm" in n}
    optimizer = sgd(model, lr=0.01)
    handle = regrow.sparsify(model, optimizer, method, density=0.4, steps=40, update_every=2)
    assert list(handle.masks) == names
    assert all(torch.equal(dict(model.named_parameters())[n], p) for n, p in others.items())
    start = torch.cat([m.flatten() for m in handle.masks.values()])
    for _ in range(7):
        optimizer.zero_grad()
        output_of(model, inputs()).square().mean().backward()
        optimizer.step()
        assert_sparse(handle)
    assert handle.updates >= 3
    assert not torch.equal(torch.cat([m.flatten() for m in handle.masks.values()]), start)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_flat_weights_stay_intact(kind):
    build, inputs, _ = CASES[kind]
    model = build()
    optimizer = sgd(model)
    regrow.sparsify(model, optimizer, density=0.4, steps=40, update_every=2)
    for _ in range(3):
        optimizer.zero_grad()
        output_of(model, inputs()).sum().backward()
        optimizer.step()
    assert all(getattr(model, n) is w for n, w in zip(model._flat_weights_names, model._flat_weights, strict=True))


def test_q_k_and_v_get_budgets_of_their_own():
    torch.manual_seed(0)
    model = nn.MultiheadAttention(8, 2)
    handle = regrow.sparsify(model, sgd(model), "static", density=0.25, steps=1)
    assert [int(mask.count_nonzero()) for mask in handle.masks.values()] == [16, 16, 16, 16]
    whole = torch.cat([handle.masks[f"in_proj_weight[{part}]"] for part in "qkv"])
    assert torch.equal(whole, handle.parameters[0].mask)


def test_eval_fast_path_of_a_transformer_sees_masked_weights():
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
    regrow.sparsify(model, sgd(model), density=0.25, steps=2, update_every=1)
    model.eval()
    inputs = torch.randn(2, 4, 8)
    with torch.no_grad():
        fast = model(inputs)
    torch.testing.assert_close(fast, model(inputs), rtol=1e-4, atol=1e-5)


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.position = nn.Parameter(torch.zeros(4, 8))
        self.norm = nn.LayerNorm(8)
        self.mix = nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens):
        return self.head(self.mix(self.norm(self.embed(tokens) + self.position)).mean(1))


def test_embeddings_and_positions_only_on_request():
    model = Text()
    layers, decisions = choose(model)
    assert [layer.name for layer in layers] == ["mix", "head"]
    reasons = {d.name: d.reason for d in decisions}
    assert reasons["embed"] == "embedding: dense unless asked for"
    assert reasons["position"] == "parameter of Text: dense unless asked for"
    assert reasons["norm"] == reasons["mix.bias"] == "bias or norm"
    layers, _ = choose(model, Scope(include=(nn.Embedding, "position")))
    assert {layer.name for layer in layers} == {"position", "embed", "mix", "head"}
    optimizer = sgd(model)
    handle = regrow.sparsify(
        model, optimizer, density=0.3, steps=40, update_every=2, scope=Scope(include=(nn.Embedding,))
    )
    data = [(torch.randint(10, (5, 4)), torch.randint(3, (5,))) for _ in range(5)]
    train(model, optimizer, data, lambda: assert_sparse(handle))
    assert handle.updates == 2


class Block(nn.Module):
    def __init__(self, wide_in, wide):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(wide_in, wide, 3, padding=1, bias=False), nn.BatchNorm2d(wide)
        self.conv2, self.bn2 = nn.Conv2d(wide, wide, 3, padding=1, bias=False), nn.BatchNorm2d(wide)
        self.downsample = nn.Sequential(nn.Conv2d(wide_in, wide, 1, bias=False), nn.BatchNorm2d(wide))

    def forward(self, x):
        return torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))) + self.downsample(x))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)
        self.layer1, self.layer2 = Block(4, 6), Block(6, 8)
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(self.stem(x))).mean((2, 3)))


CONVS = ["layer1.conv1", "layer1.conv2", "layer2.conv1", "layer2.conv2"]
SHORTCUTS = ["layer1.downsample.0", "layer2.downsample.0"]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("fully-sparse", {"stem", *CONVS, *SHORTCUTS, "fc"}),
        ("partially-dense", {*CONVS, "fc"}),
        ("partially-dense-cifar", {*CONVS}),
        (Scope(dense=("@last",)), {"stem", *CONVS, *SHORTCUTS}),
        (Scope(dense=("@shortcut",)), {"stem", *CONVS, "fc"}),
        (["layer1.*", nn.Linear], {"stem", *CONVS[2:], SHORTCUTS[1]}),
        (Scope(dense=(nn.Conv2d,)), {"fc"}),
        (Scope(dense=nn.Conv2d), {"fc"}),
        (Scope(dense="@last"), {"stem", *CONVS, *SHORTCUTS}),
        (nn.Conv2d, {"fc"}),
        (["*.conv1.weight"], {"stem", *CONVS[1::2], *SHORTCUTS, "fc"}),
    ],
)
def test_rules_by_type_pattern_and_position(scope, expected):
    layers, decisions = choose(Residual(), scope)
    assert {layer.name for layer in layers} == expected
    reasons = {d.name: d.reason for d in decisions}
    if scope == "partially-dense":
        assert reasons["stem"] == "kept dense by rule @first"
        assert reasons["layer2.downsample.0"] == "kept dense by rule @shortcut"
        assert reasons["layer1.conv1"] == "in scope"


def test_partially_dense_trains():
    torch.manual_seed(0)
    model = Residual()
    optimizer = sgd(model, lr=0.01)
    handle = regrow.sparsify(model, optimizer, density=0.2, steps=40, update_every=2, scope="partially-dense-cifar")
    data = [(torch.randn(4, 3, 6, 6), torch.randint(3, (4,))) for _ in range(5)]
    train(model, optimizer, data, lambda: assert_sparse(handle))
    assert model.stem.weight.count_nonzero() == model.stem.weight.numel()
    assert handle.nonzeros == round(0.2 * handle.numel)


@pytest.mark.parametrize(
    ("scope", "message"),
    [
        ("partialy-dense", "unknown scope 'partialy-dense': did you mean 'partially-dense'"),
        (["layer1.convv1"], "unknown layer pattern 'layer1.convv1': did you mean 'layer1.conv"),
        (["@frist"], "unknown position '@frist': did you mean '@first'"),
        ([3], "a scope rule is a name pattern.*got 3"),
        ([int], "a scope rule is a name pattern"),
        (Scope(include=("embedding.*",)), "unknown layer pattern 'embedding"),
    ],
)
def test_unknown_rules_name_the_nearest(scope, message):
    with pytest.raises(ConfigurationError, match=message):
        choose(Residual(), scope)


@pytest.mark.parametrize(
    "model", [nn.Embedding(4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(3, 3).requires_grad_(False)]
)
def test_no_layer_to_make_sparse(model):
    with pytest.raises(ConfigurationError, match="has no layer to make sparse in this scope; its parameters:"):
        choose(model)


def test_lazy_modules_are_named():
    with pytest.raises(UnsupportedError, match=r"0\.weight is not initialised yet: run one batch"):
        choose(nn.Sequential(nn.LazyLinear(3)))


def test_other_number_types_are_refused():
    with pytest.raises(UnsupportedError, match="complex64: only floating-point"):
        choose(nn.Linear(3, 3, dtype=torch.complex64))


def test_sparse_embedding_gradients_are_refused():
    with pytest.raises(UnsupportedError, match="sparse=True gradients"):
        choose(nn.Embedding(4, 3, sparse=True), Scope(include=(nn.Embedding,)))


def test_sharded_parameters_are_refused(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        from torch.distributed.tensor import distribute_tensor, init_device_mesh

        model = nn.Linear(4, 4)
        model.weight = nn.Parameter(distribute_tensor(model.weight.detach(), init_device_mesh("cpu", (1,))))
        with pytest.raises(UnsupportedError, match=r"weight is sharded \(FSDP/DTensor\).*DistributedDataParallel"):
            regrow.sparsify(model, sgd(model), density=0.5, steps=10)
    finally:
        dist.destroy_process_group()


def test_fully_sharded_modules_are_refused():
    class FullyShardedDataParallel(nn.Module):
        def __init__(self):
            super().__init__()
            self._flat_param = nn.Parameter(torch.zeros(9))

    with pytest.raises(UnsupportedError, match=r"module 1 is sharded \(FSDP\)"):
        choose(nn.Sequential(nn.Linear(3, 3), FullyShardedDataParallel()))


def test_unwrap_sees_through_wrappers():
    model = nn.Linear(3, 3)
    assert unwrap(torch.compile(nn.DataParallel(model), backend="eager")) is model
    assert unwrap(model) is model


def test_rules_in_a_string_are_those_of_a_sequence():
    assert resolve("dense:@last, stem.*") == resolve(("@last", "stem.*")) == Scope(dense=("@last", "stem.*"))
    with pytest.raises(ConfigurationError, match="dense:RULE"):
        resolve("dense:")


def test_a_class_stands_for_all_that_is_inside_it():
    model = nn.Sequential(nn.Linear(8, 8), nn.TransformerEncoderLayer(8, 2, 16))
    layers, _ = choose(model, Scope(dense=(nn.TransformerEncoderLayer,)))
    assert [layer.name for layer in layers] == ["0"]
    layers, _ = choose(model, Scope(dense=(nn.MultiheadAttention,)))
    assert {layer.name for layer in layers} == {"0", "1.linear1", "1.linear2"}


def test_a_class_that_the_model_does_not_have_is_an_error():
    with pytest.raises(ConfigurationError, match="names Conv2d, but the model has none with weights; it has Linear"):
        choose(nn.Sequential(nn.Linear(4, 4)), Scope(dense=(nn.Conv2d,)))


class TestCover:
    def test_inputs_first_layers_of_hugging_face_are_sparse_without_their_biases(self):
        layers = pytest.importorskip("transformers.pytorch_utils")
        model = nn.Sequential(layers.Conv1D(12, 8), nn.ReLU(), layers.Conv1D(4, 12))
        found, decisions = choose(model)
        assert [(layer.name, tuple(layer.shape), layer.output_dim) for layer in found] == [
            ("0", (8, 12), 1),
            ("2", (12, 4), 1),
        ]
        assert not any(d.sparse for d in decisions if d.name.endswith("bias"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        handle = regrow.sparsify(model, optimizer, "srigl", density=0.5, steps=20, update_every=2)
        assert handle.masks["0"].sum(0).unique().numel() == 1, "every output unit has as many inputs"
        assert handle.plan(torch.randn(3, 8)).rows[0].macs == handle.masks["0"].sum()
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(5, 8)).square().sum().backward()
            optimizer.step()
        assert handle.updates > 0
        assert not bool(model[0].weight[~handle.masks["0"]].any())

    def test_a_class_brings_in_matrices_and_no_biases(self):
        class Odd(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight, self.bias = nn.Parameter(torch.randn(6, 6)), nn.Parameter(torch.zeros(6))

        layers, _ = choose(nn.Sequential(Odd(), nn.Linear(6, 2)), Scope(include=(Odd,)))
        assert [layer.name for layer in layers] == ["0", "1"]
        layers, _ = choose(nn.Sequential(Odd(), nn.Linear(6, 2)), Scope(include=("0.bias",)))
        assert [layer.name for layer in layers] == ["0.bias", "1"]

    def test_a_tied_head_is_told_what_to_write(self):
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(9, 6), nn.Linear(6, 9, bias=False)
                self.head.weight = self.embed.weight

        with pytest.raises(
            ConfigurationError, match=r"head and embedding share: scope=Scope\(include=\('embed',\)\)\)"
        ):
            choose(Tied())
        assert len(choose(Tied(), Scope(include=("embed",)))[0]) == 1

    @pytest.mark.parametrize(
        "wrap",
        [
            nn.utils.parametrizations.weight_norm,
            nn.utils.parametrizations.spectral_norm,
            lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
        ],
    )
    def test_a_warning_where_most_matrices_stay_dense(self, wrap):
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 64))
        wrap(model[1])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with pytest.warns(
            ScopeWarning, match=r"less than half of the model's matrix weights.*the largest left dense is 1\..*include="
        ):
            regrow.sparsify(model, optimizer, "static", density=0.5)

    def test_none_where_it_was_asked_for(self):
        model = nn.Sequential(nn.Embedding(100, 8), nn.Linear(8, 8), nn.Linear(8, 64))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        assert regrow.sparsify(model, optimizer, "static", density=0.5, scope="dense:@last").numel == 64
