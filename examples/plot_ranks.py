"""
What ranks say to each other
============================

With ``cluster=k`` the rows are divided among k ranks, here threads of one process; on Dask and MPI they are machines.
Rows stay where they are. What travels are sums, and ``cost_`` counts them: bytes grow with the number of ranks, and
hardly with the number of rows.
"""

import matplotlib.pyplot as plt

from widemargin import NuMarginSVC
from widemargin.data import make_nonseparable

# %%
# The same rows on 2 to 16 ranks: as many rounds, the same optimum.

X, y = make_nonseparable(100_000, 40, random_state=0)
ranks, by_ranks = (2, 4, 8, 16), []
for k in ranks:
    model = NuMarginSVC(nu=0.4, cluster=k, random_state=0).fit(X, y)
    by_ranks.append(model.cost_.bytes / 1e6)
    print(f"{k:2} ranks: {model.cost_.rounds} rounds, {model.cost_.bytes:,} bytes, {model.certificate_}")

# %%
# More and more rows on four ranks.

counts, by_rows = (6_250, 12_500, 25_000, 50_000, 100_000), []
for n_rows in counts:
    model = NuMarginSVC(nu=0.4, cluster=4, random_state=0).fit(X[:n_rows], y[:n_rows])
    by_rows.append(model.cost_.bytes / 1e6)

# %%
# Beside what was sent, the size of the rows themselves: what it would take to bring them together.

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), sharey=True, layout="constrained")
for axis, xs, sent, whole in (
    (left, ranks, by_ranks, [X.nbytes / 1e6] * len(ranks)),
    (right, counts, by_rows, [n_rows * X[0].nbytes / 1e6 for n_rows in counts]),
):
    axis.loglog(xs, whole, color="#D55E00", marker="s", linestyle="--", label="the rows, which stay where they are")
    axis.loglog(xs, sent, color="#0072B2", marker="o", label="sent by all ranks, whole fit")
    axis.set_xticks(xs, [f"{x:,}" for x in xs], fontsize=8)
    axis.minorticks_off()
left.set_ylabel("MB")
left.set_xlabel("ranks, 100,000 rows")
right.set_xlabel("rows, 4 ranks")
left.legend(fontsize=8, loc="center left")
figure.suptitle(f"Sixteen ranks send {by_ranks[-1] * 1e6 / X.nbytes:.1%} of what the rows would be")
plt.show()
