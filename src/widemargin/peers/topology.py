"""The graph of a network, by name or as the user gives it."""

from math import isqrt
from operator import index
from typing import Any

NAMES = ("complete", "ring", "grid", "star", "random-regular", "erdos-renyi")
_MAX_TRIES = 100  # random graphs, until one is connected
_EXPECTED = f"must be one of {', '.join(NAMES)}, a networkx graph or a list of edges"

Graph = dict[int, list[int]]  # neighbours of each peer, in order


def build(topology: Any, n_peers: int, degree: int, seed: int) -> Graph:
    """The neighbours of peers 0 to ``n_peers - 1``; ValueError names the components of a graph that is not connected.

    ``topology`` is a name, a networkx graph or a list of edges. ``degree`` is the degree of a random regular graph and
    the mean degree of an Erdos-Renyi graph; with few peers both are complete.
    """
    import networkx as nx

    graph = _named(topology, n_peers, degree, seed) if isinstance(topology, str) else _given(topology, n_peers)
    if n_peers > 1 and not nx.is_connected(graph):
        components = [sorted(component) for component in nx.connected_components(graph)]
        shown = "; ".join(f"{{{', '.join(map(str, c[:8]))}{', ...' if len(c) > 8 else ''}}}" for c in components[:6])
        raise ValueError(
            f"The network has {len(components)} components that no message can cross: {shown}. Add edges, or fit each "
            "component on its own."
        )
    return {peer: sorted(j for j in graph[peer] if j != peer) for peer in range(n_peers)}


def _named(name: str, n_peers: int, degree: int, seed: int) -> Any:
    import networkx as nx

    if name not in NAMES:
        raise ValueError(f"topology={name!r} {_EXPECTED}.")
    if name == "complete" or n_peers <= min(degree, 2) + 1:
        return nx.complete_graph(n_peers)
    if name == "ring":
        return nx.cycle_graph(n_peers)
    if name == "star":
        return nx.star_graph(n_peers - 1)
    if name == "grid":
        width = isqrt(n_peers - 1) + 1  # as square as possible; the last row may be short
        graph = nx.empty_graph(n_peers)
        graph.add_edges_from((k, k + 1) for k in range(n_peers - 1) if (k + 1) % width)
        graph.add_edges_from((k, k + width) for k in range(n_peers - width))
        return graph
    if degree >= n_peers - 1:
        return nx.complete_graph(n_peers)
    even = degree + n_peers * degree % 2  # in a regular graph the sum of all degrees is even
    for k in range(_MAX_TRIES):
        if name == "random-regular":
            graph = nx.random_regular_graph(even, n_peers, seed=seed + k)
        else:
            graph = nx.gnp_random_graph(n_peers, degree / (n_peers - 1), seed=seed + k)
        if nx.is_connected(graph):
            break
    return graph


def _given(topology: Any, n_peers: int) -> Any:
    """The user's graph, with its nodes numbered in their order."""
    import networkx as nx

    if hasattr(topology, "nodes") and hasattr(topology, "edges"):
        graph = nx.convert_node_labels_to_integers(nx.Graph(topology))
    else:
        graph = nx.empty_graph(n_peers)
        try:
            edges = [(index(one), index(other)) for one, other in topology]
        except (TypeError, ValueError) as error:
            raise ValueError(f"topology={topology!r} {_EXPECTED}, each a pair of peer numbers.") from error
        wrong = [edge for edge in edges if min(edge) < 0 or max(edge) >= n_peers]
        if wrong:
            raise ValueError(f"topology names {wrong[0]}; with {n_peers} peers numbers must lie in [0, {n_peers - 1}].")
        graph.add_edges_from(edges)
    if len(graph) != n_peers:
        raise ValueError(f"topology has {len(graph)} nodes and there are {n_peers} peers: both must be equal.")
    return graph
