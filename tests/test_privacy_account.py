"""Accounts of privacy: nothing is released that was not charged, whoever else charges, and whatever dies when."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from widemargin import PrivacyAccount

CHARGES = """
import sys
from widemargin import PrivacyAccount
charged = 0
for _ in range(int(sys.argv[2])):
    try:
        PrivacyAccount(sys.argv[1]).charge(0.1, 1e-6)
        charged += 1
    except ValueError as error:
        assert "exceeds what is left" in str(error)
print(charged)
"""
DIES_IN_THE_FIT = """
import os, signal, sys
from widemargin import PrivacyAccount
PrivacyAccount(sys.argv[1]).charge(0.5, 1e-6)
os.kill(os.getpid(), signal.SIGKILL)
"""
DIES_BEFORE_THE_FILE_IS_REPLACED = """
import os, signal, sys
from widemargin import PrivacyAccount
os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)
PrivacyAccount(sys.argv[1]).charge(0.5, 1e-6)
"""


@pytest.fixture
def account(tmp_path):
    return PrivacyAccount.create(tmp_path / "account.json", 1.0, 1e-4)


def start(program, *arguments):
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))


def test_charges_add_up_and_are_listed(account):
    account.charge(0.25, 1e-5, n_rows=100, alpha=0.1)
    account.charge(0.5, 2e-5)
    assert account.left() == (0.25, 7e-5)
    content = json.loads(account.path.read_text())
    assert content["budget"] == {"epsilon": 1.0, "delta": 1e-4}
    assert [each["epsilon"] for each in content["releases"]] == [0.25, 0.5]
    assert content["releases"][0]["n_rows"] == 100


def test_ten_tenths_are_one_and_nothing_is_too_small_to_count(account):
    account.charge(1e-30, 1e-60)
    for _ in range(9):
        account.charge(0.1, 1e-5)
    before = account.path.read_bytes()
    with pytest.raises(ValueError, match="exceeds what is left"):
        account.charge(0.1, 1e-5)
    assert account.path.read_bytes() == before


@pytest.mark.parametrize("asked", [(1.0000001, 1e-5), (0.1, 1.1e-4)])
def test_epsilon_and_delta_are_both_limits(account, asked):
    with pytest.raises(ValueError, match="Nothing was released"):
        account.charge(*asked)
    account.charge(1.0, 1e-4)
    assert account.left() == (0.0, 0.0)


@pytest.mark.parametrize("pair", [(0, 0.1), (-1, 0.1), (float("nan"), 0.1), (float("inf"), 0.1), (1, 0), (1, 1)])
def test_other_amounts_are_refused(account, tmp_path, pair):
    with pytest.raises(ValueError, match="must be positive"):
        account.charge(*pair)
    with pytest.raises(ValueError, match="must be positive"):
        PrivacyAccount.create(tmp_path / "other.json", *pair)
    assert not (tmp_path / "other.json").exists()
    assert account.left() == (1.0, 1e-4)


def test_an_account_is_begun_once_and_before_it_is_used(account, tmp_path):
    with pytest.raises(ValueError, match="begun once"):
        PrivacyAccount.create(account.path, 100.0, 0.1)
    with pytest.raises(ValueError, match=r"begin it with PrivacyAccount\.create"):
        PrivacyAccount(tmp_path / "none.json").charge(0.1, 1e-6)
    with pytest.raises(ValueError, match="folder of the privacy account does not exist"):
        PrivacyAccount.create(tmp_path / "no folder" / "account.json", 1.0, 1e-4)
    assert account.left() == (1.0, 1e-4)


def test_a_link_to_an_account_is_that_account(account, tmp_path):
    link = tmp_path / "link.json"
    link.symlink_to(account.path)
    PrivacyAccount(link).charge(0.75, 1e-5)
    assert link.is_symlink()
    with pytest.raises(ValueError, match="exceeds"):
        account.charge(0.75, 1e-5)


def test_processes_take_turns(tmp_path):
    """Four of them want 40 releases, and the budget is for 25."""
    account = PrivacyAccount.create(tmp_path / "account.json", 2.5, 1e-4)
    processes = [start(CHARGES, account.path, 10) for _ in range(4)]
    told = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, told
    assert sum(int(out) for out, _ in told) == 25
    assert len(json.loads(account.path.read_text())["releases"]) == 25
    assert account.left()[0] == 0.0


def test_a_release_stays_charged_if_its_process_dies(account):
    process = start(DIES_IN_THE_FIT, account.path)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert account.left() == (0.5, 9.9e-5)
    account.charge(0.5, 1e-6)  # the lock was freed


def test_a_process_that_dies_while_it_charges_leaves_a_whole_account(account):
    process = start(DIES_BEFORE_THE_FILE_IS_REPLACED, account.path)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert account.left() == (1.0, 1e-4)  # and nothing was released: charge had not returned
    account.charge(1.0, 1e-6)


def test_a_charge_that_cannot_be_kept_is_an_error(account, monkeypatch):
    def full(*names):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        account.charge(0.5, 1e-6)


DAMAGED: dict[str, str | bytes] = {
    "empty": "",
    "cut off": '{"format": 1, "budget": {"epsilon": 1.0, "delta": 1e-4}, "releases": [{"epsi',
    "no object": "[1, 2]",
    "another format": '{"format": 2, "budget": {"epsilon": 1.0, "delta": 1e-4}, "releases": []}',
    "no budget": '{"format": 1, "releases": []}',
    "no releases": '{"format": 1, "budget": {"epsilon": 1.0, "delta": 1e-4}}',
    "releases of another kind": '{"format": 1, "budget": {"epsilon": 1.0, "delta": 1e-4}, "releases": ""}',
    "not a number": '{"format": 1, "budget": {"epsilon": NaN, "delta": 1e-4}, "releases": []}',
    "infinite": '{"format": 1, "budget": {"epsilon": Infinity, "delta": 1e-4}, "releases": []}',
    "beyond floats": '{"format": 1, "budget": {"epsilon": 1' + "0" * 400 + ', "delta": 1e-4}, "releases": []}',
    "text": '{"format": 1, "budget": {"epsilon": "1", "delta": 1e-4}, "releases": []}',
    "a negative release": '{"format": 1, "budget": {"epsilon": 1.0, "delta": 1e-4}, "releases": [{"epsilon": -9, '
    '"delta": 1e-6}]}',
    "a release without delta": '{"format": 1, "budget": {"epsilon": 1.0, "delta": 1e-4}, "releases": [{"epsilon": 1}]}',
    "not UTF-8": b"\xff\xfe\x00",
    "nested": "[" * 100_000,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_account_allows_nothing(account, name):
    content = DAMAGED[name]
    account.path.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = account.path.read_bytes()
    with pytest.raises(ValueError, match="not a readable privacy account"):
        account.charge(1e-3, 1e-9)
    with pytest.raises(ValueError, match="not a readable privacy account"):
        account.left()
    assert account.path.read_bytes() == before
