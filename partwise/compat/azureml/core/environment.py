"""An environment by its name: packages, and the variables of the processes."""

from dataclasses import dataclass, field
from typing import Any

from partwise.compat.azureml.core.conda_dependencies import CondaDependencies
from partwise.environments.environment import Environment as Packages
from partwise.errors import InputError


@dataclass(slots=True)
class PythonSection:
    """`Environment.python`: where its packages come from."""

    conda_dependencies: CondaDependencies = field(default_factory=CondaDependencies)
    user_managed_dependencies: bool = False


# By slots: what is set and not known, as `docker`, would be passed over.
@dataclass(slots=True)
class Environment:
    """Packages of a script's own; without any it runs with the Python of the workers.

    Example:
        >>> Environment("plain").packages.is_own
        False
    """

    name: str | None = None
    python: PythonSection = field(default_factory=PythonSection, init=False)
    environment_variables: dict[str, str] = field(default_factory=dict, init=False)
    _files: Packages | None = field(default=None, kw_only=True)

    @property
    def packages(self) -> Packages:
        """The environment as partwise has it."""
        if self.python.user_managed_dependencies:
            return Packages(user_managed=True)
        given = tuple(self.python.conda_dependencies.pip_packages)
        if self._files is None:
            return Packages(packages=given)
        return self._files.model_copy(update={"packages": given}) if given else self._files

    @classmethod
    def from_pip_requirements(cls, name: str, file_path: str) -> "Environment":
        """Return the environment of a requirements.txt."""
        return cls(name, _files=Packages(requirements_file=file_path))

    @classmethod
    def from_conda_specification(cls, name: str, file_path: str) -> "Environment":
        """Return the environment of an environment.yml."""
        return cls(name, _files=Packages(conda_file=file_path))

    @classmethod
    def get(
        cls, workspace: object, name: str, version: Any = None, label: Any = None
    ) -> "Environment":
        """Refuse a curated environment.

        Raises:
            InputError: Always.
        """
        del workspace, version, label
        raise InputError(
            f"There is no curated environment {name!r}: Environment({name!r}) is the Python of "
            "the workers; add to its python.conda_dependencies the pip packages that are missing."
        )

    def register(self, workspace: object) -> "Environment":
        """Return it: nothing is kept by name."""
        del workspace
        return self
