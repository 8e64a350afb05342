"""``widemargin inspect``: the contents of a model file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from widemargin.cli._input import ModelPath

_MAX_FEATURES = 20  # that are printed
_MAX_MEMBERS = 20


def inspect(model: ModelPath, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show a model: its problem, parameters, certificate, cost, and coefficients or support vectors.

    [bold]Example[/bold]:

      widemargin inspect model.wm

      widemargin inspect model.wm --json | jq .certificate
    """
    from widemargin.cli._input import load_model

    found = described(load_model(model))
    if as_json:
        typer.echo(json.dumps(finite(found), default=str))
    else:
        _print(model, found)


def described(model: Any) -> dict[str, Any]:
    """A model as plain values."""
    from widemargin.cli._model import last_step, proof, scaler_of, size_bytes, warning
    from widemargin.estimators.words import accuracy_in_words, members_in_words
    from widemargin.reports.problem import problem_as_text

    estimator, scaler = last_step(model), scaler_of(model)
    words, formula = problem_as_text(estimator)
    found = {
        "warning": dict(warning(model)).get("warning"),
        "estimator": type(estimator).__name__,
        "problem": words,
        "formula": formula,
        "parameters": {name: _plain(value) for name, value in sorted(estimator.get_params(deep=False).items())},
        "scaler": None if scaler is None else type(scaler).__name__,
        "classes": estimator.classes_.tolist(),
        "n_features": int(model.n_features_in_),
        "size_bytes": size_bytes(estimator),
    }
    if hasattr(estimator, "release_"):
        found |= {"release": estimator.release_.figures(), "proof": proof(model)}
    elif hasattr(estimator, "certificate_"):
        (primal, dual), gap = estimator.certificate_, estimator.certificate_.relative
        found |= {
            "certificate": {"primal": primal, "dual": dual, "relative_gap": gap},
            "stop_reason": estimator.stop_reason_,
            "n_iter": int(estimator.n_iter_),
            "cost": {**estimator.cost_.counts(), "seconds": dict(estimator.cost_.seconds)},
            "proof": proof(model),
        }
    if hasattr(estimator, "training_"):
        counts = estimator.training_
        found["training"] = {
            "accuracy": counts.accuracy,
            "accuracy_of_largest_class": counts.largest_class_share,
            "n_rows": counts.n_rows,
            "n_rows_counted": counts.n_counted,
            "in_words": accuracy_in_words(estimator),
        }
    if hasattr(estimator, "peer_"):
        found["members"] = {
            "saved_by": estimator.peer_,
            "rows": {k: node.n_rows for k, node in estimator.nodes_.items()},
        }
        found["members"]["in_words"] = members_in_words(estimator)
    return found | _search(estimator) | _decides_by(model, estimator)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str, list, dict)) else repr(value)


def _search(estimator: Any) -> dict[str, Any]:
    """What cross-validation has chosen, if it was that."""
    from widemargin.estimators.searched import chosen_parameters, searched

    chosen, table = chosen_parameters(estimator), searched(estimator)
    if chosen is None:
        return {}
    figures: dict[str, Any] = {"chosen": chosen}
    if table is not None:
        point = table.chosen
        figures |= {"mean_score": point.mean, "standard_error": point.error, "points": table.states}
    return {"search": figures}


def _decides_by(model: Any, estimator: Any) -> dict[str, Any]:
    """The number of support vectors, or the largest coefficients, with their intervals if there are any."""
    import numpy as np

    from widemargin.cli._model import feature_names
    from widemargin.estimators.words import numbered_features

    if not hasattr(estimator, "coef_"):
        vectors = getattr(estimator, "support_vectors_", None)
        return {"n_support_vectors": None if vectors is None else int(vectors.shape[0])}
    coef = np.atleast_2d(estimator.coef_)
    if coef.shape[1] != model.n_features_in_:  # of random features
        return {"n_coefficients": int(coef.size)}
    names = feature_names(model) or numbered_features(coef.shape[1])
    weight = np.abs(coef).max(axis=0)
    n_used = int((weight > 0).sum())
    order = np.argsort(-weight, kind="stable")[: min(n_used, _MAX_FEATURES)]
    if hasattr(estimator, "coef_interval_"):  # by p-value: features that were not selected have intervals, too
        order = np.lexsort((-weight, estimator.pvalue_.min(axis=0)))[:_MAX_FEATURES]
    features = []
    for j in order.tolist():
        row: dict[str, Any] = {"feature": names[j], "coefficients": coef[:, j].tolist()}
        if hasattr(estimator, "coef_interval_"):
            row |= {"intervals": estimator.coef_interval_[:, j].tolist(), "p_values": estimator.pvalue_[:, j].tolist()}
        features.append(row)
    problems = estimator._parts.names(estimator.classes_)
    return {"n_features_used": n_used, "problems": problems, "features": features}


def finite(value: Any) -> Any:
    """The same with None for numbers that are not finite, which JSON lacks."""
    if isinstance(value, dict):
        return {str(key): finite(each) for key, each in value.items() if key != "proof"}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# -- printed -----------------------------------------------------------------------------------------------------------


def _print(path: Path, found: dict[str, Any]) -> None:
    from widemargin.cli._input import named
    from widemargin.cli._say import console, facts
    from widemargin.estimators.words import amount

    pairs = [("warning", found["warning"])] if found["warning"] else []
    pairs += [
        ("estimator", found["estimator"] + ("" if found["scaler"] is None else f", after {found['scaler']}")),
        ("problem", f"{found['problem']}\n{found['formula']}"),
        ("classes", named(found["classes"], most=12)),
        ("features", f"{found['n_features']:,}"),
        ("parameters", ", ".join(f"{name}={value!r}" for name, value in found["parameters"].items())),
        ("size", f"{amount(found['size_bytes'])} of arrays for prediction"),
    ]
    if "search" in found:
        pairs.append(("chosen by search", _search_in_words(found["search"])))
    if "training" in found:
        pairs.append(("training accuracy", found["training"]["in_words"]))
    if found.get("n_support_vectors") is not None:
        pairs.append(("support vectors", f"{found['n_support_vectors']:,}"))
    if "n_features_used" in found:
        pairs.append(("features used", f"{found['n_features_used']:,}"))
    screen = console()
    screen.print(facts(str(path), pairs))
    proof = found.get("proof", []) + ([("rows", found["members"]["in_words"])] if "members" in found else [])
    screen.print(facts("Certificate", proof) if proof else "This model has no certificate.")
    if "members" in found:
        screen.print(_members(found["members"]))
    if found.get("features"):
        screen.print(_coefficients(found))


def _members(members: dict[str, Any]) -> Any:
    """Whose rows the model stands for: counts, the largest first."""
    from widemargin.cli._say import columns

    ranked = sorted(members["rows"].items(), key=lambda each: (-each[1], each[0]))
    rows = [[str(number), f"{n_rows:,}"] for number, n_rows in ranked[:_MAX_MEMBERS]]
    n_more = len(ranked) - len(rows)
    rows += [[f"{n_more:,} more", f"{sum(n for _, n in ranked[_MAX_MEMBERS:]):,}"]] if n_more else []
    return columns(["member", "rows"], rows, title="Rows of members")


def _search_in_words(search: dict[str, Any]) -> str:
    from widemargin.estimators.searched import parameters_in_words

    text = parameters_in_words(search["chosen"])
    if "mean_score" in search:
        text += f"; mean over folds {search['mean_score']:.4f}, standard error {search['standard_error']:.4f}"
    return text


def _coefficients(found: dict[str, Any]) -> Any:
    from widemargin.cli._say import columns

    features, n_used = found["features"], found["n_features_used"]
    n = len(features[0]["coefficients"])
    shown = f"the {len(features)} largest of {n_used:,}" if n_used > len(features) else "all nonzero ones"
    if "intervals" in features[0]:
        shown = f"the {len(features)} with the smallest p-values of {found['n_features']:,}; 0 if not selected"
        rows, titles = [], ["coefficient", "interval", "p-value"]
        for each in features:
            k = min(range(len(each["p_values"])), key=each["p_values"].__getitem__)
            low, high = each["intervals"][k]
            figures = [f"{each['coefficients'][k]:.5g}", f"[{low:.5g}, {high:.5g}]", f"{each['p_values'][k]:.2g}"]
            rows.append([each["feature"], *figures])
    elif n <= 6:
        titles = ["coefficient"] if n == 1 else found["problems"]
        rows = [[each["feature"], *(f"{value:.5g}" for value in each["coefficients"])] for each in features]
    else:
        titles = ["largest coefficient"]
        rows = [[each["feature"], f"{max(each['coefficients'], key=abs):.5g}"] for each in features]
    return columns(["feature", *titles], rows, title=f"Coefficients, {shown}", may_fold=True)
