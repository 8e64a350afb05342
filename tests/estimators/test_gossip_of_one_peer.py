"""The model that one peer of a network knows: whose rows it stands for, saved and in words."""

from __future__ import annotations

import numpy as np
import pytest

from tests.peers.test_loop import FAST, TOL, Threads, Wires, data, peer_of
from widemargin import report
from widemargin.estimators.gossip import of_outcome
from widemargin.estimators.words import certificate_in_words, members_in_words
from widemargin.exceptions import ModelFileError
from widemargin.io.archive import load, save
from widemargin.peers.loop import PeerLimits, PeerLoop
from widemargin.problems.mean_hinge import MeanHinge
from widemargin.strategies.peers import Network, outcome_of_peer


def networked(sizes, lost=()):
    """Models of peers in a complete network, by number; those in ``lost`` end early and without a word."""
    parts, labels = data(len(sizes), n_rows=max(sizes))
    numbers = range(len(sizes))
    peers = {
        k: peer_of(k, parts[k][: sizes[k]], labels[k][: sizes[k]], [j for j in numbers if j != k]) for k in numbers
    }
    wires, threads = Wires(len(sizes)), Threads()
    for k, peer in peers.items():
        # Three must have met before any may stop, and those that are lost stop before they can be done.
        limits = PeerLimits(1e-12 if k in lost else TOL, max_ticks=40 if k in lost else np.inf, at_least=3, **FAST)
        threads.start(PeerLoop(peer, wires.of(k), limits))
    threads.join()
    network = Network(MeanHinge(0.01), {k: peer.neighbours for k, peer in peers.items()}, 3, True, True)
    models = {}
    for k, final in threads.reports.items():
        outcome = outcome_of_peer(network, np.array([0, 1]), peers[k], final)
        models[k] = of_outcome({"alpha": 0.01, "tol": TOL}, outcome, None), final
    return models


def test_the_rows_of_all_members_are_counted():
    sizes = [30, 80, 50]
    for k, (model, final) in networked(sizes).items():
        assert model.peer_ == k
        assert {number: node.n_rows for number, node in model.nodes_.items()} == dict(enumerate(sizes))
        assert final.rows == dict(enumerate(map(float, sizes)))
        assert sum(final.rows.values()) == final.total
        assert members_in_words(model) == (
            f"The model stands for the 160 rows of 3 members, as they state them; peer {k} saved it"
        )
        assert "The optimum over the rows of 3 members lies between" in certificate_in_words(model)


def test_members_of_the_certificate_only_are_counted():
    models = networked([30, 80, 50, 40], lost=[3])
    model, final = models[0]
    assert final.members == sorted(model.nodes_)
    assert sum(node.n_rows for node in model.nodes_.values()) == final.total
    assert final.members in ([0, 1, 2], [0, 1, 2, 3])
    assert f"rows of {len(final.members)} members" in members_in_words(model)


def test_it_is_saved_with_the_number_of_its_peer_and_without_rows(tmp_path):
    model = networked([30, 80, 50])[1][0]
    save(model, tmp_path / "model.wm")
    loaded = load(tmp_path / "model.wm")
    assert loaded.peer_ == 1
    assert members_in_words(loaded) == members_in_words(model)
    loaded.peer_ = 9
    with pytest.raises(ModelFileError, match="not among its members"):
        save(loaded, tmp_path / "other.wm")
    X, y = np.vstack(data(2)[0]), np.concatenate(data(2)[1])
    loaded.peer_ = 1
    assert not hasattr(loaded.set_params(n_peers=2, metric="auto").fit(X, y), "peer_")


def test_its_report_has_the_rows_of_members_and_no_gaps_of_others():
    pytest.importorskip("matplotlib", reason="needs the plot extra")
    model = networked([30, 80, 50])[1][0]
    page = report(model).html
    assert "The model stands for the 160 rows of 3 members, as they state them; peer 1 saved it." in page
    assert "Gaps and traffic of the others are not known here." in page
    assert "not all have a certificate" not in page
    assert "all peers" not in page


def test_without_a_certificate_it_says_what_was_known():
    model = networked([30, 80, 50])[1][0]
    model.certificate_ = model.certificate_._replace(dual=-np.inf)
    assert members_in_words(model) == "There is no certificate: peer 1 knew 3 members with 160 rows"


def test_a_limit_that_comes_after_the_gap_is_not_blamed_for_it():
    from widemargin.estimators.words import stop_in_words

    model = networked([30, 80, 50])[1][0]
    model.stop_reason_ = "max_time"
    assert stop_in_words(model) == (
        "max_time was reached; the gap is at most tol, but not all peers had met, or certified it."
    )
    model.tol = 1e-15
    assert stop_in_words(model) == "max_time ran out before the gap reached tol."
