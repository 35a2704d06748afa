"""What a prefect.yaml says of deployments, which people write by hand."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from partwise.errors import InputError
from partwise.formatting import shortened
from partwise.renamed import old_names_in


def deployments_of(document: Any, path: Path) -> list[dict[str, Any]]:
    """Return the deployments of a prefect.yaml that was read from a path.

    Raises:
        InputError: There are none, or one is not as it should be.
    """
    deployments = document.get("deployments") if isinstance(document, dict) else None
    if not deployments:
        raise InputError(f"{path} has no deployments.")
    if not isinstance(deployments, list):
        raise InputError(
            f"{path}: deployments is {_shown(deployments)}, and has to be a list, of an entry for "
            "each that begins with `- name: `."
        )
    for number, deployment in enumerate(deployments, 1):
        if not isinstance(deployment, dict):
            raise InputError(
                f"{path}: deployment {number} is {_shown(deployment)}: write its name, entrypoint "
                "and work_pool, each on a line of its own."
            )
        for name in ("name", "entrypoint"):
            _check_name(f"{path}, deployment {number}", name, deployment.get(name))
        _check(f"{path}, deployment {deployment['name']!r}", deployment)
    return deployments


def pool_of(deployment: Mapping[str, Any]) -> str | None:
    """Return the name of the work pool that a deployment is in; None: it names none."""
    name: str | None = (deployment.get("work_pool") or {}).get("name")
    return name


def _check(where: str, deployment: Mapping[str, Any]) -> None:
    # What is there without a value is null, as if it were not there.
    work_pool = deployment.get("work_pool")
    if not isinstance(work_pool, dict | None):
        named = work_pool if isinstance(work_pool, str) else "NAME"
        raise InputError(
            f"{where}: work_pool is {_shown(work_pool)}: write `work_pool: {{name: {named}}}`."
        )
    if (pool := pool_of(deployment)) is not None:
        _check_name(where, "work_pool.name", pool)
    parameters = deployment.get("parameters")
    if not isinstance(parameters, dict | None):
        raise InputError(
            f"{where}: parameters is {_shown(parameters)}: write each as a line `NAME: VALUE`."
        )
    _check_triggers(where, deployment.get("triggers"))
    flow = deployment["entrypoint"].replace(":", ".").rpartition(".")[2]
    for sentence in old_names_in(flow, parameters or {}):
        # Else the flow run would say so, on the night that it is due.
        raise InputError(f"{where}: {sentence}.")


def _check_triggers(where: str, triggers: Any) -> None:
    """Refuse what `prefect deploy` ends on, and what names no deployments; all else is Prefect's.

    A trigger may have others within.
    """
    if not isinstance(triggers, list | None):
        raise InputError(
            f"{where}: triggers is {_shown(triggers)}, and has to be a list, of an entry for each "
            "that begins with `- match:`."
        )
    for number, trigger in enumerate(triggers or (), 1):
        if not isinstance(trigger, dict):
            raise InputError(
                f"{where}: trigger {number} is {_shown(trigger)}: write its match and expect, each "
                "on a line of its own."
            )
        match = trigger.get("match")
        if not isinstance(match, dict | None):
            raise InputError(
                f"{where}: match of trigger {number} is {_shown(match)}: write each label as a "
                "line `LABEL: VALUE`."
            )
        for label, values in (match or {}).items():
            for value in values if isinstance(values, list) else [values]:
                _check_text(f"{where}, trigger {number}", f"match.{label}", value)
        _check_triggers(f"{where}, trigger {number}", trigger.get("triggers"))


def _check_text(where: str, name: str, value: Any) -> None:
    if value is None or value == "":
        raise InputError(f"{where} has no {name}: write one.")
    if not isinstance(value, str):
        raise InputError(
            f"{where}: {name} is {_shown(value)}, which is no text: write it in quotes."
        )


def _check_name(where: str, name: str, value: Any) -> None:
    _check_text(where, name, value)
    if "{{" in value:
        # Prefect fills it in later than pools are made, and deployments looked for, by that name.
        raise InputError(
            f"{where}: {name} is {_shown(value)}, and may not have a template in it: write what it "
            "comes to. Templates may stand in parameters and in job_variables."
        )


def _shown(value: Any) -> str:
    return "empty" if value is None else shortened(repr(value), 80)
