"""What private releases have spent of a budget, on disk: a release that would exceed it is refused before it is made.

An account stands for one set of rows. By basic composition the epsilons and the deltas of all releases add up, whatever
the releases were of; they are added as decimal numbers, so that ten releases of 0.1 are exactly 1. A release is charged
before the rows are used, and stays charged if the fit fails.

The file is JSON: the budget, and one entry for each release. Whoever can write it can forge it. Processes that share a
file take turns (``FILE.lock``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from widemargin.data.files import write_whole

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_FORMAT = 1
_MOST_EPSILON = 1e300  # numbers in a file may be larger than float64 holds


@dataclass(frozen=True)
class PrivacyAccount:
    """The account in a file; :meth:`create` begins one.

    Parameters
    ----------
    path : str or path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from widemargin import PrivacyAccount
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     account = PrivacyAccount.create(Path(folder) / "account.json", epsilon=3, delta=1e-4)
    ...     account.charge(1.0, 1e-5)
    ...     account.left()
    (2.0, 9e-05)
    """

    path: str | os.PathLike[str]

    @classmethod
    def create(cls, path: str | os.PathLike[str], epsilon: float, delta: float) -> PrivacyAccount:
        """Begin an account with a budget; ValueError if the file exists.

        Parameters
        ----------
        path : str or path
            The file.
        epsilon, delta : float
            The budget for all releases together.

        Returns
        -------
        account : PrivacyAccount
        """
        _check_amounts(epsilon, delta)
        account = cls(path)
        with account._locked():
            if Path(path).exists():
                raise ValueError(f"{path} exists: an account is begun once. Use PrivacyAccount({str(path)!r}).")
            account._write({"format": _FORMAT, "budget": _entry(epsilon, delta), "releases": []})
        return account

    def charge(self, epsilon: float, delta: float, **terms: float) -> None:
        """Spend some of the budget; ValueError, and nothing is spent, if not enough is left.

        Parameters
        ----------
        epsilon, delta : float
            Of the release.
        **terms : float
            Public numbers that are noted beside it.
        """
        _check_amounts(epsilon, delta)
        with self._locked():
            content = self._read()
            left = _left(content)
            asked = _exact(epsilon), _exact(delta)
            if asked[0] > left[0] or asked[1] > left[1]:
                raise ValueError(
                    f"privacy=({epsilon:g}, {delta:g}) exceeds what is left in {self.path}: epsilon "
                    f"{float(left[0]):g} and delta {float(left[1]):g}. Nothing was released."
                )
            at = datetime.now(UTC).isoformat(timespec="seconds")
            content["releases"].append({"at": at, **_entry(epsilon, delta), **terms})
            self._write(content)

    def left(self) -> tuple[float, float]:
        """Compute what is left of the budget.

        Returns
        -------
        epsilon, delta : float
        """
        epsilon, delta = _left(self._read())
        return float(epsilon), float(delta)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one process at a time read and write; the system frees the lock of one that is killed."""
        path = Path(os.path.realpath(self.path))
        if not path.parent.is_dir():
            raise ValueError(f"The folder of the privacy account does not exist: {path.parent}.")
        if fcntl is None:
            raise ValueError("Privacy accounts need the file locks of POSIX, which this system lacks.")
        with path.with_name(f"{path.name}.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(Path(self.path).read_text(encoding="utf8"))
            if content["format"] != _FORMAT:
                raise ValueError(f"its format is {content['format']!r}, and this version reads {_FORMAT}")
            if not isinstance(content["releases"], list):
                raise ValueError("its releases are not a list")
            for each in (content["budget"], *content["releases"]):
                _check_amounts(each["epsilon"], each["delta"])
        except FileNotFoundError:
            raise ValueError(
                f"There is no privacy account {self.path}: begin it with PrivacyAccount.create(path, epsilon, delta)."
            ) from None
        except (OSError, UnicodeDecodeError, ValueError, TypeError, KeyError, RecursionError) as error:
            told = f"{error!r}" if isinstance(error, KeyError) else str(error).rstrip(".")
            raise ValueError(f"{self.path} is not a readable privacy account: {told}.") from error
        return dict(content)

    def _write(self, content: dict[str, Any]) -> None:
        write_whole(Path(self.path), (json.dumps(content, indent=1) + "\n").encode("utf8"))


def _entry(epsilon: float, delta: float) -> dict[str, float]:
    return {"epsilon": float(epsilon), "delta": float(delta)}


def _left(content: dict[str, Any]) -> tuple[Fraction, Fraction]:
    """Budget less releases, exact for the decimal numbers that are printed."""
    epsilon, delta = (
        _exact(content["budget"][name]) - sum((_exact(each[name]) for each in content["releases"]), Fraction(0))
        for name in ("epsilon", "delta")
    )
    return epsilon, delta


def _exact(amount: float) -> Fraction:
    return Fraction(repr(float(amount)))


def _check_amounts(epsilon: float, delta: float) -> None:
    if not (0 < epsilon <= _MOST_EPSILON and 0 < delta < 1):
        raise ValueError(
            f"epsilon={epsilon!r} must be positive and at most {_MOST_EPSILON:g}, and delta={delta!r} between 0 and 1."
        )
