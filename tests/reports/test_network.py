"""The picture of a network: which peers, edges and numbers are drawn, and that they are those of the fit."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from tests.problems_at_hand import overlapping
from widemargin import Faults, GossipSVC, KernelSVC

matplotlib = pytest.importorskip("matplotlib", reason="needs the plot extra")
pytest.importorskip("networkx", reason="needs networkx")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.colors import to_rgba  # noqa: E402

from widemargin.reports.network import _GONE, _ONE_WAY, plot_network  # noqa: E402


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def rows():
    return overlapping(0, n=160)


@pytest.fixture(scope="module")
def model(rows):
    return GossipSVC(alpha=0.05, n_peers=8).fit(*rows)


def panels(figure):
    """The network, gap and consensus, messages, bytes; a bar of colours may stand among them."""
    by_label = {ax.get_ylabel(): ax for ax in figure.axes}
    ways = [ax for ax in figure.axes if ax.get_yscale() == "log" and ax.lines]
    return figure.axes[0], ways[0] if ways else None, by_label["messages"], by_label["bytes"]


def words(ax):
    return "\n".join([*(text.get_text() for text in ax.texts), ax.get_title(), ax.get_xlabel()])


def test_every_peer_has_its_number_and_every_edge_a_line(model):
    network = panels(plot_network(model))[0]
    assert [text.get_text() for text in network.texts] == [str(k) for k in range(8)]
    assert len(network.lines) == sum(map(len, model.graph_.values())) // 2
    assert all(line.get_linestyle() == "-" for line in network.lines)
    assert "8 peers" in network.get_title()
    assert f"{max(node.gap for node in model.nodes_.values()):.2g}" in network.get_title()


def test_the_busiest_peer_has_the_largest_area(model):
    circles = panels(plot_network(model))[0].collections
    assert len(circles) == 8
    traffic = [node.bytes_sent + node.bytes_received for node in model.nodes_.values()]
    areas = [circle.get_sizes()[0] for circle in circles]
    assert np.argmax(areas) == np.argmax(traffic)
    assert np.argmin(areas) == np.argmin(traffic)


def test_gap_consensus_messages_and_bytes_are_those_of_the_history(model):
    _, way, messages, traffic = panels(plot_network(model))
    gap, apart = way.lines[:2]
    history = model.history_
    np.testing.assert_allclose(gap.get_ydata(), [1 - row["dual"] / row["primal"] for row in history])
    np.testing.assert_allclose(apart.get_ydata(), [row["consensus"] for row in history])
    np.testing.assert_array_equal(gap.get_xdata(), [row["sweep"] for row in history])
    assert messages.lines[0].get_ydata()[-1] == model.cost_.messages
    assert traffic.lines[0].get_ydata()[-1] == model.cost_.bytes
    assert f"{model.cost_.messages:,} in all" in words(messages)


def test_peers_that_are_gone_and_edges_that_are_silent_are_marked(rows):
    model = GossipSVC(alpha=0.05, n_peers=6, topology="ring", faults=Faults(crash={2: 20})).fit(*rows)
    network = panels(plot_network(model))[0]
    assert "2: gone" in words(network)
    assert "1 gone" in network.get_title()
    assert "dotted" in network.get_xlabel()
    dotted = [line for line in network.lines if line.get_linestyle() == ":"]
    assert len(dotted) == 2
    assert all(to_rgba(line.get_color()) == to_rgba(_GONE) for line in dotted)


def test_an_edge_that_one_end_hears_is_dashed(model):
    one = model.graph_[0][0]
    deaf = dict(model.nodes_)
    others = tuple(j for j in deaf[0].live_neighbours if j != one)
    deaf[0] = deaf[0]._replace(live_neighbours=others, certificate=None)
    copy = GossipSVC()
    copy.__dict__.update({**model.__dict__, "nodes_": deaf})
    network = panels(plot_network(copy))[0]
    dashed = [line for line in network.lines if line.get_linestyle() == "--"]
    assert [to_rgba(line.get_color()) for line in dashed] == [to_rgba(_ONE_WAY)]
    assert tuple(network.collections[0].get_facecolor()[0][:3]) == to_rgba("0.6")[:3]  # it has no certificate


def test_without_a_certificate_of_all_the_traffic_is_still_there(rows):
    with pytest.warns(UserWarning, match="max_iter"):
        model = GossipSVC(alpha=0.05, n_peers=8, max_iter=2).fit(*rows)
    assert model.history_ == []
    figure = plot_network(model)
    _, way, messages, _ = panels(figure)
    assert way is None
    assert any("at no tick did all peers" in words(ax) for ax in figure.axes)
    assert messages.lines[0].get_ydata().tolist() == [0, model.cost_.messages]


def test_many_peers_have_no_numbers(rows):
    with pytest.warns(UserWarning, match="max_iter"):
        model = GossipSVC(alpha=0.05, n_peers=70, max_iter=3).fit(*rows)
    network = panels(plot_network(model))[0]
    assert not network.texts
    assert len(network.collections) == 70


def test_it_is_saved_and_draws_where_it_is_told(model, tmp_path):
    figure = plt.figure()
    path = tmp_path / "network.png"
    assert plot_network(model, path=path, figure=figure) is figure
    assert path.read_bytes().startswith(b"\x89PNG")


def test_what_has_no_peers_is_refused(rows):
    with pytest.raises(NotFittedError):
        plot_network(GossipSVC())
    with pytest.raises(ValueError, match="KernelSVC has no peers"):
        plot_network(KernelSVC().fit(*rows))


def test_matplotlib_and_networkx_are_imported_only_to_draw():
    import subprocess

    code = "import sys, widemargin.reports.network; sys.exit('matplotlib' in sys.modules or 'networkx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
