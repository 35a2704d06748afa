"""The packages of an environment, as `CondaDependencies` lists them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from partwise.errors import InputError


@dataclass(slots=True)
class CondaDependencies:
    """Packages of pip; those of conda stand in a file."""

    pip_packages: list[str] = field(default_factory=list)

    @classmethod
    def create(
        cls,
        pip_indexurl: str | None = None,
        pip_packages: Sequence[str] | None = None,
        conda_packages: Sequence[str] | None = None,
        python_version: str | None = None,
    ) -> "CondaDependencies":
        """Return dependencies on these packages."""
        if pip_indexurl:
            raise InputError("pip_indexurl is not translated: set the index up for uv.")
        if python_version:
            raise InputError(
                f"python_version={python_version!r} is not translated: the workers' own Python "
                "runs pip packages; Environment.from_conda_specification takes another."
            )
        made = cls(list(pip_packages or ()))
        for package in conda_packages or ():
            made.add_conda_package(package)
        return made

    def add_pip_package(self, pip_package: str) -> None:
        """Add a requirement as pip takes it."""
        self.pip_packages.append(pip_package)

    def add_conda_package(self, conda_package: str) -> None:
        """Refuse a package of conda: these stand in a file.

        Raises:
            InputError: Always.
        """
        raise InputError(
            f"The conda package {conda_package!r} is not added one by one: name it as a pip "
            "package, or write an environment.yml for Environment.from_conda_specification."
        )
