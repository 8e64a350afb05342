"""``reproduce``: what it runs and in which order, how it goes on, and what it says of what is left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from widemargin.cli import _papers, reproduce

ROOT = Path(__file__).resolve().parents[2]
QUICK_LIMIT = 600.0  # seconds on two cores that have nothing else to do

# Writes down how it was called, keeps a job, and fails where the file ``broken`` names its section.
PROGRAM = """
import json, sys
from pathlib import Path

from benchmarks import harness  # harness.FRESH

SECTIONS = {{{sections}}}

if __name__ == "__main__":
    with open("called", "a") as file:
        file.write(" ".join([__spec__.name.removeprefix("benchmarks."), *sys.argv[1:]]) + "\\n")
    section = sys.argv[sys.argv.index("--only") + 1]
    results = Path("benchmarks", "results", "{folder}" + "-quick" * ("--quick" in sys.argv))
    results.mkdir(parents=True, exist_ok=True)
    with (results / f"{{section}}.jobs.jsonl").open("a") as file:
        file.write(json.dumps({{"job": "a", "seconds": 90.0, "outcome": 1}}) + "\\n")
    sys.exit(3 if section in Path("broken").read_text().split() else 0)
"""


@pytest.fixture
def checkout(folder, monkeypatch):
    """A checkout with small programs for GADGET, and for the saddle paper one without sections."""
    (folder / "src" / "widemargin").mkdir(parents=True)
    programs = folder / "benchmarks"
    programs.mkdir()
    for name in ("__init__", "harness"):
        (programs / f"{name}.py").touch()
    sections = {"gossip_paper": ("table_2", "table_3", "appendix"), "gossip": ("ticks", "scale")}
    for name, each in sections.items():
        listed = ", ".join(f'"{section}": None' for section in each)
        (programs / f"{name}.py").write_text(PROGRAM.format(sections=listed, folder=name))
    for name in ("saddle_paper", "saddle_communication"):
        note = f"import sys\nopen('called', 'a').write(' '.join(['{name}', *sys.argv[1:]]) + '\\n')\n"
        (programs / f"{name}.py").write_text(note)
    (folder / "broken").touch()
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return folder


def called(checkout):
    path = checkout / "called"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


ALL = [
    "gossip_paper --only table_2",
    "gossip_paper --only table_3",
    "gossip_paper --only appendix",  # which the list does not have
    "gossip --only ticks",
    "gossip --only scale",
]
QUICK = [f"{line} --quick --fresh" for line in ALL[:-1]]


def test_the_papers_own_sections_come_first_and_what_has_ended_is_not_run_again(checkout, command):
    ended = command("reproduce", "gadget")
    assert ended.code == 0, ended.err
    assert called(checkout) == ALL
    assert f"Results: {checkout / 'benchmarks' / 'results' / 'gossip_paper'}" in ended.err
    ended = command("reproduce", "gadget")
    assert ended.code == 0
    assert called(checkout) == []
    assert "0 of 5 sections left." in ended.out
    assert command("reproduce", "gadget", "--fresh").code == 0
    assert called(checkout) == [f"{line} --fresh" for line in ALL]


def test_the_list_says_what_is_done_what_is_left_and_how_long_it_takes_and_runs_nothing(checkout, command):
    lines = command("reproduce", "gadget", "--list").out.splitlines()
    assert any("table_3" in line and "left" in line and "estimate" in line for line in lines)
    assert any("appendix" in line and line.rstrip().endswith("-") for line in lines)
    assert lines[-1].startswith("5 of 5 sections left, about ")
    assert lines[-1].endswith("and 1 of unknown length.")
    (checkout / "broken").write_text("table_3")
    assert command("reproduce", "gadget").code == 2
    called(checkout)
    ended = command("reproduce", "gadget", "--list")
    assert ended.code == 0
    assert called(checkout) == []
    lines = ended.out.splitlines()
    assert any("table_2" in line and "done 20" in line and "90 s" not in line for line in lines)
    assert any("table_3" in line and "left, 1 job kept" in line for line in lines)
    assert any("ticks" in line and "2 min, measured" in line for line in lines)  # its jobs took longer than this run
    assert lines[-1].startswith("1 of 5 sections left, about ")


def test_one_that_fails_does_not_stop_the_others_and_is_run_again(checkout, command):
    (checkout / "broken").write_text("table_2 ticks")
    ended = command("reproduce", "gadget")
    assert ended.code == 2
    assert called(checkout) == ALL
    last = ended.err.splitlines()[-1]
    for name in ("gossip_paper table_2", "gossip ticks"):
        assert f"benchmarks.{name} failed with exit code 3" in last
    assert "table_3" not in last
    (checkout / "broken").write_text("")
    ended = command("reproduce", "gadget")
    assert (ended.code, called(checkout)) == (0, [ALL[0], ALL[3]])


def test_a_run_that_was_stopped_goes_on(checkout, command, monkeypatch):
    run, n_runs = subprocess.run, []

    def stopped(*arguments, **settings):
        n_runs.append(1)
        if len(n_runs) == 2:
            raise KeyboardInterrupt
        return run(*arguments, **settings)

    monkeypatch.setattr(subprocess, "run", stopped)
    assert command("reproduce", "gadget").code != 0
    assert called(checkout) == ALL[:1]
    command("reproduce", "gadget")
    assert called(checkout) == ALL[1:]


def test_quick_begins_anew_each_time_and_leaves_full_results_alone(checkout, command):
    for _ in range(2):
        ended = command("reproduce", "gadget", "--quick")
        assert ended.code == 0
        assert "--quick leaves out gossip scale." in ended.err
        assert called(checkout) == QUICK
        assert sorted(path.name for path in (checkout / "benchmarks" / "results").iterdir()) == [
            "gossip-quick",
            "gossip_paper-quick",
        ]
    assert "5 of 5 sections left" in command("reproduce", "gadget", "--list").out


def test_programs_without_sections_run_whole_and_from_a_deeper_folder(checkout, command, monkeypatch):
    (checkout / "deeper").mkdir()
    monkeypatch.chdir(checkout / "deeper")
    ended = command("reproduce", "saddle", "--quick")
    assert ended.code == 0, ended.err
    lines = called(checkout)
    assert set(lines) == {"saddle_paper --quick", "saddle_communication --quick"}
    assert lines[-1] == "saddle_communication --quick"


def test_a_record_that_was_cut_off_is_read_as_far_as_it_goes(checkout, command):
    assert command("reproduce", "gadget").code == 0
    path = checkout / "benchmarks" / "results" / "gossip" / _papers.RECORD
    path.write_text(path.read_text() + '{"job": "gossip ti')
    assert "0 of 5 sections left" in command("reproduce", "gadget", "--list").out


def test_elsewhere_it_needs_a_checkout(folder, command, monkeypatch):
    monkeypatch.setattr(reproduce, "__file__", str(folder / "site-packages" / "reproduce.py"))
    ended = command("reproduce", "sbp")
    assert ended.code == 2
    assert ended.err.startswith("reproduce needs a checkout of widemargin")
    ended = command("reproduce", "svm")
    assert (ended.code, "'svm' is not one of" in ended.err) == (2, True)


needs_checkout = pytest.mark.skipif(not (ROOT / "benchmarks").is_dir(), reason="not run from a checkout")


@needs_checkout
@pytest.mark.parametrize("paper", list(reproduce.Paper))
def test_papers_have_programs_and_sections_that_exist(paper):
    assert reproduce.checkout() == ROOT
    parts = _papers.parts_of(paper, ROOT)
    for part in _papers.PARTS[paper]:
        assert part in parts, f"{part.name} is listed, and the program has no such section"
    for part in parts:
        arguments = _papers.command_of(part, ROOT, quick=True, fresh=False)
        source = (ROOT / "benchmarks" / f"{part.program}.py").read_text()
        assert "harness.arguments" in source
        assert ("--only" in arguments) == (part.section is not None)


@needs_checkout
def test_a_quick_run_judges_no_bar_of_the_full_size(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib", reason="needs the plot extra")
    from benchmarks import _harness as harness

    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    bars = [
        harness.Bar("fast", "<= 1 s", "2 s", is_met=False),
        harness.Bar("a proof", "true", "true", is_met=True, is_of_any_size=True),
    ]
    for quick, words in ((True, ["skipped: asked of the full size", "pass"]), (False, ["FAIL", "pass"])):
        harness.Report("some", quick=quick).bars(bars)
        lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()[-2:]]
        assert [line.endswith(word) for line, word in zip(lines, words, strict=True)] == [True, True]
    kept = json.loads((tmp_path / "some-quick" / "results.json").read_text())["bars"]
    assert [bar["is_met"] for bar in kept] == [None, True]


@needs_checkout
def test_jobs_are_kept_with_their_seconds_and_quick_ones_need_no_process_of_their_own(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the plot extra")
    from benchmarks._jobs import Jobs

    for name, is_here in (("some-quick", True), ("some", False)):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "section.jobs.jsonl"
        number = Jobs(path, fresh=False)(os.getpid)
        assert (number == os.getpid()) == is_here
        assert Jobs(path, fresh=False)(os.getpid) == number  # kept
        assert json.loads(path.read_text())["seconds"] >= 0
    assert Jobs(tmp_path / "some-quick" / "other.jobs.jsonl", fresh=True)(os.getpid, limit=20.0) != os.getpid()


@needs_checkout
def test_jobs_are_found_by_the_names_under_which_programs_keep_them():
    pytest.importorskip("matplotlib", reason="needs the plot extra")
    from benchmarks import kernel_forest

    listed = {part.program: part for parts in _papers.PARTS.values() for part in parts}
    for program, part in listed.items():
        source = (ROOT / "benchmarks" / f"{program}.py").read_text()
        for name in re.findall(r'folder / f?"(.+)\.(?:jobs|repetitions)\.jsonl"', source):
            assert name in ("{name}", "{section}", *(_papers._sections(ROOT / "benchmarks" / f"{program}.py") or ()))
        assert (part.kept is not None) == (program == "kernel_forest")
    solver = kernel_forest.OPTIONS["--solver"]["default"]
    assert listed["kernel_forest"].kept == f"forest_{solver.replace('-', '_')}"
    (path,) = _papers._files_of_jobs(listed["kernel_forest"], ROOT)[:1]
    assert path == ROOT / "forest_batch_perceptron.jobs.jsonl"


def test_jobs_of_workers_side_by_side_take_their_share_of_the_time(checkout):
    part = _papers.parts_of("gadget", checkout)[1]
    assert part.section == "table_3"
    folder = _papers.folder_of(part, checkout, quick=False)
    folder.mkdir(parents=True)
    lines = [{"seconds": 60.0, "workers": 2, "outcome": k} for k in range(4)] + [{"seconds": 5.0}, {"outcome": 1}]
    path = folder / "table_3.repetitions.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    state = _papers.state_of(part, checkout, quick=False)
    assert (state.n_jobs, state.spent) == (6, 125.0)
    _papers.note_fresh(part, checkout, quick=False)
    assert not path.exists()


@needs_checkout
@pytest.mark.parametrize(
    ("program", "section", "needs"),
    [
        ("gossip_paper", "table_5", "table_3"),
        ("kernel_paper", "table_1", "figure_2"),
        ("saddle_communication", "lower_bound", "growth"),
        ("debiased", "rates", "figure_2"),
    ],
)
def test_a_part_that_lacks_what_it_needs_fails_and_comes_after_that(program, section, needs, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="needs the plot extra")
    from importlib import import_module

    from benchmarks import _harness as harness

    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", [program, "--only", section])
    with pytest.raises(SystemExit, match=f"{section} needs {needs}"):
        import_module(f"benchmarks.{program}").main()
    (paper,) = {name for name, parts in _papers.PARTS.items() if any(part.program == program for part in parts)}
    order = [part.section for part in _papers.PARTS[paper] if part.program == program]
    assert order.index(needs) < order.index(section)
    if section == "rates":
        assert order.index("figure_2_5000") < order.index(section)


def ended_with_its_children(arguments, limit, **settings):
    """Exit code and output of a command; one that takes longer is ended together with all that it has started."""
    child = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **settings
    )
    try:
        output, _ = child.communicate(timeout=limit)
    except BaseException:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise
    return child.returncode, output


@pytest.mark.skipif(sys.platform == "win32", reason="no sessions")
def test_a_run_that_takes_too_long_leaves_no_process_behind(tmp_path):
    program = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open("child", "w").write(str(child.pid))
os.rename("child", "started")
time.sleep(60)
"""
    with pytest.raises(subprocess.TimeoutExpired):
        ended_with_its_children([sys.executable, "-c", program], 5.0, cwd=tmp_path)
    number = int((tmp_path / "started").read_text())
    for _ in range(200):
        if not is_running(number):
            break
        time.sleep(0.05)
    assert not is_running(number)


def is_running(number):
    """Whether a process is there that has not ended; one whose parent is gone may wait for somebody to notice."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    status = Path("/proc", str(number), "stat")
    return not status.is_file() or status.read_text().rpartition(")")[2].split()[0] != "Z"


@needs_checkout
@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="no sessions")
@pytest.mark.xdist_group("reproduce")  # two at once would not end in time
@pytest.mark.parametrize("paper", list(reproduce.Paper))
def test_every_paper_ends_when_quick(paper):
    pytest.importorskip("matplotlib", reason="needs the plot extra")
    if "WIDEMARGIN_DATA" not in os.environ and not (ROOT.parent / "shared" / "data").is_dir():
        pytest.skip("needs the papers' sets")
    arguments = [sys.executable, "-m", "widemargin.cli", "reproduce", paper, "--quick"]
    code, output = ended_with_its_children(arguments, QUICK_LIMIT, cwd=ROOT)
    assert code == 0, output[-4_000:]
    assert "FAIL" not in output
