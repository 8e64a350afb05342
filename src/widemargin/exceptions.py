"""Errors and warnings that widemargin adds to those of Python and scikit-learn."""

from __future__ import annotations


class OverlapWarning(UserWarning):
    """The (reduced) convex hulls of two classes meet, so no separating margin exists."""


class InterruptedFitWarning(UserWarning):
    """Ctrl-C ended a fit early; the model is the best one found until then."""


class PeerLost(RuntimeError):
    """A rank went silent or died, and its rows cannot be recomputed."""
