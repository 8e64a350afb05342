"""The coefficients of a 1-norm SVM over its penalty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from widemargin.estimators.sparse_path import SparsePath
from widemargin.estimators.words import numbered_features

_MAX_LABELS = 8  # of the features with the largest final coefficients


def plot_sparse_path(
    path: SparsePath, *, feature_names: Sequence[str] | None = None, chosen: float | None = None, ax: Any = None
) -> Any:
    """Draw how features enter as the penalty falls.

    Parameters
    ----------
    path : SparsePath
        What :func:`widemargin.sparse_svc_path` returned.
    feature_names : sequence of str, default=None
        Names for the labels; None numbers the features.
    chosen : float, default=None
        A penalty to mark, for example ``SparseSVCCV(...).fit(X, y).alpha_``.
    ax : matplotlib.axes.Axes, default=None
        Where to draw; None creates a figure.

    Returns
    -------
    ax : matplotlib.axes.Axes
        Where it was drawn.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from widemargin import sparse_svc_path
    >>> from widemargin.reports import plot_sparse_path
    >>> data = load_breast_cancer()
    >>> path = sparse_svc_path(scale(data.data), data.target, n_alphas=8)
    >>> ax = plot_sparse_path(path, feature_names=data.feature_names)
    >>> ax.get_ylabel()
    'coefficient'
    """
    import matplotlib.pyplot as plt

    ax = plt.subplots(figsize=(7.5, 4.5), layout="constrained")[1] if ax is None else ax
    ever, final = np.flatnonzero(path.coefs.any(axis=0)), path.coefs[-1]
    named = ever[np.argsort(-np.abs(final[ever]))][:_MAX_LABELS]
    colours = {}
    for j in ever:
        look = {"linewidth": 1.6, "zorder": 3} if j in named else {"color": "0.75", "linewidth": 0.8, "zorder": 2}
        (line,) = ax.plot(path.alphas, path.coefs[:, j], **look)
        colours[int(j)] = line.get_color()
    ax.axhline(0, color="0.3", linewidth=0.8)
    if chosen is not None:
        ax.axvline(chosen, color="0.3", linestyle="--", linewidth=1, label=f"alpha = {chosen:.3g}")
        ax.legend(loc="upper left", frameon=False)
    ax.set(xscale="log", xlabel="alpha, the penalty (weaker to the right)", ylabel="coefficient")
    ax.invert_xaxis()
    names = numbered_features(path.coefs.shape[1]) if feature_names is None else list(feature_names)
    _name_ends(ax, [(float(final[j]), str(names[j]), colours[int(j)]) for j in named])
    _count_above(ax, path)
    return ax


def _name_ends(ax: Any, ends: list[tuple[float, str, str]]) -> None:
    """Label the ends of lines without overlap."""
    low, high = ax.get_ylim()
    room, place = 0.045 * (high - low), -np.inf
    for value, name, colour in sorted(ends):
        place = max(value, place + room)
        at = (1.01, (place - low) / (high - low))
        ax.annotate(name, at, xycoords="axes fraction", color=colour, fontsize=8, va="center", annotation_clip=False)


def _count_above(ax: Any, path: SparsePath) -> None:
    """Show the number of features along the top."""
    above, step = ax.secondary_xaxis("top"), max(1, len(path.alphas) // 8)
    above.set_xticks(path.alphas[::step], [str(count) for count in path.n_selected[::step]])
    above.minorticks_off()
    above.set_xlabel("features")
