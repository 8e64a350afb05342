"""
Which network gossips fastest?
==============================

News must cross the network before anything is proved for all rows. In a ring of twelve peers it needs six ticks from
one side to the other; in a complete network one. What a closer network costs is messages, or one peer through which
everything goes.
"""

import matplotlib.pyplot as plt
import numpy as np

from widemargin import GossipSVC
from widemargin.data import make_nonseparable

X, y = make_nonseparable(3_600, 20, random_state=0)

# %%
# Twelve peers, each writing to all its neighbours in every tick, until all have certified a gap of 1e-3.

names = ("ring", "grid", "star", "random-regular", "erdos-renyi", "complete")
ticks, messages, busiest = [], [], []
for name in names:
    runs = [
        GossipSVC(alpha=1e-3, n_peers=12, fan_out=11, topology=name, random_state=seed).fit(X, y) for seed in range(3)
    ]
    ticks.append(np.median([run.n_iter_ for run in runs]))
    messages.append(np.median([run.cost_.messages for run in runs]))
    shares = [[node.bytes_received for node in run.nodes_.values()] for run in runs]
    busiest.append(np.median([max(share) / np.mean(share) for share in shares]))
    print(f"{name:15} {ticks[-1]:4.0f} ticks, {messages[-1]:5.0f} messages, busiest peer {busiest[-1]:.1f} x mean")

# %%
# Medians of three seeds. The star is a server by another name: the fewest messages, a centre that receives more than
# twice what others do, and a network that falls apart when it fails.

figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), sharey=True, layout="constrained")
titles = ("ticks to a certified 1e-3", "messages", "bytes received by the busiest peer")
units, colours = ("ticks", "messages of all peers", "times the mean"), ("#0072B2", "#D55E00", "#009E73")
for axis, values, colour, title, unit in zip(axes, (ticks, messages, busiest), colours, titles, units, strict=True):
    bars = axis.barh(names, values, color=colour)
    digits = 1 if axis is axes[2] else 0
    axis.bar_label(bars, [f"{value:,.{digits}f}" for value in values], padding=3, fontsize=8)
    axis.margins(x=0.22)
    axis.set_title(title, fontsize=10)
    axis.set_xlabel(unit)
axes[0].invert_yaxis()
axes[0].set_ylabel("topology of 12 peers")
slowest, fastest = names[int(np.argmax(ticks))], names[int(np.argmin(ticks))]
figure.suptitle(f"The {slowest} takes {max(ticks) / min(ticks):.1f} times the ticks of the {fastest} network")
plt.show()
