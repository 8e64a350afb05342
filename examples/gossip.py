"""Ten peers train one SVM without a server; a tenth of the messages is lost, two peers crash and one comes back."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from widemargin import Faults, GossipSVC
from widemargin.reports import plot_network

ALPHA = 1e-2
ROW = "{:>4} {:>6} {:>10} {:>10} {:>9} {:>10}  {}"


def main() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(StandardScaler().fit_transform(X), y, random_state=0)
    faults = Faults(drop=0.1, crash={2: 15, 7: 15}, rejoin={7: 60})
    model = GossipSVC(alpha=ALPHA, n_peers=10, faults=faults).fit(X_train, y_train)

    print(ROW.format("peer", "rows", "gap", "apart", "messages", "bytes", "hears"))
    for number, node in model.nodes_.items():
        numbers = f"{node.gap:.1e}", f"{node.consensus_error:.1e}", node.messages_sent, node.bytes_sent
        print(ROW.format(number, node.n_rows, *numbers, ", ".join(map(str, node.live_neighbours))))
    together = LinearSVC(loss="hinge", C=1 / (ALPHA * len(y_train)), max_iter=100_000).fit(X_train, y_train)
    print(
        f"\nProven for the rows of peers {sorted(model.nodes_[0].members)}: a gap of {model.certificate_.relative:.1e}."
    )
    print(
        f"Test accuracy {model.score(X_test, y_test):.3f}; all rows in one place: {together.score(X_test, y_test):.3f}."
    )
    folder = Path("demo-output")
    folder.mkdir(exist_ok=True)
    plot_network(model, path=folder / "network.png")
    print(f"The network and its way: {folder / 'network.png'}")


if __name__ == "__main__":
    main()
