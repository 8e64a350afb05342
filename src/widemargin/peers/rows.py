"""The rows of one peer, and the sums over them that its messages are made of."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from widemargin.compiled import csr
from widemargin.data.shard import csr_arrays


@dataclass(frozen=True)
class PeerRows:
    """Rows with a label of +1 or -1 in each of several problems, which share all messages.

    ``X`` is dense or CSR of shape (n, d), with a constant feature if there is an intercept; ``signs`` has shape
    (problems, n); ``weight`` are multiplicities.
    """

    X: Any
    signs: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(cls, X: Any, codes: np.ndarray, weight: np.ndarray, n_classes: int, *, has_constant: bool) -> Self:
        """Rows with class numbers as labels: one problem for two classes, else one for each class against the rest."""
        if has_constant:
            ones = np.ones((X.shape[0], 1), X.dtype)
            X = sp.hstack([X, ones], format="csr") if sp.issparse(X) else np.hstack([X, ones])
        positive = [1] if n_classes == 2 else range(n_classes)
        signs = np.array([np.where(codes == k, 1.0, -1.0) for k in positive])
        return cls(X, signs.reshape(len(positive), X.shape[0]), np.asarray(weight, dtype=np.float64))

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @property
    def n_problems(self) -> int:
        return len(self.signs)

    @property
    def total(self) -> float:
        """The sum of the weights."""
        return float(self.weight.sum())

    @property
    def classes(self) -> np.ndarray:
        """The class number of each row."""
        classes: np.ndarray = (self.signs[0] > 0).astype(np.intp) if len(self.signs) == 1 else self.signs.argmax(axis=0)
        return classes

    def hinge_sums(self, models: np.ndarray) -> np.ndarray:
        """``sum_i m_i max(0, 1 - y_i w.x_i)``, (models, problems), of models of shape (models, problems, d)."""
        n_models, n_problems, d = models.shape
        scores = np.asarray(self.X @ models.reshape(-1, d).T).T.reshape(n_models, n_problems, self.n_rows)
        return np.asarray(np.maximum(0.0, 1.0 - self.signs * scores) @ self.weight)

    def combine(self, dual: np.ndarray) -> np.ndarray:
        """``V = sum_i a_i y_i x_i`` of each problem."""
        coefficients = dual * self.signs
        if not sp.issparse(self.X):
            return np.asarray(coefficients @ self.X, dtype=np.float64)
        total = np.empty((self.n_problems, self.n_features))
        for k in range(self.n_problems):
            csr.combine_csr(*csr_arrays(self.X), coefficients[k], total[k])
        return total

    def moment(self, *, is_full: bool) -> np.ndarray:
        """``sum_i m_i x_i x_i'``, or its diagonal."""
        X = self.X.astype(np.float64)
        if is_full:
            scaled = X.multiply(self.weight[:, None]).tocsr() if sp.issparse(X) else X * self.weight[:, None]
            product = X.T @ scaled
            return product.toarray() if sp.issparse(product) else np.asarray(product)
        squares = X.multiply(X) if sp.issparse(X) else X * X
        return np.asarray(squares.T @ self.weight, dtype=np.float64).ravel()

    def joined(self, other: "PeerRows") -> "PeerRows":
        """These rows and others after them."""
        if sp.issparse(self.X) != sp.issparse(other.X):
            raise ValueError("New rows must be sparse if the present ones are, and dense if they are dense.")
        X = sp.vstack([self.X, other.X], format="csr") if sp.issparse(self.X) else np.vstack([self.X, other.X])
        return PeerRows(X, np.hstack([self.signs, other.signs]), np.concatenate([self.weight, other.weight]))
