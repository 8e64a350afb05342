"""Errors and warnings that widemargin adds to those of Python and scikit-learn."""

from __future__ import annotations

import sys
import warnings

_INTERNAL_PACKAGES = {"widemargin", "sklearn", "joblib", "contextlib"}  # skipped when a warning is attributed to a line


class OverlapWarning(UserWarning):
    """The (reduced) convex hulls of two classes intersect, so there is no separating margin.

    Examples
    --------
    >>> import warnings
    >>> from widemargin import HardMarginSVC, OverlapWarning
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always", OverlapWarning)
    ...     model = HardMarginSVC().fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])
    >>> said[0].category.__name__, model.stop_reason_
    ('OverlapWarning', 'overlap')
    """


class InterruptedFitWarning(UserWarning):
    """Ctrl-C ended a fit early; the model is the best one found so far.

    Examples
    --------
    Turn it into an error, so that Ctrl-C ends the program:

    >>> import warnings
    >>> from widemargin import InterruptedFitWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", InterruptedFitWarning)
    ...     warnings.warn("Ctrl-C", InterruptedFitWarning)
    Traceback (most recent call last):
        ...
    widemargin.exceptions.InterruptedFitWarning: Ctrl-C
    """


class PrecisionWarning(UserWarning):
    """Rounding keeps the gap above ``tol``; the certificate is valid but wider than requested.

    Examples
    --------
    Ignore it if the gap that was reached is good enough:

    >>> import warnings
    >>> from widemargin import PrecisionWarning
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("ignore", PrecisionWarning)
    ...     warnings.warn("a gap of 3e-16 is left", PrecisionWarning)
    >>> len(said)
    0
    """


class DegenerateModelWarning(UserWarning):
    """The model is no better than a constant on its training rows; ``training_`` has the counts.

    It gives all rows one class, or is less accurate than the largest class alone, both under the weights of the fit.

    Examples
    --------
    Refuse such models in a program that nobody watches:

    >>> import warnings
    >>> from widemargin import DegenerateModelWarning, SparseSVC
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", DegenerateModelWarning)
    ...     SparseSVC(alpha=10.0).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    Traceback (most recent call last):
        ...
    widemargin.exceptions.DegenerateModelWarning: SparseSVC has no coefficient ...
    """


class CheckpointWarning(UserWarning):
    """The state of a fit cannot be saved in its ``checkpoint`` folder; the fit goes on, and tries again later.

    Examples
    --------
    Turn it into an error, so that a fit never runs for hours without a checkpoint:

    >>> import warnings
    >>> from widemargin import CheckpointWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", CheckpointWarning)
    ...     warnings.warn("the disk is full", CheckpointWarning)
    Traceback (most recent call last):
        ...
    widemargin.exceptions.CheckpointWarning: the disk is full
    """


class PeerLostWarning(UserWarning):
    """A rank was lost during a fit; others took over its rows, or the fit continued without them."""


class ModelFileError(ValueError):
    """A model cannot be saved, or a file does not contain a valid model; no code from the file was run.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from widemargin import ModelFileError, load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "model.wm"
    ...     _ = path.write_text("no model")
    ...     try:
    ...         load(path)
    ...     except ModelFileError:
    ...         print("refused")
    refused
    """


class PeerLost(RuntimeError):
    """A rank stopped responding or died, and the fit cannot continue; ``address`` says where it ran.

    Parameters
    ----------
    message : str
        What happened, and what to do.
    address : str, default=""
        Where the rank ran, if known.

    Examples
    --------
    >>> from widemargin import PeerLost
    >>> try:
    ...     raise PeerLost("A worker is gone.", "tcp://10.0.0.2:4000")  # as a fit on a cluster does
    ... except PeerLost as error:
    ...     print(error, error.address)
    A worker is gone. tcp://10.0.0.2:4000
    """

    def __init__(self, message: str, address: str = "") -> None:
        super().__init__(message, address)
        self.address = address

    def __str__(self) -> str:
        return str(self.args[0])


def warn_user(text: str, kind: type[Warning]) -> None:
    """Warn, and attribute the warning to the user's line that called the library."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _INTERNAL_PACKAGES:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, kind, stacklevel=level)
