"""Comparison: what an export gives against what its model gives."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from partwise.exports.proof.metric_gate import judge_metric
from partwise.exports.proof.movement import Movement
from partwise.exports.proof.scale import Scale, measure_scales
from partwise.exports.proof.variety import Variety, same
from partwise.exports.proof.verdict import Case, Check, Expectation, Finding, Verdict
from partwise.exports.protocol import Tolerance
from partwise.models.signature import Signature
from partwise.tables.column_names import names_in_words

_TOTALS = (
    *("export_cases", "export_cases_raising", "export_cases_refused", "export_rows"),
    *("export_values", "export_differing", "export_max_abs_diff", "export_max_rel_diff"),
)


class Comparison:
    """Cases added up to a verdict.

    Two values are the same when both are NaN, or the same infinity, or finite with |given -
    expected| <= atol + rtol * |expected| + scaled * (the scale of their output). Whole numbers,
    bools and text have to be equal. `cases` are all that will be added; what the model gives for
    them is the scale of its outputs.
    """

    def __init__(self, expectation: Expectation, cases: Sequence[Case] = ()) -> None:
        self._expectation = expectation
        self._scales = measure_scales(cases)
        self._findings: list[Finding] = []
        self._notes: list[str] = []
        self._variety: dict[str, Variety] = {}
        self._is_gated = expectation.gate is None
        self._movements: dict[str, Movement] = {}
        self._totals = dict.fromkeys(_TOTALS, 0.0)
        if expectation.signature.class_labels is not None:
            self._totals |= {"export_label_ties": 0.0, "export_labels_differing": 0.0}

    def add(self, case: Case, given: Mapping[str, np.ndarray]) -> None:
        """Compare what the export gave for a case."""
        # First, so that a model which gives one value everywhere is noticed with any export.
        self.add_reference(case)
        self._totals["export_cases"] += 1
        self._totals["export_rows"] += max(
            (len(np.atleast_1d(values)) for values in case.expected.values()), default=0
        )
        self._findings += _compare_names(case, given)
        for name, expected in case.expected.items():
            if name in given:
                self._add_output(case, name, expected, np.asarray(given[name]))
        gate = self._expectation.gate
        if gate is not None and gate.outputs == "all":
            self._is_gated = True
        elif gate is not None and gate.case == case.name:
            self._is_gated = True
            findings, metrics, notes = judge_metric(
                gate, self._expectation.signature, case.expected, given
            )
            self._findings += findings
            self._totals |= metrics
            self._notes += notes

    def add_failed(self, case: Case) -> None:
        """Take note of a case on which the export fails, as it should."""
        self.add_reference(case)
        self._totals["export_cases"] += 1
        self._totals["export_cases_raising" if case.raises else "export_cases_refused"] += 1

    def add_reference(self, case: Case) -> None:
        """Take note of what the model gives for a case; of cases on which the export fails, too."""
        for name, expected in case.expected.items():
            self._variety.setdefault(name, Variety()).add(expected, is_odd=case.kind == "odd")

    def verdict(self) -> Verdict:
        """Return what came of all cases."""
        findings, notes = list(self._findings), list(self._notes)
        if self._expectation.gate is not None and not self._is_gated:
            findings.append(
                Finding(
                    check="metric",
                    message=f"How well the export predicts is not known: its outputs for "
                    f"{self._expectation.gate.case!r} were not compared.",
                )
            )
        gate = self._expectation.gate
        if gate is not None and gate.outputs == "all":
            for name, movement in self._movements.items():
                findings += movement.judge(name, gate)
                self._totals[f"export_movement_{name}"] = movement.loss
            largest = max((movement.loss for movement in self._movements.values()), default=0.0)
            self._totals["export_metric_loss"] = largest
        constant = {n: v.describe() for n, v in self._variety.items() if not v.varies}
        n_rows = max((variety.rows for variety in self._variety.values()), default=0)
        if not n_rows:
            findings.append(
                Finding(check="vacuous", message="The comparison proves nothing: it has no rows.")
            )
        elif len(constant) == len(self._variety) and not self._expectation.is_constant:
            values = names_in_words([f"{name} is {value}" for name, value in constant.items()])
            findings.append(
                Finding(
                    check="vacuous",
                    message="The comparison proves nothing: the model itself gives the same for "
                    f"all rows of all cases ({n_rows} rows): {values}. Compare it on rows that "
                    "differ, or train it again.",
                    count=n_rows,
                )
            )
        else:
            for name in self._variety:
                if name not in constant:
                    found, noted = self._judge_variation(name)
                    findings += found
                    notes += noted
            notes += [
                f"The output {name!r} is {value} for all {self._variety[name].rows} rows."
                for name, value in constant.items()
            ]
        if ties := int(self._totals.get("export_label_ties", 0)):
            notes.append(
                f"{ties} labels differ where two classes are equally likely within the tolerance."
            )
        return Verdict(findings=tuple(findings), metrics=dict(self._totals), notes=tuple(notes))

    def _add_output(self, case: Case, name: str, expected: np.ndarray, given: np.ndarray) -> None:
        if (wanted := dtype_name(expected)) != (found := dtype_name(given)):
            self._find("dtype", case, name, f"is {found}, where {wanted} is expected")
        if expected.shape != given.shape:
            self._find(
                "shape",
                case,
                name,
                f"has the shape {given.shape}, where {expected.shape} is expected",
            )
            return
        self._totals["export_values"] += expected.size
        # That was said above; text cannot be subtracted from numbers.
        if (wanted == "string") != (found == "string"):
            return
        if expected.dtype.kind == "f":
            self._add_numbers(case, name, expected, given)
        elif self._expectation.signature.class_labels is not None:
            self._add_labels(case, name, expected, given)
        else:
            self._add_exact(case, name, expected, given)

    def _add_numbers(self, case: Case, name: str, expected: np.ndarray, given: np.ndarray) -> None:
        wanted, found = expected.astype(np.float64), given.astype(np.float64)
        finite = np.isfinite(wanted) & np.isfinite(found)
        elsewhere = ~finite & ~same(wanted, found)
        if n_elsewhere := int(np.count_nonzero(elsewhere)):
            place = np.unravel_index(int(np.argmax(elsewhere)), wanted.shape)
            self._find(
                "nan",
                case,
                name,
                f"has NaN or infinities elsewhere in {n_elsewhere} of {wanted.size} values: first "
                f"at {_place(place)}, where {_number(expected, place)} is expected "
                f"and {_number(given, place)} given",
                count=n_elsewhere,
            )
        difference = _absolute_difference(wanted, found, finite)
        relative = relative_difference(difference, wanted, finite)
        scale = self._scale(name, wanted.shape[1:])
        allowed = self._expectation.tolerance.allowed(np.where(finite, wanted, 0), scale)
        if case.kind == "odd":
            # Numbers that no data have cancel each other out: it is their size that rounds.
            sizes, axes = np.where(finite, np.abs(wanted), 0), tuple(range(1, wanted.ndim))
            largest = sizes.max(axis=axes, keepdims=True, initial=0)
            allowed = allowed + self._expectation.tolerance.scaled * largest
        beyond = difference > allowed
        n_beyond = int(np.count_nonzero(beyond))
        self._totals["export_differing"] += n_beyond + n_elsewhere
        if self._expectation.gate is not None:
            self._movements.setdefault(name, Movement()).add(wanted, found)
        if case.kind != "odd" or n_beyond:
            # Of numbers near the largest there are, the last digit is larger than anything real.
            self._raise("export_max_abs_diff", difference)
        self._raise("export_max_rel_diff", relative)
        if not n_beyond or self._expectation.gate is not None:
            return
        place = np.unravel_index(int(np.argmax(np.where(beyond, difference, -1))), wanted.shape)
        other = self._output_with(found, case)
        what = f"has the values of the output {other!r}: it " if other else ""
        self._find(
            "swapped" if other else "values",
            case,
            name,
            f"{what}differs in {n_beyond} of {wanted.size} values: by {difference[place]:.6g} at "
            f"most, at {_place(place)}, where {_number(expected, place)} is expected and "
            f"{_number(given, place)} given (relative at most {np.max(relative[beyond]):.3g}; "
            f"allowed is {allowed[place]:.3g}: {self._rule(name)})",
            max_difference=float(difference[place]),
            count=n_beyond,
        )

    def _output_with(self, values: np.ndarray, case: Case) -> str | None:
        """Return the output of the model that has these values, if there is one."""
        for name, expected in case.expected.items():
            if expected.dtype.kind == "f" and expected.shape == values.shape:
                wanted = expected.astype(np.float64)
                scale = self._scale(name, wanted.shape[1:])
                if is_near(wanted, values, self._expectation.tolerance, scale).all():
                    return name
        return None

    def _scale(self, name: str, row_shape: tuple[int, ...]) -> np.ndarray:
        return self._scale_of(name).of(row_shape)

    def _scale_of(self, name: str) -> Scale:
        return self._scales.get(name) or Scale()

    def _rule(self, name: str) -> str:
        tolerance, rule = self._expectation.tolerance, []
        if tolerance.atol or not tolerance.scaled:
            rule.append(f"{tolerance.atol:g}")
        if tolerance.scaled:
            scale = self._scale_of(name).output
            rule.append(f"{tolerance.scaled:g} * (the output's scale of {scale:.3g})")
        return " + ".join([*rule, f"{tolerance.rtol:g} * |expected|"])

    def _judge_variation(self, name: str) -> tuple[list[Finding], list[str]]:
        """Say so where an output varies by so little that another model's export would pass."""
        tolerance = self._expectation.tolerance
        if self._expectation.gate is not None or self._expectation.is_constant:
            return [], []
        n_varying, n_too_little, largest = 0, 0, (0.0, 0.0)
        for low, high in self._variety[name].ranges():
            with np.errstate(over="ignore", invalid="ignore"):
                range_ = np.where(high > low, high - low, 0.0)
                size = np.maximum(np.abs(low), np.abs(high))
            scale = self._scale(name, range_.shape)
            allowed = tolerance.allowed(np.where(np.isfinite(size), size, 0), scale)
            too_little = (range_ > 0) & (range_ < tolerance.variation * allowed)
            n_varying += int(np.count_nonzero(range_))
            n_too_little += int(np.count_nonzero(too_little))
            if too_little.any():
                place = int(np.argmax(np.where(too_little, range_, -1)))
                largest = max(largest, (float(range_.flat[place]), float(allowed.flat[place])))
        times = f"{tolerance.variation:g} times what is allowed"
        if not n_too_little:
            return [], []
        if n_too_little < n_varying / 2:
            # Of few rows, some places are alike by chance.
            return [], []
        if n_too_little < n_varying:
            few = f"{n_too_little} of {n_varying} places of a row"
            return [], [f"Of the output {name!r}, {few} vary by less than {times}."]
        message = (
            f"The comparison proves nothing of the output {name!r}: on ordinary rows it varies by "
            f"{largest[0]:.3g} at most, which is less than {times} ({largest[1]:.3g}: "
            f"{self._rule(name)}). Train the model on its label less the mean, or pass a smaller "
            "rtol."
        )
        finding = Finding(check="vacuous", message=message, output=name, max_difference=largest[0])
        return [finding], []

    def _add_labels(self, case: Case, name: str, expected: np.ndarray, given: np.ndarray) -> None:
        differing = np.asarray(expected != given, dtype=bool)
        ties = differing & self._ties(case, given)
        wrong = differing & ~ties
        n_wrong, n_ties = int(np.count_nonzero(wrong)), int(np.count_nonzero(ties))
        self._totals["export_labels_differing"] += n_wrong
        self._totals["export_label_ties"] += n_ties
        if n_wrong and self._expectation.gate is None:
            self._find_unequal("labels", case, name, expected, given, wrong)

    def _ties(self, case: Case, given: np.ndarray) -> np.ndarray:
        """Return for which rows the given label is, within the tolerance, as likely as the best.

        Both probabilities may differ by their tolerance, so the two may be apart by the sum.
        """
        none = np.zeros(given.shape, dtype=bool)
        signature, tolerance = self._expectation.signature, self._expectation.tolerance
        name, probabilities = _probabilities(signature, case.expected, len(given))
        if given.ndim != 1 or probabilities is None:
            return none
        codes = {label: code for code, label in enumerate(signature.class_labels or ())}
        chosen = np.array([codes.get(_plain(label), -1) for label in given], dtype=np.int64)
        top = probabilities.max(axis=1, initial=-np.inf)
        # A label that is not a class is -1, the last one here: the return leaves these out.
        of_chosen = probabilities[np.arange(len(chosen)), chosen]
        scale = np.array(self._scale_of(name).output)
        allowed = tolerance.allowed(top, scale) + tolerance.allowed(of_chosen, scale)
        return np.asarray((chosen >= 0) & (top - of_chosen <= allowed))

    def _add_exact(self, case: Case, name: str, expected: np.ndarray, given: np.ndarray) -> None:
        differing = np.asarray(expected != given, dtype=bool)
        n_differing = int(np.count_nonzero(differing))
        self._totals["export_differing"] += n_differing
        if n_differing:
            self._find_unequal("values", case, name, expected, given, differing)

    def _find_unequal(
        self,
        check: Literal["labels", "values"],
        case: Case,
        name: str,
        expected: np.ndarray,
        given: np.ndarray,
        wrong: np.ndarray,
    ) -> None:
        count = int(np.count_nonzero(wrong))
        place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        wanted, found = expected[place], given[place]
        largest = None
        if expected.dtype.kind in "iu" and given.dtype.kind in "iu" and check == "values":
            spread = expected.astype(np.float64) - given.astype(np.float64)
            largest = float(np.max(np.abs(spread)))
        size = f" by {largest:.6g} at most," if largest is not None else ""
        self._find(
            check,
            case,
            name,
            f"differs in {count} of {wrong.size} {check}:{size} first at {_place(place)}, where "
            f"{_plain(wanted)!r} is expected and {_plain(found)!r} given",
            max_difference=largest,
            count=count,
        )

    def _find(
        self,
        check: Check,
        case: Case,
        name: str,
        what: str,
        max_difference: float | None = None,
        count: int | None = None,
    ) -> None:
        self._findings.append(
            Finding(
                check=check,
                message=f"The output {name!r} {what}, in the case {case.name!r}.",
                case=case.name,
                output=name,
                max_difference=max_difference,
                count=count,
            )
        )

    def _raise(self, metric: str, values: np.ndarray) -> None:
        if values.size:
            self._totals[metric] = max(self._totals[metric], float(np.max(values)))


def is_near(
    expected: np.ndarray, given: np.ndarray, tolerance: Tolerance, scale: np.ndarray
) -> np.ndarray:
    """Return where values, in double, are the same or finite and within the tolerance."""
    finite = np.isfinite(expected) & np.isfinite(given)
    allowed = tolerance.allowed(np.where(finite, expected, 0), scale)
    near = _absolute_difference(expected, given, finite) <= allowed
    return np.where(finite, near, same(expected, given))


def _absolute_difference(expected: np.ndarray, given: np.ndarray, finite: np.ndarray) -> np.ndarray:
    """Return |given - expected| where both are finite, and 0 elsewhere."""
    # The difference of two large numbers may be infinite, which is beyond any tolerance.
    with np.errstate(over="ignore"):
        difference = np.subtract(given, expected, out=np.zeros_like(expected), where=finite)
    return np.asarray(np.abs(difference))


def relative_difference(
    difference: np.ndarray, expected: np.ndarray, finite: np.ndarray
) -> np.ndarray:
    """Return difference / |expected|, and 0 where there is no such number."""
    where = finite & (expected != 0)
    with np.errstate(over="ignore"):
        found = np.divide(difference, np.abs(expected), out=np.zeros_like(expected), where=where)
    return np.asarray(found)


def dtype_name(array: np.ndarray) -> str:
    """Return an array's dtype as a signature has it."""
    return "string" if array.dtype.kind in "OUS" else array.dtype.name


def _probabilities(
    signature: Signature, outputs: Mapping[str, np.ndarray], n_rows: int
) -> tuple[str, np.ndarray | None]:
    """Return the output (n, classes) of a model, or of one (n,) for the second of two classes."""
    n_classes = len(signature.class_labels or ())
    named = [(signature.prediction, outputs[signature.prediction]), *outputs.items()]
    for name, values in named:
        if values.dtype.kind == "f" and values.shape == (n_rows, n_classes):
            return name, values.astype(np.float64)
    for name, values in named:
        if values.dtype.kind == "f" and n_classes == 2 and values.size == n_rows:
            of_second = values.astype(np.float64).reshape(-1)
            return name, np.column_stack([1 - of_second, of_second])
    return "", None


def _compare_names(case: Case, given: Mapping[str, np.ndarray]) -> list[Finding]:
    wanted, found = list(case.expected), list(given)
    if wanted == found:
        return []
    where = "in another order" if sorted(wanted) == sorted(found) else "other ones"
    return [
        Finding(
            check="outputs",
            message=f"The export's outputs are {where}: {names_in_words(found)}, where "
            f"{names_in_words(wanted)} are expected, in the case {case.name!r}.",
            case=case.name,
        )
    ]


def _place(place: tuple[Any, ...]) -> str:
    if not place:
        return "its one value"
    rest = ", ".join(str(int(index)) for index in place[1:])
    return f"row {int(place[0])}" + (f", column {rest}" if rest else "")


def _number(values: np.ndarray, place: tuple[Any, ...]) -> str:
    """Return a number with the digits that distinguish it from its neighbours in its own dtype."""
    return str(values[place])


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
