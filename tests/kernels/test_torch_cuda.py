"""The Triton kernels beside their twins, by Triton's interpreter: the arithmetic is that of the GPU, the device is not.

What is written in CUDA C (working sets and their problem) needs a GPU: ``python -m benchmarks.gpu --only check``.
"""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="kernels on a GPU need torch: make test-gpu installs it")
if "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="kernels on a GPU need triton: make test-gpu installs it")

from widemargin.kernels import torch_cuda, torch_tensors  # noqa: E402
from widemargin.kernels.torch_tensors import Form, Side  # noqa: E402
from widemargin.kernels.vectors import FIXED, Dual  # noqa: E402

pytestmark = pytest.mark.skipif(not torch_cuda._INTERPRETED, reason="triton was imported before its interpreter was on")

FORMS = {
    "rbf": Form(torch_tensors.RBF, 0.04),
    "linear": Form(torch_tensors.LINEAR, 0.5),
    "poly": Form(torch_tensors.POLY, 0.01, 1.0, 3),
    "sigmoid": Form(torch_tensors.SIGMOID, 0.01, 0.1),
    "laplacian": Form(torch_tensors.LAPLACIAN, -0.05),
}


def side(n, width, form, dtype, seed):
    X = torch.from_numpy(np.random.default_rng(seed).normal(size=(n, width))).to(dtype)
    term = -0.5 * form.scale * (X.double() ** 2).sum(dim=1)
    return Side(X, term if dtype == torch.float64 else term.float())


@pytest.mark.parametrize("name", list(FORMS))
@pytest.mark.parametrize("width", [64, 128])
def test_values_and_sums_are_those_of_the_twin(name, width):
    """Rows and points in numbers that fill no block."""
    form = FORMS[name]
    dtype = torch.float32 if name == "laplacian" else torch.float16
    rows, points = side(150, width, form, dtype, 0), side(70, width, form, dtype, 1)
    coef = torch.from_numpy(np.random.default_rng(2).normal(size=70))
    torch.testing.assert_close(
        torch_cuda.values(rows, points, form), torch_tensors.values(rows, points, form), rtol=1e-5, atol=1e-5
    )
    for weights in (coef, coef[:, None], torch.stack([coef, -coef], dim=1)):
        ours = torch_cuda.times(rows, points, weights, form)
        torch.testing.assert_close(ours, torch_tensors.times(rows, points, weights, form), rtol=1e-4, atol=1e-4)
        assert ours.dtype == torch.float64


@pytest.mark.parametrize("name", ["rbf", "linear", "poly"])
def test_products_of_many_columns_and_in_float64(name):
    form = FORMS[name]
    rows, points = side(40, 192, form, torch.float16, 0), side(30, 192, form, torch.float16, 1)
    coef = torch.linspace(-1, 1, 30, dtype=torch.float64)
    torch.testing.assert_close(
        torch_cuda.times(rows, points, coef, form), torch_tensors.times(rows, points, coef, form), rtol=1e-4, atol=1e-3
    )
    for width in (20, 100):
        rows, points = side(70, width, form, torch.float64, 0), side(30, width, form, torch.float64, 1)
        twin = torch_tensors.times(rows, points, coef, form)
        torch.testing.assert_close(torch_cuda.times(rows, points, coef, form), twin, rtol=1e-12, atol=1e-12)


def test_sums_of_many_points_go_on_in_float64(monkeypatch):
    monkeypatch.setattr(torch_cuda, "_POINTS_PER_SUM", 512)
    form = FORMS["rbf"]
    rows, points = side(10, 64, form, torch.float16, 0), side(1100, 64, form, torch.float16, 1)
    coef = torch.linspace(-1, 1, 1100, dtype=torch.float64)
    torch.testing.assert_close(
        torch_cuda.times(rows, points, coef, form), torch_tensors.times(rows, points, coef, form), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("size", [1, 4, 64])
def test_the_search_for_rows_is_that_of_the_twin(size):
    rng, n = np.random.default_rng(0), 1003
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    low = np.where(y > 0, 0.0, -1.0)
    beta = low + rng.choice([0.0, 0.5, 1.0], n)
    dual = Dual(*(torch.from_numpy(each) for each in (y - rng.normal(size=n), beta, low, low + 1)))
    arguments = (
        dual,
        torch.from_numpy(rng.choice(n, 100, replace=False)),
        torch.tensor(0.2, dtype=torch.float64),
        size,
    )
    ours, twin = torch_cuda.scan(*arguments), torch_tensors.scan(*arguments)
    there = twin[0] > -torch.inf
    assert torch.equal(ours[0], twin[0])
    assert torch.equal(ours[1][there], twin[1][there])
    assert ours[2] == twin[2]
    assert ours[3] == twin[3]


def test_the_search_of_several_problems_is_that_of_each():
    """Rows that cannot move have a key of their own."""
    rng, n = np.random.default_rng(1), 1003
    low, high = -rng.integers(0, 2, (3, n)).astype(float), rng.integers(0, 2, (3, n)).astype(float)
    pull, beta = rng.normal(size=(3, n)), np.where(rng.random((3, n)) < 0.5, low, high)
    dual = Dual(*map(torch.from_numpy, (pull, beta, low, high)))
    kept = torch.from_numpy(np.stack([rng.choice(n, 50, replace=False) for _ in range(3)]))
    middle = torch.tensor([0.2, -0.1, 0.0], dtype=torch.float64)
    together = torch_cuda.scan(dual, kept, middle, 4)
    for k, found in enumerate(zip(*together, strict=True)):
        alone = torch_cuda.scan(Dual(*(each[k].contiguous() for each in dual)), kept[k], middle[k], 4)
        twin = torch_tensors.scan(Dual(*(each[k] for each in dual)), kept[k], middle[k], 4)
        for one, other, third in zip(found, alone, twin, strict=True):
            assert torch.equal(one, other)
            assert torch.equal(one, third) or one.dtype == torch.int64  # places of nothing may differ
    assert (together[0] == float(FIXED)).any()


def test_nothing_to_multiply():
    form = FORMS["rbf"]
    rows, none = side(5, 64, form, torch.float16, 0), side(0, 64, form, torch.float16, 1)
    assert torch.equal(torch_cuda.times(rows, none, torch.zeros(0).double(), form), torch.zeros(5).double())
    assert torch_cuda.times(none, rows, torch.zeros(5).double(), form).shape == (0,)
