"""
Gossip through faults
=====================

Ten peers train one SVM, write to neighbours and have no server. Messages may be lost or late, peers may crash and come
back: the network still ends at a gap that every peer knows to be true. Faults cost ticks, not truth.
"""

import matplotlib.pyplot as plt

from widemargin import Faults, GossipSVC
from widemargin.data import make_nonseparable

X, y = make_nonseparable(6_000, 20, random_state=0)

# %%
# :class:`~widemargin.Faults` says what goes wrong; the same seed gives the same misfortunes.

networks = {
    "no faults": Faults(),
    "30% of messages lost": Faults(drop=0.3),
    "30% lost, 0 to 3 ticks late": Faults(drop=0.3, delay=(0, 3)),
    "two peers crash, and are back": Faults(crash={2: 10, 7: 10}, rejoin={2: 60, 7: 60}),
    "cut in two for 50 ticks": Faults(partition=[(5, 55, [0, 1, 2, 3, 4])]),
}
models = {
    name: GossipSVC(alpha=1e-3, n_peers=10, faults=faults, tol=1e-4).fit(X, y) for name, faults in networks.items()
}
for name, model in models.items():
    print(
        f"{name:30} {model.n_iter_:4} ticks, {model.cost_.messages:5} messages, {len(model.nodes_)} peers, "
        f"largest gap {max(node.gap for node in model.nodes_.values()):.1e}"
    )

# %%
# The gap of a peer holds for the rows of the peers that it can reach. Curves begin at the first tick at which every
# peer has a certificate for the rows of all: late, where some were away until tick 60, or the network was cut.

figure, axis = plt.subplots(figsize=(8, 4.2), layout="constrained")
styles = zip(("#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7"), ("-", "--", "-.", "-", "--"), strict=True)
for (name, model), (colour, style) in zip(models.items(), styles, strict=True):
    ticks = [row["sweep"] for row in model.history_]
    gaps = [1 - row["dual"] / row["primal"] for row in model.history_]
    label = f"{name}: {model.n_iter_} ticks"
    axis.semilogy(ticks, gaps, color=colour, linestyle=style, drawstyle="steps-post", label=label)
axis.axhline(1e-4, color="0.4", linestyle=":", linewidth=1)
axis.annotate("tol", (0, 1e-4), textcoords="offset points", xytext=(2, 3), fontsize=8, color="0.4")
axis.set_xlabel("tick")
axis.set_ylabel("certified gap, the largest of any peer")
axis.legend(fontsize=8)
axis.set_title("Faults cost ticks; every network ends with its proof")
plt.show()
