"""Errors and warnings that widemargin adds to those of Python and scikit-learn."""

from __future__ import annotations

import sys
import warnings

_NOT_OF_THE_USER = {"widemargin", "sklearn", "joblib"}  # packages between a user's line and what is said of it


class OverlapWarning(UserWarning):
    """The (reduced) convex hulls of two classes meet, so no separating margin exists."""


class InterruptedFitWarning(UserWarning):
    """Ctrl-C ended a fit early; the model is the best one found until then."""


class PrecisionWarning(UserWarning):
    """Rounding keeps a gap open that was to be closed; the certificate is true, and wider than asked for."""


class PeerLostWarning(UserWarning):
    """A rank was lost during a fit; the others took over its rows, or the fit went on without them."""


class PeerLost(RuntimeError):
    """A rank went silent or died, and the fit cannot go on without it; ``address`` says where it ran."""

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
