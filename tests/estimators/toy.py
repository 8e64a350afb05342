"""An estimator of one's own in one file: the 1-norm SVM with one penalty for all, on a solver that exists."""

from __future__ import annotations

from typing import Any, ClassVar

from widemargin.estimators._linear import LinearClassifier
from widemargin.estimators.registry import Bracket, Descriptor, Each, Formula, Symbol, register
from widemargin.problems.hinge_l1 import HingeL1
from widemargin.solvers.column_generation import ColumnGeneration
from widemargin.solvers.run import Result


class ToySVC(LinearClassifier):
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        name: LinearClassifier._parameter_constraints[name] for name in ("tol", "max_iter", "cluster", "verbose")
    }

    def __init__(self, *, tol: float = 1e-6, max_iter: int = 100, cluster: Any = None, verbose: int = 0) -> None:
        self.tol = tol
        self.max_iter = max_iter
        self.cluster = cluster
        self.verbose = verbose

    def _problem(self) -> HingeL1:
        return HingeL1(0.05, True)

    def _solver(self) -> Any:
        return ColumnGeneration(finds_alpha_max=False)

    def _advice(self, result: Result) -> str:
        return "Raise max_iter."


register(
    Descriptor(
        ToySVC,
        command="toy",
        problem=lambda model: Formula("A toy.", "minimise toys <var>T</var>", [Symbol("<var>T</var>", model.tol)]),
        bracket=Bracket("The least number of toys", "this one is within {} of it"),
        fitted={"alpha_": Each("f"), "n_working_": Each("iu")},
        variants={"": {}, "loose": {"tol": 0.1}},
    )
)
