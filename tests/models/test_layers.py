import gc
from importlib.util import find_spec

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from pamc.models import layers
from pamc.models.layers import MLP, Autoencoder, Linear
from pamc.models.loader import FeatureLoader
from pamc.models.products import MIN_ROWS
from pamc.ops.dispatch import preferring
from pamc.runtime import generator

CPU = torch.device("cpu")


def sparse_features(n, d, seed=0):
    return sp.random(n, d, density=0.05, format="csr", random_state=seed, dtype=np.float64)


def rows_of(features, **options):
    return FeatureLoader(features, device=CPU, dtype=torch.float64, **options)


@pytest.mark.parametrize(("n_in", "n_out"), [(33, 4), (4, 33), (7, 7), (1, 1)])
def test_a_linear_map_has_the_value_and_gradients_of_torchs_own(n_in, n_out):
    ours = Linear(n_in, n_out, generator=generator(0, "weights"), dtype=torch.float64)
    theirs = nn.Linear(n_in, n_out, dtype=torch.float64)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(41, n_in, dtype=torch.float64)
    out = torch.randn(41, n_out, dtype=torch.float64)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    for layer, values in zip((ours, theirs), inputs, strict=True):
        layer(values).backward(out)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-12)
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=0, atol=1e-12)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, rtol=0, atol=1e-12)
    torch.testing.assert_close(ours.bias.grad, theirs.bias.grad, rtol=0, atol=1e-12)
    assert torch.autograd.gradcheck(ours, (x[:5].requires_grad_(),))


def test_sparse_rows_give_the_value_and_gradient_of_dense_rows():
    features = sparse_features(401, 50)
    gradients, values = [], []
    for sparse in (True, False):
        rows = rows_of(features, sparse=sparse)
        encoder = MLP((50, 8, 3), generator=generator(0, "weights"), dtype=torch.float64)
        z = encoder(rows.block(0, 401))
        z.square().sum().backward()
        values.append(z.detach())
        gradients.append([p.grad for p in encoder.parameters()])
    torch.testing.assert_close(*values, rtol=0, atol=1e-12)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sparse", [True, False])
def test_columns_that_fill_up_a_layer_change_nothing(sparse, monkeypatch):
    block = rows_of(sparse_features(401, 50), sparse=sparse).block(0, 401)
    results = []
    for fills in (False, True):
        if fills:
            monkeypatch.setattr(layers, "aligned", filled_to_multiples_of_four)
        encoder = MLP((50, 7, 5, 3), generator=generator(0, "weights"), dtype=torch.float64)
        z = encoder(block)
        z.square().sum().backward()
        results.append([z.detach(), *(p.grad for p in encoder.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.fast_variants(1)
@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize("fills", [False, True])
def test_narrow_layers_have_the_same_gradients_through_kernels(fills, monkeypatch):
    if fills:
        monkeypatch.setattr(layers, "aligned", filled_to_multiples_of_four)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    block = torch.randn(77, 50, generator=torch.Generator().manual_seed(0)).to(device)
    out = torch.randn(77, 3, generator=torch.Generator().manual_seed(1)).to(device)
    results = []
    for backend in ("torch", "triton"):
        encoder = MLP((50, 70, 7, 5, 3), generator=generator(0, "weights"), tensor_cores=True).to(device)
        with preferring(backend):
            z = encoder(block)
            z.backward(out)
        results.append([z.detach(), *(p.grad for p in encoder.parameters())])
    for one, other in zip(*results, strict=True):
        assert one.shape == other.shape
        # On tensor cores both round to ten bits.
        error = 1e-4 if device.type == "cpu" else 2e-2
        torch.testing.assert_close(one, other, rtol=error, atol=error)


def test_features_are_filled_up_once_until_they_change(monkeypatch):
    calls = []

    def fill(x, *, rows=False):
        calls.append(x.shape)
        return filled_to_multiples_of_four(x, rows=rows)

    monkeypatch.setattr(layers, "aligned", fill)
    encoder = MLP((50, 3), generator=generator(0, "weights"), dtype=torch.float64)
    block = torch.ones(41, 50, dtype=torch.float64)
    first, again = encoder(block), encoder(block)
    assert torch.equal(first, again)
    assert calls.count(block.shape) == 1
    n_kept = len(layers._ALIGNED)
    block *= 2
    torch.testing.assert_close(encoder(block) - encoder.layers[0].bias, 2 * (first - encoder.layers[0].bias))
    assert calls.count(block.shape) == 2
    del block, first, again
    gc.collect()
    assert len(layers._ALIGNED) < n_kept
    whole = torch.ones(41, 52, dtype=torch.float64)
    monkeypatch.setattr(layers, "aligned", lambda x, rows=False: x)
    MLP((52, 3), generator=generator(0, "weights"), dtype=torch.float64)(whole)
    assert whole not in layers._ALIGNED


def filled_to_multiples_of_four(x, *, rows=False):
    columns = (0, -x.shape[-1] % 4)
    return nn.functional.pad(x, columns if x.ndim == 1 else (*columns, 0, -len(x) % 4 if rows else 0))


def test_weights_come_from_the_generator_and_follow_torchs_rule():
    first, again = (Linear(400, 50, generator=generator(3, "weights"), dtype=torch.float32) for _ in range(2))
    assert torch.equal(first.weight, again.weight)
    assert first.weight.abs().max() <= 0.05
    assert first.weight.detach().std().item() == pytest.approx(0.05 / 3**0.5, rel=0.02)


def test_the_autoencoder_mirrors_its_encoder():
    net = Autoencoder(20, (7, 5), 2, generator=generator(0, "weights"))
    reconstruction, z = net(torch.randn(4, 20))
    assert reconstruction.shape == (4, 20)
    assert z.shape == (4, 2)
    assert net.decoder.sizes == (2, 5, 7, 20)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_rows_embedding_does_not_depend_on_the_rows_beside_it(sparse):
    features = sparse_features(300, 40).astype(np.float32)
    encoder = MLP((40, 50, 200, 10), generator=generator(0, "weights"))

    def encode(part):
        rows = FeatureLoader(part, device=CPU, dtype=torch.float32, sparse=sparse)
        return encoder(rows.block(0, part.shape[0]))[: part.shape[0]]

    whole = encode(features)
    for size in (1, 2, 3, 5, 7, 17, 64, 299):
        assert torch.equal(encode(features[10 : 10 + size]), whole[10 : 10 + size])


def test_blocks_cover_all_rows_in_order_and_the_last_one_is_kept():
    features = np.arange(82.0).reshape(41, 2)
    rows = rows_of(features)
    assert len(rows) == 41
    assert rows.n_features == 2
    together = torch.cat([block[: chunk.stop - chunk.start] for chunk, block in rows.chunks(18)])
    assert np.array_equal(together.numpy(), features)
    (_, block), (_, again) = next(rows.chunks(None)), next(rows.chunks(None))
    assert block is again


def test_sparse_blocks_are_used_where_few_entries_are_nonzero():
    assert rows_of(sparse_features(50, 40)).sparse
    assert not rows_of(sp.csr_matrix(np.ones((5, 5)))).sparse
    assert not rows_of(np.ones((5, 5))).sparse
    assert len(rows_of(sparse_features(50, 40)).block(0, 5)) == MIN_ROWS


def test_a_batch_is_dense_in_the_order_asked_for():
    features = sparse_features(50, 40)
    batch = rows_of(features).dense_batch(torch.tensor([7, 3]))
    assert np.array_equal(batch.numpy(), features.toarray()[[7, 3]])
