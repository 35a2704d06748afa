"""Judging an export, and guarding it where only inputs that were made to go wrong differ."""

from collections.abc import Iterable, Sequence

from partwise.exports.onnx.guards import add_guards
from partwise.exports.proof.judge import judge
from partwise.exports.proof.verdict import Case, Expectation, Verdict
from partwise.models.guards import Guard


def judge_and_guard(file_path: str, expectation: Expectation, cases: Sequence[Case]) -> Verdict:
    """Judge an export; where only inputs made to go wrong differ, guard it and judge it again.

    Guards are written into the file, which may refuse then the cases with a guard of their own.
    """
    verdict = judge(file_path, expectation, cases)
    guards: set[Guard] = set()
    # A guard can show another difference, which it had hidden: of one input after the other.
    while expectation.format == "onnx" and verdict.findings:
        by_name = {case.name: case.guards for case in cases}
        needed = [by_name.get(finding.case, ()) for finding in verdict.findings]
        wanted = _strictest(guard for each in needed for guard in each)
        if not all(needed) or set(wanted) <= guards:
            return verdict
        guards |= set(wanted)
        if not add_guards(file_path, wanted, expectation.signature):
            return verdict
        verdict = judge(file_path, expectation, cases)
    return verdict


def _strictest(guards: Iterable[Guard]) -> list[Guard]:
    """Return of guards that refuse alike the one that refuses the most."""
    found: dict[tuple[str, str], Guard] = {}
    for guard in guards:
        key = guard.input, guard.refuses
        sign = 1 if guard.refuses == "below" else -1
        found[key] = max(found.get(key, guard), guard, key=lambda each: sign * each.limit)
    return list(found.values())
