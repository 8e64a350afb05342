"""A fitted network: its peers and edges, what each peer has certified, and how the fit converged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from widemargin.data.files import written_whole
from widemargin.estimators.words import amount

_GAP, _CONSENSUS = "#2f7fd0", "#e07b2a"  # legible on white and on black
_ONE_WAY, _GONE = "#e07b2a", "#c0392b"
_MAX_NUMBERED = 60  # peers
_MAX_DIGITS_INSIDE = 4  # of a number that is written on its peer; a longer one stands below
_GAP_RANGE = 1e4  # of the colour scale; smaller gaps have its darkest colour
_MAX_EXACT_LAYOUT = 150  # peers; beyond, a layout by all pairwise distances is too slow
_LINES = ((1, "dashed", "one end hears the other"), (0, "dotted", "neither end hears the other"))
# Of the least and the most active peer, by number of peers.
_AREAS = {10: (420.0, 1100.0), 60: (170.0, 480.0), 200: (40.0, 140.0)}
WAY: dict[str, Any] = {"sharex": True, "height_ratios": (2, 1, 1)}  # axes for draw_way


def plot_network(model: Any, *, path: str | Path | None = None, figure: Any = None) -> Any:
    """Draw the peers of a fitted :class:`widemargin.GossipSVC`, and gap, consensus and traffic over ticks.

    The smaller the certified gap of a peer, the darker its colour; its area grows with the bytes that it sent and
    received. Grey peers have no certificate; crosses are lost peers. An edge is solid if both ends hear each other,
    dashed if only one does, dotted if neither does.

    Parameters
    ----------
    model : GossipSVC
        Fitted.
    path : str or Path, default=None
        Where to save the figure; the extension determines the format: ``.png``, ``.svg``, ``.pdf``.
    figure : matplotlib.figure.Figure, default=None
        Where to draw; None creates a figure.

    Returns
    -------
    figure : matplotlib.figure.Figure
        Where it was drawn.

    Examples
    --------
    >>> from widemargin import GossipSVC
    >>> from widemargin.data import make_nonseparable
    >>> from widemargin.reports import plot_network
    >>> X, y = make_nonseparable(300, 4, random_state=0)
    >>> figure = plot_network(GossipSVC(alpha=1e-2, n_peers=4).fit(X, y))
    >>> len(figure.subfigs)
    2
    """
    check_is_fitted(model)
    if not hasattr(model, "nodes_"):
        raise ValueError(f"{type(model).__name__} has no peers to draw: only GossipSVC fits a network.")

    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(12.5, 6.4)) if figure is None else figure
    figure.set_layout_engine("constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.2, 1))
    draw_peers(left.subplots(), model)
    draw_way(right.subplots(3, 1, **WAY), model)
    if path is not None:
        save_figure(figure, Path(path), dpi=140)
    return figure


def save_figure(figure: Any, path: Path, dpi: int) -> None:
    """Save a figure in the format of the extension, whole or not at all; without extension it becomes a PNG."""
    path = path if path.suffix else path.with_name(f"{path.name}.png")
    with written_whole(path) as file:
        figure.savefig(file, dpi=dpi, format=path.suffix[1:])


# -- peers -------------------------------------------------------------------------------------------------------------


def draw_peers(ax: Any, model: Any) -> None:
    """Draw the network; title and label explain colours, areas and lines."""
    import matplotlib.pyplot as plt

    nodes, graph = model.nodes_, model.graph_
    places = _layout(graph)
    ink, paper = plt.rcParams["text.color"], plt.rcParams["axes.facecolor"]
    kinds = set()
    for one, other in sorted({(min(i, j), max(i, j)) for i, others in graph.items() for j in others}):
        n_hearing = sum(j in nodes[i].live_neighbours for i, j in ((one, other), (other, one)) if i in nodes)
        kinds.add(n_hearing)
        ax.plot(*np.transpose([places[one], places[other]]), zorder=1, **_edge(n_hearing, ink, len(graph)))
    area = _areas(nodes, len(graph))
    gaps = {k: node.gap for k, node in nodes.items() if np.isfinite(node.gap)}
    shades, bar = _shades(ax, gaps)
    for k, place in places.items():
        edge = {"edgecolors": ink, "linewidths": 0.8 if len(graph) <= _MAX_NUMBERED else 0.3}
        if k not in nodes:
            ax.scatter(*place, s=0.5 * min(area.values()), marker="x", color=_GONE, linewidths=2.2, zorder=3)
            ax.scatter(*place, s=min(area.values()), facecolors=paper, edgecolors=_GONE, linestyle=":", zorder=2)
        else:
            ax.scatter(*place, s=area[k], color=shades(gaps[k]) if k in gaps else "0.6", zorder=3, **edge)
        if len(graph) <= _MAX_NUMBERED:
            shade, size = shades(gaps[k]) if k in gaps else None, area.get(k, min(area.values()))
            _name(ax, k, place, shade, size, is_there=k in nodes, n_peers=len(graph))
    _frame(ax, places)
    if bar is not None:
        extend = "min" if min(gaps.values()) < bar.norm.vmin else "neither"
        looks = {"orientation": "horizontal", "fraction": 0.045, "pad": 0.01, "aspect": 40, "extend": extend}
        ax.figure.colorbar(bar, ax=ax, label="certified gap of a peer", **looks)
    ax.set_title(_title(model), fontsize=11)
    traffic = [node.bytes_sent + node.bytes_received for node in nodes.values()]
    words = [f"areas: bytes sent and received, {amount(min(traffic))} to {amount(max(traffic))}"]
    words += [f"{line}: {meaning}" for n, line, meaning in _LINES if n in kinds]
    ax.set_xlabel("; ".join(words), fontsize=9)


def _layout(graph: Mapping[int, Sequence[int]]) -> dict[int, np.ndarray]:
    """Positions of peers in [-1, 1] x [-1, 1]; the same for the same network."""
    import networkx as nx

    whole = nx.Graph()
    whole.add_nodes_from(sorted(graph))
    whole.add_edges_from((i, j) for i, others in graph.items() for j in others)
    is_large = len(whole) > _MAX_EXACT_LAYOUT or not nx.is_connected(whole)
    places: dict[int, np.ndarray] = (
        nx.spring_layout(whole, seed=0, iterations=60) if is_large else nx.kamada_kawai_layout(whole)
    )
    return places


def _edge(n_hearing: int, ink: str, n_peers: int) -> dict[str, Any]:
    """The line style of an edge of which ``n_hearing`` ends hear the other."""
    colour, alpha, line = ((_GONE, 0.6, ":"), (_ONE_WAY, 0.9, "--"), (ink, 0.45, "-"))[n_hearing]
    width = 1.3 if n_peers <= _MAX_NUMBERED else 0.4
    return {"color": colour, "alpha": alpha, "linewidth": width, "linestyle": line}


def _areas(nodes: Mapping[int, Any], n_peers: int) -> dict[int, float]:
    low, high = next((ends for most, ends in _AREAS.items() if n_peers <= most), (8.0, 40.0))
    traffic = {k: node.bytes_sent + node.bytes_received for k, node in nodes.items()}
    busiest = max(traffic.values()) or 1
    return {k: low + (high - low) * value / busiest for k, value in traffic.items()}


def _shades(ax: Any, gaps: Mapping[int, float]) -> tuple[Any, Any]:
    """A function from gaps to colours, and the scale of the colour bar, which covers at least two decades."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm

    values = [max(gap, 1e-16) for gap in gaps.values()]
    if not values:
        return None, None
    high = max(values)
    low = max(min(values), high / _GAP_RANGE)
    room = max(1.0, float(np.sqrt(100 * low / high)))
    scale: Any = ScalarMappable(LogNorm(low / room, high * room), colormaps["viridis"])

    return lambda gap: scale.to_rgba(max(gap, 1e-16)), scale


def _name(ax: Any, k: int, place: np.ndarray, shade: Any, area: float, *, is_there: bool, n_peers: int) -> None:
    """Write the number of a peer on it, or next to its place if it is lost."""
    size = 9 if n_peers <= 10 else 7
    if not is_there:
        looks = {"textcoords": "offset points", "ha": "center", "fontsize": size, "color": _GONE, "zorder": 4}
        ax.annotate(f"{k}: gone", place, (0, 17), **looks)
        return
    if len(str(k)) > _MAX_DIGITS_INSIDE:
        looks = {"textcoords": "offset points", "ha": "center", "va": "top", "fontsize": size - 1.5, "zorder": 4}
        ax.annotate(str(k), place, (0, -np.sqrt(area / np.pi) - 1), **looks)
        return
    is_dark = shade is not None and np.dot(shade[:3], (0.299, 0.587, 0.114)) < 0.5
    ax.annotate(str(k), place, ha="center", va="center", fontsize=size, color="white" if is_dark else "black", zorder=4)


def _frame(ax: Any, places: Mapping[int, np.ndarray]) -> None:
    """Hide the axes and leave a margin around the peers."""
    ends = np.array(list(places.values()))
    middle, reach = (ends.max(axis=0) + ends.min(axis=0)) / 2, np.ptp(ends, axis=0) / 2 + 0.17
    (left, bottom), (right, top) = middle - reach, middle + reach
    ax.set(xlim=(left, right), ylim=(bottom, top), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def _title(model: Any) -> str:
    n_gone = len(model.graph_) - len(model.nodes_)
    words = [f"{len(model.nodes_)} peers" + (f", {n_gone} gone" if n_gone else ""), f"{model.n_iter_} ticks"]
    judges = [model.nodes_[model.peer_]] if hasattr(model, "peer_") else list(model.nodes_.values())
    largest = max(node.gap for node in judges)
    words.append(f"largest certified gap {largest:.2g}" if np.isfinite(largest) else "not all have a certificate")
    n_networks = len({node.members for node in model.nodes_.values()})
    if n_networks > 1:
        words.append(f"{n_networks} separate networks")
    return ", ".join(words)


# -- convergence -----------------------------------------------------------------------------------------------------


def draw_way(axes: Any, model: Any) -> None:
    """Draw gap and consensus error, messages and bytes over ticks, on three axes."""
    gaps, messages, traffic = axes
    of_any = "" if hasattr(model, "peer_") else ", the largest of any peer"
    history, tol = model.history_, getattr(model, "tol", None)
    ticks = [row["sweep"] for row in history]
    bounds = [(row["primal"] - row["dual"]) / row["primal"] if row["primal"] else 0.0 for row in history]
    gaps.plot(ticks, bounds, color=_GAP, drawstyle="steps-post", label=f"certified gap{of_any}")
    apart = [row.get("consensus", np.nan) for row in history]
    if np.isfinite(apart).any():
        gaps.plot(ticks, apart, color=_CONSENSUS, linewidth=1.2, label=f"consensus error{of_any}")
    if tol and history:
        gaps.axhline(tol, color=_GAP, linewidth=0.8, linestyle=":")
        gaps.annotate("tol", (0.003, tol), xycoords=("axes fraction", "data"), va="bottom", fontsize=8, color=_GAP)
    if history:
        gaps.set_yscale("log")
        gaps.legend(frameon=False, fontsize=8.5, loc="upper right")
        gaps.set_ylim(top=gaps.get_ylim()[1] * 4)  # room for the legend
    else:
        gaps.text(0.5, 0.6, "at no tick did all peers\nhave a certificate", transform=gaps.transAxes, ha="center")
        gaps.set_yticks([])
    cost = model.cost_
    for ax, name, total in ((messages, "messages", f"{cost.messages:,}"), (traffic, "bytes", amount(cost.bytes))):
        ax.plot([0, *ticks, model.n_iter_], [0, *(row[name] for row in history), getattr(cost, name)], color=_GAP)
        ax.set_ylabel(name)
        ax.annotate(f"{total} in all", (0.02, 0.9), xycoords="axes fraction", va="top", fontsize=8.5)
        ax.yaxis.set_major_formatter(lambda value, _, n=name: amount(value) if n == "bytes" else f"{value:,.0f}")
        ax.yaxis.get_major_locator().set_params(nbins=4)
    for ax in axes:
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelbottom=ax is traffic, labelsize=9)
    traffic.xaxis.get_major_locator().set_params(integer=True)
    traffic.set_xlabel("ticks")
