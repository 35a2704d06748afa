"""`partwise doctor`: the checks of `operations.doctor`, a line each, and the table of versions."""

import dataclasses
from collections.abc import Iterator

from partwise.errors import InputError
from partwise.flows.cli import output
from partwise.flows.cli.exit_codes import FAILURE, SUCCESS
from partwise.flows.cli.options import AnyStore, ClusterOptions, Json
from partwise.flows.operations.doctor import Finding, check_installation
from partwise.flows.operations.versions import list_versions

_CLUSTER = ClusterOptions()


def doctor(
    *,
    store: AnyStore = "artifacts",
    cluster: ClusterOptions = _CLUSTER,
    versions: bool = False,
    notify: str = "",
    as_json: Json = False,
) -> int:
    """See whether this machine, a store and a cluster are fit for work.

    Args:
        cluster: The cluster to look at.
        versions: Look at versions only: which are supported, which are tested, which are here.
        notify: Send a test by a block that Prefect's server keeps, such as slack-webhook/ops, and
            look at nothing else.
        as_json: With --versions: print a JSON object for each.
    """
    if versions:
        return _print_versions(as_json=as_json)
    if as_json:
        raise InputError("--json goes with --versions.")
    findings = []
    for finding in _tried(notify) if notify else check_installation(store, cluster.build()):
        _print_finding(finding)
        findings.append(finding)
    bad = sum(finding.verdict == "bad" for finding in findings)
    if bad:
        output.console().print(f"{bad} of {len(findings)} things need attention", style="red")
        return FAILURE
    output.console().print("all is well", style="green")
    return SUCCESS


def _tried(block: str) -> Iterator[Finding]:
    from partwise.flows.cli.prefect_log import quieten
    from partwise.flows.operations.notifications import try_notification

    quieten()
    yield try_notification(block)


def _print_versions(*, as_json: bool) -> int:
    found = list(list_versions())
    if as_json:
        output.print_json(*map(dataclasses.asdict, found))
    else:
        names = [field.name for field in dataclasses.fields(found[0])]
        rows = [[getattr(one, name) for name in names] for one in found]
        output.print_table([name.replace("_", " ") for name in names], rows)
    return FAILURE if any(one.verdict in ("outside", "missing") for one in found) else SUCCESS


def _print_finding(finding: Finding) -> None:
    out = output.console()
    marks = {"good": "✓", "bad": "✗", "neutral": "-"}
    if not out.encoding.lower().startswith("utf"):
        marks = {"good": "ok", "bad": "!!", "neutral": "--"}
    style = {"good": "green", "bad": "red", "neutral": "dim"}[finding.verdict]
    out.print(f"{marks[finding.verdict]} ", style=style, end="")
    output.print_line(f"{finding.what:<14} {finding.text}")
    if finding.remedy:
        output.print_line(f"  {'':<14} {finding.remedy}")
