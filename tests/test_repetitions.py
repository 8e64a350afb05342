"""Simulations that are interrupted go on where they stood, and what they are summed up to is right."""

from __future__ import annotations

import json
import math
import os
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the plot extra")
pytest.importorskip("benchmarks", reason="benchmarks are not in the distribution")

from benchmarks import _debiased_claims as claims
from benchmarks import _debiased_runs as runs
from benchmarks import _repetitions as repetitions

SETTINGS = {"p": 3}


def job(settings, number, part):
    """Says in which process it was made."""
    return {"value": 10 * number + part, "process": os.getpid()}


def repeated(folder, n_repetitions, parts=(1, 5), meanwhile=None):
    report = SimpleNamespace(folder=folder)
    return repetitions.repeated(report, "some", SETTINGS, parts, job, n_repetitions, 1, meanwhile=meanwhile)


def test_parts_are_kept_and_only_what_is_missing_is_made(tmp_path):
    seen = []
    first = repeated(tmp_path, 2, meanwhile=lambda outcomes: seen.append(len(outcomes)))
    assert [[each[part]["value"] for part in ("1", "5")] for each in first] == [[1, 5], [11, 15]]
    assert seen == [1, 2]
    path = repetitions.file_of_repetitions(SimpleNamespace(folder=tmp_path), "some")
    lines = path.read_text(encoding="utf8").splitlines()
    path.write_text("\n".join([*lines[:3], lines[3][:20]]) + "\n", encoding="utf8")  # killed while it wrote
    again = repeated(tmp_path, 3)
    assert again[0] == first[0]
    assert again[1]["1"] == first[1]["1"]
    assert again[1]["5"]["process"] != first[1]["5"]["process"]
    assert len(again) == 3


def test_repetitions_that_are_not_whole_are_left_out_and_settings_are_compared(tmp_path):
    found = {(0, 1): "a", (0, 5): "b", (1, 1): "c"}
    assert repetitions.whole(found, (1, 5), 2) == [{"1": "a", "5": "b"}]
    path = tmp_path / "some.repetitions.jsonl"
    path.write_text(json.dumps({"settings": {"p": 4}, "repetition": 0, "part": 1, "outcome": 1}) + "\n")
    assert list(repetitions.earlier(path, SETTINGS)) == []


def test_means_have_the_standard_error_of_the_mean():
    assert runs.mean_and_error([1.0, 3.0]) == (2.0, pytest.approx(1.0))
    assert runs.mean_and_error([1.0]) == (1.0, None)


def test_a_slope_over_rows_is_found_again():
    by_size = {str(N): [3 * N**-0.5, 2 * N**-0.4] for N in (100, 400, 1600)}
    assert claims.slopes(by_size, [100, 400, 1600]) == pytest.approx([-0.5, -0.4])


def test_the_largest_number_of_machines_within_a_factor_is_between_two_that_were_tried():
    by_machines = {1: [1.0, 1.0], 2: [1.0, 1.0], 4: [2.0, 2.0]}
    everything = np.arange(2)
    assert claims.largest_within(by_machines, math.sqrt(2), everything) == pytest.approx(2 * math.sqrt(2))
    assert claims.largest_within(by_machines, 3.0, everything) is None  # beyond what was tried


def test_the_growth_of_the_largest_number_of_machines_is_found_again():
    p, machines = 10, (1, 2, 4, 8, 16, 32, 64)
    errors = {N: {M: [max(1.0, M / (N / math.log(p)) ** (1 / 3)) / math.sqrt(N)] * 3 for M in machines}
              for N in (100, 1_000, 10_000)}  # fmt: skip
    found = claims.growth(errors, 2.0, p)
    assert found["slope"] == pytest.approx(1 / 3, abs=0.02)
    assert found["standard error"] == pytest.approx(0.0, abs=1e-9)


def test_cross_validation_at_a_machine_chooses_from_its_grids_and_moves_the_estimate():
    settings = {"design": "paper", "p": 20, "n": 600, "intercept": False, "constraint": 0.8}
    found = claims.tuned(settings, 0, 2)
    assert all(factor in claims.PENALTIES for factor in found["lambda"])
    assert all(c in claims.CONSTRAINTS for what in found if what.startswith("C b_n") for c in found[what])
    assert len(found["lambda"]) == 2
    errors = found["errors"]
    assert errors["NAE, rules"] != errors["NAE, lambda by CV"]
    assert max(each["l_inf"] for each in errors.values()) < 0.75  # of zero it is .75


def test_the_rules_here_are_those_of_the_library():
    settings = {"design": "paper", "p": 20, "n": 600, "intercept": False, "constraint": 0.8}
    design, X, y = runs.drawn(settings, 1, 600)
    ours = runs.estimates(X, y, 2, settings, design)["AE"]
    each = [claims.pilot(part, labels, claims.rule_alpha(part)) for part, labels in claims.parts_of(X, y, 2)]
    steps = [one.coef + claims.theta_of(one, 0.8) @ one.score for one in each]
    np.testing.assert_allclose(np.mean(steps, axis=0), ours, atol=1e-6)
