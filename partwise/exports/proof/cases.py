"""All that an export is compared on: real rows, probes, and odd inputs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from partwise.exports.proof.odd_inputs import make_odd_cases
from partwise.exports.proof.probes import INFINITIES, ODD_NUMBERS, has_trees, make_probes
from partwise.exports.proof.verdict import Case, CaseKind
from partwise.exports.protocol import ModelDescription
from partwise.models.signature import Feeds, Outputs

HELD_OUT = "held-out rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cases:
    """Rows with what the model itself gives for them."""

    cases: tuple[Case, ...] = ()
    notes: tuple[str, ...] = ()
    """What was left out or changed."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """How much of the model they reach, for the ledger."""


def make_cases(
    description: ModelDescription, real: Feeds, predict: Callable[[Feeds], Outputs]
) -> Cases:
    """Return the cases that an export is compared on; the first, `HELD_OUT`, has the real rows."""
    probes = make_probes(description, real)
    cases = [Case(name=HELD_OUT, kind="real", feeds=real, expected=predict(real))]
    for name, feeds in probes.cases.items():
        # Whether its numbers were made to go wrong, or are of the model's world.
        kind: CaseKind = "odd" if name in (ODD_NUMBERS, INFINITIES) else "made"
        cases.append(Case(name=name, kind=kind, feeds=feeds, expected=predict(feeds)))
    if not has_trees(description):
        cases += make_odd_cases(description.signature, real, predict)
    return Cases(cases=tuple(cases), notes=probes.notes, metrics=probes.metrics)
