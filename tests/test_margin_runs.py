"""How the benchmarks of the margin distribution machine measure: workers, first arrivals, sets that are not wanted."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("benchmarks", reason="benchmarks are not in the distribution")
pytest.importorskip("matplotlib", reason="benchmarks draw")

from benchmarks import _harness as harness
from benchmarks import _margin_runs as runs
from benchmarks import margin_distribution as program
from benchmarks.sparse import Section

from widemargin.problems.margin_distribution import MarginDistribution
from widemargin.solvers.svrg import SVRG


def test_tasks_go_to_the_worker_that_is_free_first_level_by_level():
    tasks = [[3.0, 2.0, 2.0, 1.0], [4.0]]
    assert runs.scheduled(tasks, 1) == 12.0
    assert runs.scheduled(tasks, 2) == 4.0 + 4.0  # 3 + 1 and 2 + 2
    assert runs.scheduled(tasks, 8, before=1.0) == 1.0 + 3.0 + 4.0


def test_nodes_share_gradients_and_take_their_steps_in_turn():
    found = runs.linear_projections({"n": 1_000, "seconds": 3.0, "step_seconds": 1.0})
    every_row, every_node = found.values()
    assert every_row[0] == every_node[0] == 1.0
    assert every_row[-1] == pytest.approx(3.0 / (2.0 / 32 + 1.0))  # never over (2 + 1) / 1
    assert every_node[-1] == pytest.approx((2.0 + 0.032) / (2.0 / 32 + 0.032))


@pytest.mark.parametrize("n_nodes", [1, 3])
def test_epochs_come_to_the_gap_and_say_what_their_steps_took(n_nodes):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (600, 4))
    y = np.where(X @ [2, -1, 1, -2.0] + 0.2 * rng.normal(size=600) > 0, 1.0, -1.0)
    nodes, _ = runs.nodes_of(X, y, n_nodes)
    np.testing.assert_array_equal(np.sort(np.concatenate(nodes)), np.arange(600))
    found = runs.epochs(SVRG(), MarginDistribution(100.0), X, y, nodes, tol=1e-4)
    assert found[-1].gap <= 1e-4 < found[-2].gap
    assert not found[0].w.any()
    assert all(0 <= epoch.step_seconds <= epoch.seconds for epoch in found)
    assert all(np.diff([epoch.seconds for epoch in found]) >= 0)


def test_an_accuracy_is_reached_when_no_later_point_is_below_it():
    points = [{"seconds": float(k), "accuracy": a} for k, a in enumerate([0.5, 0.9, 0.8, 0.9, 0.95])]
    assert program.first_near(points, 0.85) == 3.0
    assert program.first_near(points, 0.4) == 0.0
    assert program.first_near(points, 0.96) is None


class Folder:
    """A report with a folder, and what sections left in it."""

    def __init__(self, folder):
        self.folder = folder

    def read(self, name):
        path = self.folder / f"{name}.json"
        return json.loads(path.read_text(encoding="utf8")) if path.exists() else {}


def test_sets_that_are_not_wanted_are_not_run_and_what_is_kept_of_them_is(tmp_path):
    of = program.SetJobs(Folder(tmp_path), "some", ["phishing"], fresh=True)
    assert of.find("SUSY", runs.one_tuning, "ODM", True) is None
    key = json.dumps(["one_tuning", "SUSY", "ODM", True])
    over = json.dumps(["one_tuning", "a7a", "ODM", True])
    lines = [json.dumps({"job": key, "outcome": {"score": 0.5}}), json.dumps({"job": over, "outcome": None})]
    (tmp_path / "some.jobs.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "some.json").write_text(json.dumps({"some": {"sets": {"ijcnn1": {"splits": []}}}}))
    of = program.SetJobs(Folder(tmp_path), "some", ["phishing"], fresh=False)
    assert of.find("SUSY", runs.one_tuning, "ODM", True) == {"score": 0.5}
    assert of.find("a7a", runs.one_tuning, "ODM", True, limit=60.0) == {"over": 60.0}
    assert of.before == {"ijcnn1": {"splits": []}}
    assert program.SetJobs(Folder(tmp_path), "some", ["phishing"], fresh=True).before == {}


def test_the_paper_s_figures_are_those_of_its_tables():
    assert set(program.PAPER) == set(program.PAPER_LINEAR) == set(program.SPLITS)
    assert program.PAPER["phishing"]["SODM"] == (0.938, 25.22)
    assert program.PAPER["SUSY"]["DC-SVM"] == (0.758, 7520.00)
    assert program.PAPER["a7a"]["Ca-ODM"] == (0.824, 68.36)


@pytest.mark.parametrize("section", ["tuning", "figure_2", "figure_4"])
def test_a_set_whose_jobs_come_to_their_limit_is_left_out(section, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    report = Section("margin_distribution", section, quick=True)
    jobs = program.SetJobs(report, section, ["svmguide1"], fresh=False)
    chosen = {who: {"C": 1.0, "gamma": 1.0} for who in runs.TUNED}
    if section != "tuning":
        monkeypatch.setattr(program, "parameters", lambda report, jobs, name: chosen if name == "svmguide1" else None)
    monkeypatch.setattr(jobs, "_outcome", lambda function, arguments, limit: None)
    program.SECTIONS[section](report, jobs)
    assert section == "figure_2" or "svmguide1 is left out" in capsys.readouterr().out
    assert not report.read(section).get(section, {}).get("sets")
