"""A model comes back from its file as it was, to the last bit; and a file says plainly why it is refused."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import pickle
import warnings
from pathlib import Path

import joblib
import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import widemargin
from tests.io.models_at_hand import MODELS, NAMES, TWO, X, Y, fitted, rows_for
from tests.io.mutations import packed, signed, unpacked
from widemargin import (
    GossipSVC,
    KernelSVC,
    ModelFileError,
    NuMarginSVC,
    SparseSVCCV,
    load,
    save,
)
from widemargin.codec import MAX_GROWTH
from widemargin.estimators import words
from widemargin.io.archive import _SIGNATURE, FORMAT, to_bytes
from widemargin.kernels.points import Points

GOLDEN = Path(__file__).parent / "golden" / "format-1.wm"
EVERY = pytest.mark.parametrize("name", MODELS)


def assert_same(one, other, where="model"):
    """Equal, with equal types, to the bottom of all that is in it."""
    kinds = [Points if isinstance(each, Points) else type(each) for each in (one, other)]  # however they are stored
    assert kinds[0] is kinds[1] or isinstance(one, float | int), f"{where}: {type(one)} and {type(other)}"
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, where
        np.testing.assert_array_equal(one, other, err_msg=where)
    elif sp.issparse(one):
        for part in ("data", "indices", "indptr"):
            assert_same(getattr(one, part), getattr(other, part), f"{where}.{part}")
    elif isinstance(one, dict):
        assert list(one) == list(other), where
        for key in one:
            assert_same(one[key], other[key], f"{where}[{key!r}]")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for k, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_same(left, right, f"{where}[{k}]")
    elif dataclasses.is_dataclass(one) or hasattr(one, "get_params"):
        assert_same(_fitted_state(one), _fitted_state(other), where)
    elif isinstance(one, np.random.RandomState):
        assert_same(one.get_state(), other.get_state(), where)
    elif hasattr(one, "__dict__") and not callable(one):
        assert_same(vars(one), vars(other), where)
    else:
        assert one == other or (one != one and other != other), f"{where}: {one!r} and {other!r}"


# What is not kept, by design; a graph comes back as the list of its edges.
_LEFT_OUT = {
    "_skl_callbacks_to_teardown",
    "_callback_fit_ctx",
    "_parameters_of_fit",
    "_peers",
    "_last_network",
    "topology",
}


def _fitted_state(record):
    if isinstance(record, Points):
        return {"X": record.X, "numbers": record.numbers}
    return {name: each for name, each in sorted(vars(record).items()) if name not in _LEFT_OUT}


@EVERY
def test_everything_comes_back(name, tmp_path):
    model, rows = fitted(name), rows_for(name)
    save(model, tmp_path / "model.wm")
    again = load(tmp_path / "model.wm")
    assert_same(model, again)
    np.testing.assert_array_equal(model.decision_function(rows), again.decision_function(rows))
    labels = again.predict(rows)
    np.testing.assert_array_equal(model.predict(rows), labels)
    assert labels.dtype == model.predict(rows).dtype
    assert to_bytes(again) == (tmp_path / "model.wm").read_bytes()


@EVERY
@pytest.mark.parametrize("way", ["pickle", "joblib"])
def test_pickles_come_back(name, way, tmp_path):
    model, rows = fitted(name), rows_for(name)
    if way == "pickle":
        again = pickle.loads(pickle.dumps(model))
    else:
        joblib.dump(model, tmp_path / "model.joblib")
        again = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(model.decision_function(rows), again.decision_function(rows))
    np.testing.assert_array_equal(model.predict(rows), again.predict(rows))
    assert to_bytes(again) == to_bytes(model)


def test_the_comparison_finds_a_difference():
    model = fitted("kernel, three")
    for attribute, change in [
        ("dual_coef_", lambda value: value + 1e-16 * np.abs(value).max() * np.eye(*value.shape)),
        ("support_labels_", lambda value: value[::-1]),
        ("history_", lambda value: value[:-1]),
        ("certificate_", lambda value: value._replace(dual=value.dual - 1e-12)),
        ("cost_", lambda value: dataclasses.replace(value, rounds=value.rounds + 1)),
        ("stop_reason_", lambda value: value + "!"),
    ]:
        other = copy.copy(model)
        setattr(other, attribute, change(getattr(model, attribute)))
        with pytest.raises(AssertionError):
            assert_same(model, other)
    with pytest.raises(AssertionError):
        assert_same(model, fitted("kernel, rbf"))


@pytest.mark.parametrize("name", ["nu, three", "kernel, sparse", "margins, tree", "gossip, rbf", "pipe, pandas"])
def test_a_loaded_model_can_be_cloned_and_fitted_again(name, tmp_path):
    save(fitted(name), tmp_path / "model.wm")
    again, (_, rows, labels) = load(tmp_path / "model.wm"), MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fresh = clone(again).fit(rows, labels)
        again.fit(rows, labels)
    np.testing.assert_array_equal(fresh.predict(rows), fitted(name).predict(rows))
    np.testing.assert_array_equal(again.predict(rows), fitted(name).predict(rows))


def test_what_a_model_can_do_it_can_still_do(tmp_path):
    save(fitted("margins, trees"), tmp_path / "tree.wm")
    tree, was = load(tmp_path / "tree.wm"), fitted("margins, trees")
    rows = rows_for("margins, trees")
    np.testing.assert_array_equal(tree.at_level(0).decision_function(rows), was.at_level(0).decision_function(rows))
    save(fitted("debiased"), tmp_path / "debiased.wm")
    assert str(load(tmp_path / "debiased.wm").summary()) == str(fitted("debiased").summary())
    save(fitted("kernel, three"), tmp_path / "kernel.wm")
    more = load(tmp_path / "kernel.wm").partial_fit(X[::3], NAMES.astype(object)[Y[::3]])
    assert more.score(X, NAMES[Y]) > 0.9
    assert load(tmp_path / "kernel.wm").size_bytes() == fitted("kernel, three").size_bytes()


def test_a_model_of_rows_without_numbers(tmp_path):
    """As a fit on a Dask collection leaves it."""
    model = copy.copy(fitted("kernel, three"))
    for name in ("support_", "support_labels_", "support_weight_"):
        delattr(model, name)
    save(model, tmp_path / "model.wm")
    np.testing.assert_array_equal(load(tmp_path / "model.wm").decision_function(X), model.decision_function(X))


def test_the_place_of_training_is_not_kept(tmp_path):
    model = KernelSVC(checkpoint=tmp_path / "states", max_iter=3, tol=1.0).fit(X, TWO)
    save(model, tmp_path / "model.wm")
    assert load(tmp_path / "model.wm").checkpoint is None
    assert str(tmp_path).encode() not in (tmp_path / "model.wm").read_bytes()

    class Client:
        def scheduler_info(self):
            return {}

    model = copy.copy(fitted("nu, three")).set_params(cluster=Client())
    save(model, tmp_path / "model.wm")
    assert load(tmp_path / "model.wm").cluster is None
    save(fitted("gossip"), tmp_path / "model.wm")
    again = load(tmp_path / "model.wm")
    assert sorted(map(sorted, again.topology)) == sorted(map(sorted, nx.cycle_graph(4).edges))
    assert X[:1].tobytes() not in (tmp_path / "model.wm").read_bytes()
    with pytest.raises(ValueError, match="peers of this model"):
        again.partial_fit(X, Y)


def arrays_in(value):
    """All arrays of a model, with those of its records and matrices."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, dict | list | tuple):
        return [each for inner in (value.values() if isinstance(value, dict) else value) for each in arrays_in(inner)]
    if isinstance(value, np.random.RandomState) or callable(value) or not hasattr(value, "__dict__"):
        return []
    return arrays_in(vars(value))


@EVERY
def test_arrays_are_apart(name, tmp_path):
    save(fitted(name), tmp_path / "model.wm")
    arrays = [each for each in arrays_in(load(tmp_path / "model.wm")) if each.size and each.dtype != object]
    places = [each.__array_interface__["data"][0] for each in arrays]
    assert len(arrays) >= 3
    assert len(set(places)) == len(places)


def test_equal_arrays_of_many_nodes_are_stored_a_few_times(tmp_path):
    model = copy.copy(fitted("gossip, rbf"))
    node = next(iter(model.nodes_.values()))
    model.nodes_ = dict.fromkeys(range(5 * MAX_GROWTH), node)
    model.graph_ = {k: [] for k in model.nodes_}
    save(model, tmp_path / "model.wm")
    header, _ = unpacked((tmp_path / "model.wm").read_bytes())
    places = [each[1]["Node"]["coef_"]["array"] for each in header["model"]["attributes"]["nodes_"]["dict"]]
    assert len(set(places)) in (5, 6)  # coef_ is one more of them
    again = load(tmp_path / "model.wm")
    assert_same(model.nodes_, again.nodes_)
    assert to_bytes(again) == (tmp_path / "model.wm").read_bytes()


def test_a_small_file_makes_no_large_model(tmp_path):
    header, arrays = unpacked(to_bytes(fitted("gossip, rbf")))
    nodes = header["model"]["attributes"]["nodes_"]["dict"]
    nodes[:] = [[k, nodes[0][1]] for k in range(10_000)]
    refused(packed(header, arrays), tmp_path / "model.wm", "over 16 times their size in the file")


def test_a_graph_of_names_comes_back_as_numbers(tmp_path):
    graph = nx.Graph([("paris", "rome"), ("rome", "oslo"), ("oslo", "bern")])
    model = GossipSVC(alpha=1e-2, n_peers=4, topology=graph, random_state=0).fit(X, TWO)
    save(model, tmp_path / "model.wm")
    again = load(tmp_path / "model.wm")
    assert again.topology == [[0, 1], [1, 2], [2, 3]]
    assert clone(again).fit(X, TWO).graph_ == again.graph_ == model.graph_


# -- what cannot be kept -----------------------------------------------------------------------------------------------


def dot(one, other):
    return one @ other.T


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (KernelSVC(kernel=dot), r"KernelSVC\.kernel is <function dot.*not functions"),
        (make_pipeline(StandardScaler(), PCA(2), NuMarginSVC()), "pipeline of StandardScaler, PCA, NuMarginSVC cannot"),
        (StandardScaler(), "a StandardScaler cannot be saved"),
        (GridSearchCV(NuMarginSVC(), {"tol": [1e-3]}, cv=2), "GridSearchCV cannot be saved.*best_estimator_"),
        (SparseSVCCV(n_alphas=3, cv=ShuffleSplit(2, random_state=0)), r"SparseSVCCV\.cv is ShuffleSplit"),
        (NuMarginSVC(random_state=np.random.RandomState(np.random.PCG64(0))), "PCG64, not MT19937"),
    ],
)
def test_what_cannot_be_kept_is_named_and_leaves_no_file(model, match, tmp_path):
    model.fit(X, TWO)
    with pytest.raises(ModelFileError, match=match):
        save(model, tmp_path / "model.wm")
    assert list(tmp_path.iterdir()) == []


def test_classes_of_ones_own_and_attributes_of_ones_own_are_refused(tmp_path):
    class HardMarginSVC(widemargin.HardMarginSVC):
        pass

    with pytest.raises(ModelFileError, match="a class of its own"):
        save(HardMarginSVC().fit(X, TWO), tmp_path / "model.wm")
    model = widemargin.HardMarginSVC().fit(X, TWO)
    model.remark_ = "good"
    with pytest.raises(ModelFileError, match=r"HardMarginSVC\.remark_ is not among"):
        save(model, tmp_path / "model.wm")


def test_only_fitted_models_are_kept(tmp_path):
    for model in (NuMarginSVC(), make_pipeline(StandardScaler(), NuMarginSVC())):
        with pytest.raises(NotFittedError):
            save(model, tmp_path / "model.wm")


def test_files_have_the_permissions_of_new_files(tmp_path):
    (tmp_path / "plain").touch()
    save(fitted("nu, three"), tmp_path / "model.wm")
    assert (tmp_path / "model.wm").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    save(fitted("nu, three"), tmp_path / "model.wm")
    before = (tmp_path / "model.wm").read_bytes()

    def fails(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="disk is full"):
        save(fitted("sparse"), tmp_path / "model.wm")
    assert (tmp_path / "model.wm").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model.wm"]


# -- what is refused ---------------------------------------------------------------------------------------------------


def refused(content, path, match):
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=match) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_of_other_kinds(tmp_path):
    path = tmp_path / "model.wm"
    for content in (b"", b"\x80\x04]", pickle.dumps(fitted("nu, three")), b"PK\x03\x04", _SIGNATURE[:-1]):
        refused(content, path, "is not a model file of widemargin")
    refused(_SIGNATURE, path, "it is truncated")
    refused(to_bytes(fitted("nu, three")).replace(b"\r\n", b"\n", 1), path, "is not a model file")
    with pytest.raises(ModelFileError, match="is not a file"):
        load(tmp_path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent.wm")


def test_damage_is_called_so(tmp_path):
    content = to_bytes(fitted("nu, three"))
    for at in (200, len(content) // 2, len(content) - 1):
        flipped = bytearray(content)
        flipped[at] ^= 1
        refused(bytes(flipped), tmp_path / "model.wm", "damaged")
    for length in (20, 100, len(content) // 2, len(content) - 1):
        refused(content[:length], tmp_path / "model.wm", "truncated")
    refused(content + b"\0", tmp_path / "model.wm", "damaged")


def test_newer_formats_are_named(tmp_path):
    header, arrays = unpacked(to_bytes(fitted("nu, three")))
    refused(packed(header, arrays, FORMAT + 1), tmp_path / "model.wm", f"version {FORMAT + 1}, .*up to {FORMAT}")
    header["model"]["parameters"]["flux"] = 1
    refused(packed(header, arrays), tmp_path / "model.wm", "NuMarginSVC has no 'flux'; a newer widemargin")


def test_an_older_file_lacks_parameters_and_fields_that_have_a_default(tmp_path):
    header, arrays = unpacked(to_bytes(fitted("nu, three")))
    del header["model"]["parameters"]["block_size"]
    del header["model"]["attributes"]["cost_"]["Ledger"]["lost_peers"]
    (tmp_path / "model.wm").write_bytes(packed(header, arrays))
    again = load(tmp_path / "model.wm")
    assert again.block_size == "auto"
    assert again.cost_ == fitted("nu, three").cost_


def test_the_first_format_stays_readable():
    """The file was written when the format was new; whatever changes, it must go on to load."""
    model = load(GOLDEN)
    grid = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0], [1.4, 1.6]])
    told = json.loads(GOLDEN.with_suffix(".json").read_text(encoding="utf8"))
    np.testing.assert_allclose(model.decision_function(grid), told["scores"], rtol=0, atol=1e-12)
    assert model.predict(grid).tolist() == told["labels"]
    assert list(model[-1].certificate_) == told["certificate"]
    assert model[-1].stop_reason_ == "gap"
    assert model[-1].parts_[0].history == [row for row in told["history"] if row.pop("part") == 0]


@pytest.mark.parametrize("way", ["file", "pickle"])
def test_a_model_from_before_pairs_is_still_one_against_the_rest(way, tmp_path):
    """The file has four classes and no ``multi_class``: it was made when there were no pairs."""
    model = load(GOLDEN.with_name("against-the-rest.wm"))
    if way == "pickle":
        del model.multi_class, model.multi_class_
        model = pickle.loads(pickle.dumps(model))
    told = json.loads(GOLDEN.with_name("against-the-rest.json").read_text(encoding="utf8"))
    scores = model.decision_function(told["rows"])
    np.testing.assert_allclose(scores, told["scores"], rtol=0, atol=1e-12)
    assert model.predict(told["rows"]).tolist() == told["labels"]
    assert model.get_params()["multi_class"] == "rest"
    if way == "file":
        model.set_params(multi_class="pairs")
        np.testing.assert_array_equal(model.decision_function(told["rows"]), scores)
        model.set_params(multi_class="rest")
    save(model, tmp_path / "model.wm")
    again = load(tmp_path / "model.wm")
    assert again.multi_class == "rest"
    np.testing.assert_array_equal(again.decision_function(told["rows"]), scores)
    assert "against the rest" in words.certificate_in_words(again)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "NaN", '{"widemargin": 1e999}', "\x80", "1" * 5000])
def test_headers_that_are_none(text, tmp_path):
    content = text.encode("latin1")
    content = _SIGNATURE + (FORMAT).to_bytes(4, "little") + len(content).to_bytes(8, "little") + content
    refused(signed(content), tmp_path / "model.wm", "cannot be loaded")


def edited(name, *keys, value):
    """The file of a model with one value of its header replaced, and the checksum right."""
    header, arrays = unpacked(to_bytes(fitted(name)))
    inner = header
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    return packed(header, arrays)


@pytest.mark.parametrize(
    ("name", "keys", "value", "match"),
    [
        ("nu, three", ("arrays", 0, 1), [2**40, 2**40, 2**40], "bytes, and the file has"),
        ("nu, three", ("arrays", 0, 1), [-1], "invalid shape"),
        ("nu, three", ("arrays", 0, 1), [1] * 9, "invalid shape"),
        ("nu, three", ("arrays", 0, 0), "|O", "unknown type"),
        ("nu, three", ("arrays", 0, 0), "<U99999", "unknown type"),
        ("nu, three", ("model", "kind"), "Popen", "'Popen' is not an estimator"),
        ("nu, three", ("model", "kind"), "StandardScaler", "StandardScaler has no 'block_size'"),
        ("nu, three", ("model", "parameters", "tol"), {"float": "nan"}, "'tol' parameter of NuMarginSVC must be"),
        ("nu, three", ("model", "parameters", "tol"), "1", "'tol' parameter"),
        ("nu, three", ("model", "parameters", "nu"), 7.0, r"'nu' parameter .* Got 7.0"),
        ("nu, three", ("model", "attributes", "predict"), 5, "no 'predict'"),
        ("nu, three", ("model", "attributes", "n_features_in_"), 2**62, "not a number of features"),
        ("nu, three", ("model", "attributes", "classes_"), {"objects": ["b", "a", "c"]}, "ascending order"),
        ("nu, three", ("model", "attributes", "classes_"), {"objects": ["a", "b"]}, "wrong type or shape"),
        ("kernel, rbf", ("model", "attributes", "kernel_", "Kernel", "gamma"), -1.0, "gamma of a kernel"),
        ("kernel, rbf", ("model", "attributes", "kernel_", "Kernel", "gamma"), 5e-324, "gamma of a kernel"),
        ("kernel, rbf", ("model", "attributes", "kernel_", "Kernel", "degree"), 2**60, "degree of a kernel"),
        ("kernel, rbf", ("model", "attributes", "kernel_", "Kernel", "function"), "os.system", "function of a Kernel"),
        ("kernel, rbf", ("model", "attributes", "kernel_", "Kernel", "name"), "callable", "no kernel 'callable'"),
        ("gossip, rbf", ("model", "attributes", "_map"), None, "coef_ of GossipSVC"),
        ("gossip", ("model", "parameters", "kernel"), "rbf", "random features that do not belong"),
        ("pipe, robust", ("model", "steps"), [], "pipeline of nothing"),
    ],
)
def test_headers_that_mean_harm(name, keys, value, match, tmp_path):
    refused(edited(name, *keys, value=value), tmp_path / "model.wm", match)


def with_array(name, attribute, change):
    """The file of a model with one attribute's array changed, everywhere it is used, and the checksum right."""
    header, arrays = unpacked(to_bytes(fitted(name)))
    node = header["model"]["attributes"][attribute]
    place = node["array"] if "array" in node else node["csr"][3 if change is beyond else 4]
    dtype, shape, _ = header["arrays"][place]
    values = change(np.frombuffer(arrays[place], dtype).reshape(shape).copy())
    header["arrays"][place][1], arrays[place] = list(values.shape), values.tobytes()
    return packed(header, arrays)


def beyond(values):
    values.flat[0] = 2**30
    return values


def overlapping(values):
    values[1] = values[-1] + 5
    return values


def no_letters(values):
    values.view(np.uint32)[0] = 0x110000
    return values


def not_finite(values):
    values.flat[0] = np.nan
    return values


@pytest.mark.parametrize(
    ("name", "attribute", "change", "match"),
    [
        ("kernel, sparse", "support_vectors_", beyond, "beyond its columns"),
        ("kernel, sparse", "support_vectors_", overlapping, "overlap"),
        ("kernel, sparse", "dual_coef_", lambda values: values[:, :-1], "wrong type or shape"),
        ("kernel, poly", "dual_coef_", not_finite, "not finite"),
        ("kernel, poly", "support_vectors_", not_finite, "not finite"),
        ("kernel, poly", "support_vectors_", lambda values: values[:-2], "support vectors and coefficients of"),
        ("kernel, precomputed", "support_", beyond, "not columns of it"),
        ("kernel, precomputed", "support_", lambda values: values - 200, "wrong type or shape"),
        ("nu, three", "coef_", not_finite, "not finite"),
        ("nu, three", "coef_", lambda values: values[:, :2], "wrong type or shape"),
        ("nu, three", "intercept_", lambda values: values[:1], "wrong type or shape"),
        ("hard, bool", "classes_", lambda values: values.view(np.uint8) * 7, "boolean"),
        ("kernel, laplacian", "classes_", no_letters, "characters that do not exist"),
    ],
)  # fmt: skip
def test_arrays_that_mean_harm(name, attribute, change, match, tmp_path):
    refused(with_array(name, attribute, change), tmp_path / "model.wm", match)


def test_nothing_is_unpickled_or_run():
    folder = Path(widemargin.__file__).parent / "io"
    for path in folder.glob("*.py"):
        text = path.read_text(encoding="utf8")
        for word in ("import pickle", "allow_pickle", "joblib", "eval(", "exec(", "np.load", "marshal", "shelve"):
            assert word not in text, f"{path.name} has {word}"


def test_the_examples_of_save_work():
    import doctest

    import widemargin.io.archive as archive

    outcome = doctest.testmod(archive)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_predictions_follow_the_fit_after_multi_class_is_set(tmp_path):
    """Three classes have three pairs: the number of problems does not tell how the model was fitted."""
    X, y = make_blobs(90, centers=3, cluster_std=4.0, random_state=0)
    for fitted_as, other in (("pairs", "rest"), ("rest", "pairs")):
        model = KernelSVC(multi_class=fitted_as).fit(X, y)
        scores, labels = model.decision_function(X), model.predict(X)
        model.set_params(multi_class=other)
        save(model, tmp_path / "model.wm")
        for each in (model, load(tmp_path / "model.wm"), pickle.loads(pickle.dumps(model))):
            assert each.multi_class == other
            assert each.multi_class_ == fitted_as
            np.testing.assert_array_equal(each.decision_function(X), scores)
            np.testing.assert_array_equal(each.predict(X), labels)
        fresh = KernelSVC(multi_class=other).fit(X, y)
        again = model.set_params(warm_start=True).fit(X, y)
        assert again.multi_class_ == other
        np.testing.assert_array_equal(again.decision_function(X), fresh.decision_function(X))
