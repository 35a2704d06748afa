"""The options of commands whose function or script may have packages of its own."""

from dataclasses import dataclass

from cyclopts import Group, Parameter

from partwise.environments.environment import Environment
from partwise.flows.cli.options import Names
from partwise.flows.cli.parsing import build_settings, given_options

ENVIRONMENT = Group("Environment", sort_key=5)

_FIELDS = {
    "package": "packages",
    "requirements": "requirements_file",
    "pyproject": "pyproject_file",
    "constraints": "constraints_file",
    "extra_index_url": "extra_index_urls",
}
"""Options that have another name than the field that they fill."""


@Parameter(name="*", group=ENVIRONMENT)
@dataclass(frozen=True, kw_only=True)
class EnvironmentOptions:
    """Packages of its own; by default those of the workers."""

    package: Names = ()
    """A package that is needed, such as "scikit-learn>=1.5"; may be repeated."""
    requirements: str = ""
    """A requirements.txt on this machine."""
    pyproject: str = ""
    """A pyproject.toml on this machine, or pyproject.toml[extra]: its dependencies."""
    constraints: str = ""
    """A file with versions that packages must have where they are needed at all."""
    index_url: str = ""
    """The package index. Default: what uv is set up with."""
    extra_index_url: Names = ()
    """An index that is looked at first; may be repeated."""
    find_links: Names = ()
    """A folder that the workers see too, or a page with links to wheels; may be repeated."""
    no_index: bool = False
    """Look for packages in these folders and pages only."""
    conda_file: str = ""
    """An environment.yml on this machine, where the workers have conda."""
    user_managed: bool = False
    """Use the workers' own Python as it is; also the default."""

    def build(self) -> Environment:
        """Return the environment of a flow.

        Raises:
            InputError: The options contradict each other.
        """
        given = given_options(vars(self))
        return build_settings(Environment, **{_FIELDS.get(k, k): v for k, v in given.items()})
