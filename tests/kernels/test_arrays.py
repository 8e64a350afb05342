"""Arrays of other libraries; most of it without torch."""

from __future__ import annotations

import numpy as np
import pytest

from widemargin.kernels import arrays


def test_host_arrays_are_left_alone():
    values = [1, 2, 3]
    assert arrays.on_host(values) is values
    assert {arrays.library_of(each) for each in (np.ones(2), values, None)} == {"host"}


def test_tensors_go_to_the_host_and_back():
    torch = pytest.importorskip("torch", reason="tensors need torch: make test-gpu installs it")
    there = torch.arange(3.0)
    assert arrays.library_of(there) == "torch"
    assert arrays.as_tensor(there) is there
    np.testing.assert_array_equal(arrays.on_host(there), [0.0, 1.0, 2.0])
    assert arrays.like(there, there) is there
    assert isinstance(arrays.like(there, np.ones(2)), np.ndarray)
    assert arrays.library_of(arrays.like(np.ones(2), there)) == "torch"


def test_chosen_rows_come_from_arrays_and_tensors_alike():
    torch = pytest.importorskip("torch", reason="tensors need torch: make test-gpu installs it")
    X, chosen = np.arange(12.0).reshape(4, 3), np.array([2, 0])
    chosen.flags.writeable = False
    for given in (X, torch.from_numpy(X)):
        np.testing.assert_array_equal(arrays.on_host(arrays.taken(given, chosen)), X[[2, 0]])
