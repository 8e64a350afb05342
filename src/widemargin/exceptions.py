"""Errors and warnings that widemargin adds to those of Python and scikit-learn."""

from __future__ import annotations

import sys
import warnings

_NOT_OF_THE_USER = {"widemargin", "sklearn", "joblib"}  # packages between a user's line and what is said of it


class OverlapWarning(UserWarning):
    """The (reduced) convex hulls of two classes meet, so no separating margin exists.

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
    """Ctrl-C ended a fit early; the model is the best one found until then.

    Examples
    --------
    A program in which Ctrl-C is to end everything makes it an error:

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
    """Rounding keeps a gap open that was to be closed; the certificate is true, and wider than asked for.

    Examples
    --------
    Where the gap that was reached is good enough, silence:

    >>> import warnings
    >>> from widemargin import PrecisionWarning
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("ignore", PrecisionWarning)
    ...     warnings.warn("a gap of 3e-16 is left", PrecisionWarning)
    >>> len(said)
    0
    """


class PeerLostWarning(UserWarning):
    """A rank was lost during a fit; the others took over its rows, or the fit went on without them."""


class ModelFileError(ValueError):
    """A model cannot be kept in a file, or a file holds no model that can be trusted; nothing of it was run.

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
    """A rank went silent or died, and the fit cannot go on without it; ``address`` says where it ran.

    Parameters
    ----------
    message : str
        What happened, and what to do.
    address : str, default=""
        Where the rank ran, if that is known.

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
    """Warn at the line of the user that led here, however many of our own and of scikit-learn's are in between."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _NOT_OF_THE_USER:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, kind, stacklevel=level)
