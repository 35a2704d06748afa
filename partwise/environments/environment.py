"""What a caller asks for: the packages of a function or a script."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer
from pydantic import model_validator as check_model

from partwise.form_schema import FormSettings
from partwise.redaction import MASK, without_secrets

_OF_PACKAGES = (
    *("packages", "requirements_file", "pyproject_file", "constraints", "constraints_file"),
    *("index_url", "extra_index_urls", "find_links", "no_index"),
)
_LONGEST_NAME = 80
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"`<>]+")


class Environment(FormSettings):
    """Packages of its own for a function or a script; where nothing is given, the workers' own.

    Files are read on the driver. Passwords in addresses stand in no document and no message.

    Example:
        >>> str(Environment(packages=("scikit-learn>=1.5", "statsmodels")))
        'scikit-learn>=1.5, statsmodels'
    """

    # What is refused may hold a password.
    model_config = ConfigDict(title="Environment", hide_input_in_errors=True)

    packages: tuple[str, ...] = Field(
        kw_only=False,
        default=(),
        description='Requirements as pip takes them, such as "scikit-learn>=1.5".',
    )
    constraints: tuple[str, ...] = Field(
        default=(),
        description="Requirements that packages must fulfil where they are needed at all.",
    )
    requirements_file: str = Field(
        default="",
        description="A requirements.txt on the driver's machine, with those that it includes.",
    )
    pyproject_file: str = Field(
        title="pyproject.toml",
        default="",
        description="A pyproject.toml on the driver's machine: its project.dependencies, and with "
        "pyproject.toml[plots] those of an extra.",
    )
    constraints_file: str = Field(
        default="",
        description="A file of constraints on the driver's machine.",
    )
    index_url: str = Field(
        title="Package index",
        default="",
        description="The index to take packages from. Default: what uv is set up with.",
    )
    extra_index_urls: tuple[str, ...] = Field(
        title="More indexes",
        default=(),
        description="Indexes that are looked at first.",
    )
    find_links: tuple[str, ...] = Field(
        title="Folders or pages of wheels",
        default=(),
        description="Folders, which the workers see as well, or pages with links to wheels.",
    )
    no_index: bool = Field(
        default=False,
        description="Look for packages in these folders and pages only.",
    )
    conda_file: str = Field(
        default="",
        description="An environment.yml on the driver's machine, in place of pip packages; where "
        "the workers have micromamba, mamba or conda.",
    )
    user_managed: bool = Field(
        title="The workers' own",
        default=False,
        description="The Python that the workers run, as it is; also where nothing is given.",
    )

    @check_model(mode="after")
    def _is_of_one_kind(self) -> "Environment":
        given = [name for name in _OF_PACKAGES if getattr(self, name)]
        kinds = [name for name in ("conda_file", "user_managed") if getattr(self, name)]
        if kinds and len(kinds) + len(given) > 1:
            both = " and ".join([*kinds, *given][:2])
            raise ValueError(f"{both} do not go together: an environment is of one kind")
        wanted = ("packages", "requirements_file", "pyproject_file")
        if given and not any(getattr(self, name) for name in wanted):
            raise ValueError(f"{given[0]} is given and no package: name some in packages")
        return self

    @model_serializer(mode="wrap")
    def _without_passwords(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out passwords: what is written down or sent to Prefect's database is read there."""
        values: dict[str, Any] = write(self)
        values["index_url"] = without_passwords(self.index_url)
        for name in ("packages", "constraints", "extra_index_urls", "find_links"):
            values[name] = type(values[name])(map(without_passwords, getattr(self, name)))
        return values

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Show what is given."""
        yield from ((name, value) for name, value in self.model_dump().items() if value)

    @property
    def is_own(self) -> bool:
        """Whether it has packages of its own; otherwise it is the workers' own Python."""
        wanted = ("packages", "requirements_file", "pyproject_file", "conda_file")
        return any(getattr(self, name) for name in wanted)

    @property
    def has_password(self) -> bool:
        """Whether an address holds one, so that the call cannot be written down as it is."""
        given = (
            *(self.index_url, *self.packages, *self.constraints),
            *(*self.extra_index_urls, *self.find_links),
        )
        return any(without_passwords(text) != text for text in given)

    def __str__(self) -> str:
        """Return how messages name it."""
        files = (self.requirements_file, self.pyproject_file, self.conda_file)
        text = ", ".join([*self.packages, *filter(None, files)]) or "the workers' own"
        text = without_passwords(text)
        return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 3]}..."


DEFAULT_ENVIRONMENT = Environment()
"""Asks for nothing: the workers' own packages."""


def without_passwords(text: str) -> str:
    """Return a text in which all is masked that may be secret in addresses: users and tokens too.

    Example:
        >>> without_passwords("mine @ https://token@wheels.example.com/mine.whl")
        'mine @ https://***@wheels.example.com/mine.whl'
    """
    return without_secrets(_ADDRESS.sub(lambda found: _without_user(found[0]), text))


def _without_user(address: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError:
        return MASK
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{MASK}@{host}")) if user else address
