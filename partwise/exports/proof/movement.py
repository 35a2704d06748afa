"""How far the outputs of an export of less precision move, over all cases."""

import numpy as np

from partwise.exports.proof.verdict import Finding, MetricGate


class Movement:
    """The differences of one output, added up.

    It moves by the root of the mean squared difference, as a fraction of the standard deviation of
    what the model itself gives.
    """

    def __init__(self) -> None:
        self._count = 0
        self._sums = np.zeros(3)

    def add(self, expected: np.ndarray, given: np.ndarray) -> None:
        """Look at the values of a case; both have one shape."""
        wanted, found = expected.astype(np.float64), given.astype(np.float64)
        self._count += wanted.size
        self._sums += np.array([wanted.sum(), (wanted**2).sum(), ((found - wanted) ** 2).sum()])

    @property
    def loss(self) -> float:
        """How far it moves; 0 of an output without values."""
        if not self._count:
            return 0.0
        mean, square, difference = self._sums / self._count
        spread = np.sqrt(max(0.0, square - mean**2))
        if spread > 0:
            return float(np.sqrt(difference) / spread)
        return 0.0 if difference == 0 else float(np.inf)

    def judge(self, name: str, gate: MetricGate) -> list[Finding]:
        """Return what does not hold of the output of this name."""
        # Written so that NaN fails.
        if self.loss <= gate.max_loss:
            return []
        return [
            Finding(
                check="metric",
                message=f"The output {name!r} moves by {self.loss:.4g} of its own spread (root "
                f"mean square, over {self._count} values of all cases), where {gate.max_loss:g} "
                "is allowed.",
                output=name,
                max_difference=self.loss,
                count=self._count,
            )
        ]
