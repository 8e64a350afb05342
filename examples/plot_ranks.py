"""
What ranks say to each other
============================

With ``cluster=k`` the rows are divided among k ranks, here threads of one process; on Dask and MPI they are machines.
Rows stay where they are. What travels are sums, and ``cost_`` counts them: the rounds do not depend on the number of
ranks, the bytes grow with it, and the answer stays the same.
"""

import matplotlib.pyplot as plt

from widemargin import NuMarginSVC
from widemargin.data import make_nonseparable

X, y = make_nonseparable(100_000, 40, random_state=0)

# %%
# The largest message would be the rows themselves: that is the line to compare with.

ranks = (1, 2, 4, 8, 16)
models = [NuMarginSVC(nu=0.4, cluster=k, random_state=0).fit(X, y) for k in ranks]
for k, model in zip(ranks, models, strict=True):
    seconds = model.history_[-1]["seconds"]
    print(
        f"{k:2} ranks: {model.cost_.rounds:3} rounds, {model.cost_.bytes:9,} bytes, {seconds:.2f} s, "
        f"optimum in [{model.certificate_.dual:.6f}, {model.certificate_.primal:.6f}]"
    )

# %%
# Bytes are exact and the same on every machine; seconds are not, and depend on the cores that there are.

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
places = range(1, len(ranks))
sent = [model.cost_.bytes / 1e6 for model in models]
bars = left.bar(places, sent[1:], color="#0072B2", label="sent by all ranks, whole fit")
left.bar_label(bars, [f"{value:.2f}" for value in sent[1:]], fontsize=8)
left.axhline(X.nbytes / 1e6, color="#D55E00", linestyle="--", label="the rows, which stay where they are")
left.set_yscale("log")
left.set_xticks(places, ranks[1:])
left.set_ylabel("MB")
left.set_ylim(top=200)
left.legend(fontsize=8, loc="center left")
left.set_title("Little is sent", fontsize=10)
for place, model in enumerate(models):
    low, high = model.certificate_.dual, model.certificate_.primal
    right.plot([place, place], [low, high], color="#009E73", linewidth=5, solid_capstyle="butt")
right.axhspan(
    max(model.certificate_.dual for model in models),
    min(model.certificate_.primal for model in models),
    color="#CC79A7",
    alpha=0.4,
    label="in all of them",
)
right.set_xticks(range(len(ranks)), ranks)
right.set_ylabel("the optimum lies within")
right.ticklabel_format(axis="y", useOffset=False)
right.legend(fontsize=8)
right.set_title("All brackets hold the same optimum", fontsize=10)
for axis in (left, right):
    axis.set_xlabel("ranks")
share = sent[-1] * 1e6 / X.nbytes
figure.suptitle(f"Sixteen ranks send {share:.1%} of what the rows would be, and find the same optimum")
plt.show()
