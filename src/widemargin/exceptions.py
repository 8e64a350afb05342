"""Errors and warnings that widemargin adds to those of Python and scikit-learn."""

from __future__ import annotations


class OverlapWarning(UserWarning):
    """The (reduced) convex hulls of two classes meet, so no separating margin exists."""


class InterruptedFitWarning(UserWarning):
    """Ctrl-C ended a fit early; the model is the best one found until then."""


class PrecisionWarning(UserWarning):
    """Rounding keeps a gap open that was to be closed; the certificate is true, and wider than asked for."""


class PeerLostWarning(UserWarning):
    """A rank was lost during a fit; the others took over its rows, or the fit went on without them."""


class ModelFileError(ValueError):
    """A model cannot be kept in a file, or a file holds no model that can be trusted; nothing of it was run."""


class PeerLost(RuntimeError):
    """A rank went silent or died, and the fit cannot go on without it; ``address`` says where it ran."""

    def __init__(self, message: str, address: str = "") -> None:
        super().__init__(message, address)
        self.address = address

    def __str__(self) -> str:
        return str(self.args[0])
