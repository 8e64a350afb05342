"""Errors and warnings that widemargin adds to those of Python and scikit-learn."""

from __future__ import annotations


class OverlapWarning(UserWarning):
    """The (reduced) convex hulls of two classes meet, so no separating margin exists."""


class InterruptedFitWarning(UserWarning):
    """Ctrl-C ended a fit early; the model is the best one found until then."""


class PeerLostWarning(UserWarning):
    """A rank was lost during a fit, its rows were recomputed and the fit was done by the others."""


class PeerLost(RuntimeError):
    """A rank went silent or died, and its rows cannot be recomputed; ``address`` says where it ran."""

    def __init__(self, message: str, address: str = "") -> None:
        super().__init__(message, address)
        self.address = address

    def __str__(self) -> str:
        return str(self.args[0])
