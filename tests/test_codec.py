"""Values between processes: what is packed comes out equal, functions as None; and records are checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.checkpoint import FitState
from widemargin.codec import Encoder, conforms, pack, record, unpack
from widemargin.exceptions import ModelFileError
from widemargin.kernels.functions import Kernel
from widemargin.kernels.points import Points
from widemargin.problems.protocol import Certificate
from widemargin.solvers.models import KernelModel, Separator
from widemargin.solvers.run import Progress
from widemargin.strategies.protocol import PartProgress

LABELS = [np.array([0, 1, 5]), np.array(["a", "bcd"]), np.array(["a", "ö"], dtype=object), np.array([False, True])]


def reported(classes, model, *, state=None):
    progress = Progress(7, Certificate(2.0, -np.inf), 0.25, {"rounds": 3}, np.arange(3.0), model)
    return PartProgress(2, classes, state, progress)


@pytest.mark.parametrize("classes", LABELS, ids=lambda each: each.dtype.kind)
def test_a_report_of_a_sweep_comes_back(classes):
    state = FitState("SomeSVC", np.array([1.0, 2.0]), np.zeros((2, 3)), np.zeros(2, np.int64))
    model = Separator(np.array([1.5, -0.0, 1e-300]), 0.1 + 0.2, {"nu": np.float64(0.3), "machines": 4})
    again = unpack(pack(reported(classes, model, state=state)))
    assert type(again) is PartProgress
    assert again.classes.dtype == classes.dtype
    assert again.classes.tolist() == classes.tolist()
    assert again.progress.certificate == Certificate(2.0, -np.inf)
    assert again.progress.counts == {"rounds": 3}
    assert again.progress.model.coef.tobytes() == model.coef.tobytes()
    assert again.progress.model[1:] == model[1:]
    assert again.begun.task == "SomeSVC"
    assert again.begun.directions.shape == (2, 3)
    again.progress.warm_state[0] = 5.0  # arrays are the receiver's own


def test_a_masked_array_comes_back():
    values = np.ma.MaskedArray([1.0, 2.0, 3.0], mask=[False, True, False])
    again = unpack(pack(values))
    assert type(again) is np.ma.MaskedArray
    assert again.tolist() == [1.0, None, 3.0]
    content = pack({"masked": values}).replace(b'"masked":[0,1]', b'"masked":[0,0]')
    with pytest.raises(ModelFileError, match="a mask does not belong to its array"):
        unpack(content)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_kernel_model_comes_back_without_its_function(is_sparse):
    X = np.array([[0.0, 1.5], [2.0, 0.0]], dtype=np.float32)
    points = Points(sp.csr_matrix(X) if is_sparse else X, np.array([3, 8]))
    kernel = Kernel("callable", function=lambda one, other: one @ other.T)
    model = KernelModel(kernel, points, np.array([1.0, -2.0]), 0.5, {})
    again = unpack(pack(reported(np.arange(2), model))).progress.model
    assert again.kernel == Kernel("callable")
    assert again.points.X.dtype == np.float32
    np.testing.assert_array_equal(again.points.X.toarray() if is_sparse else again.points.X, X)
    assert again.points.numbers.tolist() == [3, 8]
    assert again.coef.tolist() == [1.0, -2.0]


def test_files_are_stricter():
    kernel = Kernel("callable", function=len)
    with pytest.raises(ModelFileError, match="function of a Kernel is of a wrong type"):
        Encoder().encode(kernel, "kernel")
    with pytest.raises(ModelFileError, match="there is no kernel 'cubic'"):
        Encoder().encode(Kernel("cubic"), "kernel")
    with pytest.raises(ModelFileError, match=r"kernel is <object.*not functions or objects"):
        Encoder().encode(object(), "kernel")


def test_types_are_checked_between_processes_too():
    with pytest.raises(ModelFileError, match="part of a PartProgress is of a wrong type"):
        unpack(pack(reported(np.arange(2), None)._replace(part="first")))
    with pytest.raises(ModelFileError, match="not functions or objects"):
        pack(object())


def test_values_of_all_kinds_come_back():
    value = {
        "numbers": [1, -2.5, np.inf, True, None, np.int8(3), 2**64 - 1],
        "nested": ((1, "two"), frozenset({3, 4}), {5: [6]}),
        "history": [{"sweep": 1, "gap": 0.5}, {"sweep": 2, "gap": 0.25}],
    }
    assert unpack(pack(value)) == value
    order = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    assert unpack(pack(order)).flags.f_contiguous
    assert unpack(pack(np.empty((0, 4)))).shape == (0, 4)


def test_a_record_of_ones_own():
    @record(check=lambda value: (_ for _ in ()).throw(ModelFileError("too wide")) if value.width > 9 else None)
    @dataclass
    class OwnRecord:
        width: int
        name: str = "own"

    assert unpack(pack(OwnRecord(3))) == OwnRecord(3)
    assert unpack(pack(OwnRecord(30))) == OwnRecord(30)
    with pytest.raises(ModelFileError, match="too wide"):
        Encoder().encode(OwnRecord(30), "own")

    class Certificate(NamedTuple):
        other: Any

    with pytest.raises(ValueError, match=r"a record Certificate already: widemargin\.problems"):
        record()(Certificate)


@pytest.mark.parametrize(
    ("value", "hint", "is_right"),
    [
        (1, int, True), (True, int, False), (np.int8(1), int, True), (1, float, True), (1.5, int, False),
        ([1.5], list[float], True), (["a"], list[float], False), ((1, 2), tuple[int, int], True),
        ((1,), tuple[int, int], False), ({1: [2]}, dict[int, list[int]], True), (None, int | None, True),
        (len, Any, True), ("a", str, True),
    ],
)  # fmt: skip
def test_values_conform_to_annotations(value, hint, is_right):
    assert conforms(value, hint) == is_right
