"""`partwise doctor`: the checks of `operations.doctor`, a line each."""

from partwise.flows.cli.exit_codes import FAILURE, SUCCESS
from partwise.flows.cli.options import ClusterOptions, StoreUrl
from partwise.flows.cli.output import console
from partwise.flows.operations.doctor import Finding, check_installation

_CLUSTER = ClusterOptions()


def doctor(*, store: StoreUrl = "artifacts", cluster: ClusterOptions = _CLUSTER) -> int:
    """See whether this machine, a store and a cluster are fit for work.

    Args:
        store: A folder, or a URL such as s3://bucket/folder.
        cluster: The cluster to look at.
    """
    findings = []
    for finding in check_installation(store, cluster.build()):
        _print_finding(finding)
        findings.append(finding)
    bad = sum(finding.verdict == "bad" for finding in findings)
    if bad:
        console().print(f"{bad} of {len(findings)} things need attention", style="red")
        return FAILURE
    console().print("all is well", style="green")
    return SUCCESS


def _print_finding(finding: Finding) -> None:
    out = console()
    marks = {"good": "✓", "bad": "✗", "neutral": "-"}
    if not out.encoding.lower().startswith("utf"):
        marks = {"good": "ok", "bad": "!!", "neutral": "--"}
    style = {"good": "green", "bad": "red", "neutral": "dim"}[finding.verdict]
    out.print(f"{marks[finding.verdict]} ", style=style, end="")
    out.print(f"{finding.what:<14} {finding.text}", markup=False)
    if finding.remedy:
        out.print(f"  {'':<14} {finding.remedy}", markup=False)
