"""How far are the scores of an exported ONNX graph from those of the model, and what does each way to serve it cost?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from benchmarks import _harness as harness
from benchmarks._harness import Report
from widemargin import (
    DebiasedSparseSVC,
    GossipSVC,
    HardMarginSVC,
    KernelSVC,
    MarginDistributionSVC,
    NuMarginSVC,
    SparseSVC,
    load,
    save,
    to_onnx,
)
from widemargin.data import fetch

QUESTION = __doc__
CASES: list[tuple[str, Any]] = [
    ("a9a", NuMarginSVC(nu=0.4)),
    ("a9a", SparseSVC()),
    ("a9a", GossipSVC(alpha=1e-3)),
    ("a9a", KernelSVC(gamma=0.05)),
    ("a9a", MarginDistributionSVC(gamma=0.05, C=1e3)),
    ("phishing", KernelSVC(C=10)),
    ("phishing", KernelSVC(kernel="laplacian")),
    ("breast-cancer", make_pipeline(StandardScaler(), KernelSVC(kernel="poly", coef0=1.0))),
    ("breast-cancer", make_pipeline(StandardScaler(), KernelSVC(kernel="sigmoid", gamma=0.01))),
    ("breast-cancer", make_pipeline(MinMaxScaler(), DebiasedSparseSVC())),
    ("breast-cancer", make_pipeline(StandardScaler(), GossipSVC(alpha=1e-2, kernel="rbf", tol=1e-2))),
    ("iris", HardMarginSVC(tol=1e-2)),
    ("iris", make_pipeline(StandardScaler(), KernelSVC())),
    ("mnist_test", KernelSVC(gamma=0.02)),
    ("mnist_test", KernelSVC(kernel="cosine")),
]
MOST_ROWS = 3000  # of which two thirds are fitted to
HEAD = ("set", "model", "test rows", "median score", "drift, float32", "labels differ", "drift, float64",
        "KiB saved", "KiB ONNX", "ours, us/row", "onnxruntime, us/row")  # fmt: skip


def main() -> None:
    quick = harness.arguments(QUESTION).quick
    report = Report("serving", quick=quick)
    lines = []
    for name, model in CASES:
        lines.append(compare(name, clone(model), 600 if quick else MOST_ROWS))
        print(lines[-1])
        report.add("drift", [dict(zip(HEAD, line, strict=True)) for line in lines])
    harness.show("Exported and saved", HEAD, lines)
    print(harness.markdown("Exported and saved", HEAD, lines))


def compare(name: str, model: Any, n_rows: int) -> tuple[Any, ...]:
    """One model: fit, save and load, export, and score the same rows in every way."""
    import onnxruntime

    data = fetch(name)
    chosen = np.random.default_rng(0).permutation(data.X.shape[0])[:n_rows]
    X, y = data.X[chosen].astype(np.float64), data.y[chosen]
    X = (X.toarray() if sp.issparse(X) else X) / (255 if name.startswith("mnist") else 1)
    half = 2 * len(y) // 3
    with harness.quietly():
        model.fit(X[:half], y[:half])
    rows = np.ascontiguousarray(X[half:], dtype=np.float32)
    exact = model.decision_function(rows.astype(np.float64))
    drifts, labels, sizes, timing = {}, {}, {}, {}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    for precision in ("float32", "float64"):
        content = to_onnx(model, precision=precision).SerializeToString()
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        timing[precision], (labels[precision], scores) = harness.measure_peer(
            lambda session=session: session.run(None, {"X": rows})
        )
        drifts[precision] = float(np.abs(scores - exact).max())
        sizes[precision] = len(content)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.wm"
        save(model, path)
        sizes["saved"], model = path.stat().st_size, load(path)
    ours, _ = harness.measure(lambda: model.predict(rows))
    final = model[-1] if hasattr(model, "steps") else model
    kernel = f"({final.kernel})" if hasattr(final, "kernel") else ""
    per_row = 1e6 / len(rows)
    return (
        name,
        type(final).__name__ + kernel,
        len(rows),
        float(np.median(np.abs(exact))),
        drifts["float32"],
        int((labels["float32"] != model.predict(rows.astype(np.float64))).sum()),
        drifts["float64"],
        sizes["saved"] / 1024,
        sizes["float32"] / 1024,
        ours.cpu_seconds * per_row,
        timing["float32"].cpu_seconds * per_row,
    )


if __name__ == "__main__":
    main()
