"""Databases that ADBC reaches: how one is named, opened and spoken to without telling its password.

A driver is a package of its own (`adbc_driver_postgresql`), imported when it is used.

Names and texts are quoted here, not by SQLAlchemy's compiler (looked at on 2026-11-22, release
2.0.58): without a connection of its own it doubles "%" and, for PostgreSQL, each backslash, writes
NaN bare and lets a null character pass. ADBC, which fetches Arrow, takes the statement as it is.
"""

import importlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import pyarrow as pa

from partwise.errors import InputError, PartwiseError, SourceError
from partwise.redaction import LEAST_CHARS, MASK

DatabaseKind = Literal["postgresql", "sqlite", "snowflake", "bigquery"]

Mode = Literal["read", "write"]

_SCHEMES: dict[str, DatabaseKind] = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "sqlite": "sqlite",
    "file": "sqlite",
    "snowflake": "snowflake",
    "bigquery": "bigquery",
}
_DRIVERS = sorted(get_args(DatabaseKind))
_SQLITE_FILE = re.compile(r"\.(db|sqlite|sqlite3)$")
_CONNECT_TIMEOUT_S = 15
_KEEPALIVE = {"keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3"}
"""Without them a query waits two hours for a host that is out of reach, and not 60 s."""
_BUSY_TIMEOUT_MS = 60_000
_SECRET_WORDS = (
    "password",
    "passwd",
    "token",
    "secret",
    "private_key",
    "sslpassword",
    "credential",
)
_NAME = re.compile(
    r'(?:[^\W\d][\w$]*|"(?:[^"\0]|"")+")(?:\.(?:[^\W\d][\w$]*|"(?:[^"\0]|"")+")){0,2}'
)


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """A column of a query, and how to ask for it."""

    name: str
    type: pa.DataType
    expression: str
    """SQL that gives its values."""
    refusal: str = ""
    """Why it cannot be read, the end of a sentence; "": it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """Where a database is, and what opens it.

    A URI of an unknown kind, or a malformed one, is not repeated in the message, as a piece of a
    password could stand anywhere in it.
    """

    uri: str = field(repr=False)
    """`postgresql://user@host:5432/name`, or the path of an SQLite file (`sqlite:///sales.db`)."""

    driver: DatabaseKind | None = None
    """The kind of database; None: as the URI says."""

    password: str | None = field(default=None, repr=False)
    """The password, where it does not stand in the URI."""

    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of the ADBC driver (`db_kwargs`), for Snowflake and BigQuery."""

    def __post_init__(self) -> None:
        if self.driver is not None and self.driver not in _DRIVERS:
            raise InputError(f"The driver {self.driver!r} is none of {', '.join(_DRIVERS)}.")
        if "\0" in self.uri:
            raise InputError("The URI of the database has a null character in it.")
        if self.kind != "postgresql":
            return
        try:
            parts = urlsplit(self.uri)
            well_formed = _SCHEMES.get(parts.scheme) == "postgresql" and parts.port != 0
        except ValueError:
            well_formed = False
        if not well_formed or re.search("%(?![0-9a-fA-F]{2})", self.uri):
            raise InputError(
                "The URI of the database is not of the form postgresql://user@host:5432/name: /, "
                ":, @, # and % in a password are written as %2F, %3A, %40, %23 and %25."
            )

    @property
    def kind(self) -> DatabaseKind:
        """The driver that opens it."""
        if self.driver is not None:
            return self.driver
        scheme, colon, _ = self.uri.partition(":")
        kind = _SCHEMES.get(scheme) if colon else None
        if kind is None and not colon and _SQLITE_FILE.search(self.uri):
            kind = "sqlite"
        if kind is None:
            raise InputError(
                "The URI of the database does not say which kind it is: begin it with "
                "postgresql:// or sqlite:///, or name the driver "
                f"({', '.join(_DRIVERS)})."
            )
        return kind

    @property
    def has_secret(self) -> bool:
        """Whether somebody who reads the URI and the options could open the database with them."""
        return bool(self._secrets())

    @property
    def shown(self) -> str:
        """The database in words, without a secret."""
        return self.redact(self.uri.partition("?")[0]) or self.kind

    def _secrets(self) -> list[str]:
        secrets = [self.password or "", *self.options.values()]
        if "://" in self.uri:
            # As written, since `urlsplit` fails where the password breaks the form of the URI.
            authority = self.uri.partition("://")[2]
            user, at, _ = authority.rpartition("@")
            if at and ":" in user:
                secrets.append(user.partition(":")[2])
        for name, value in parse_qsl(self.uri.partition("?")[2]):
            if any(word in name.lower() for word in _SECRET_WORDS):
                secrets += [value, quote(value, safe="")]
        return [text for secret in secrets if secret for text in (secret, unquote(secret))]

    def redact(self, text: str) -> str:
        """Return a text with every secret of this database left out."""
        # The longest first, since one may be a part of another; short ones as words alone, since
        # they are a part of any text.
        secrets = sorted(self._secrets(), key=len, reverse=True)
        forms = [
            re.escape(each) if len(each) >= LEAST_CHARS else rf"(?<!\w){re.escape(each)}(?!\w)"
            for each in secrets
        ]
        return re.sub("|".join(forms), MASK, text) if forms else text

    def _target(self, mode: Mode) -> str:
        if self.kind == "postgresql":
            in_uri = {name for name, _ in parse_qsl(urlsplit(self.uri).query)}
            more = {"connect_timeout": str(_CONNECT_TIMEOUT_S), "application_name": "partwise"}
            more |= _KEEPALIVE
            if self.password is not None:
                more["password"] = self.password
            extra = [f"{k}={quote(v, safe='')}" for k, v in more.items() if k not in in_uri]
            return self.uri + ("&" if "?" in self.uri else "?") + "&".join(extra)
        if self.kind != "sqlite":
            return self.uri
        if self.uri.startswith("file:"):
            read_only = "" if mode == "write" or "mode=" in self.uri else "mode=ro"
            return self.uri + (("&" if "?" in self.uri else "?") + read_only if read_only else "")
        path = os.path.abspath(self.uri.removeprefix("sqlite:///"))
        if mode == "read" and not os.path.isfile(path):
            raise SourceError(
                f"There is no SQLite file {path!r}: give the path of one that is there, best the "
                "whole path."
            )
        return f"file:{quote(path)}?mode={'rwc' if mode == 'write' else 'ro'}"

    @contextmanager
    def connect(self, mode: Mode = "read") -> Iterator[Any]:
        """Open a connection of `adbc_driver_manager.dbapi`, in a transaction.

        In the mode "read" the server refuses to write anything.
        """
        # First: it says which package is missing, where the import below would name a module only.
        driver = import_driver(self.kind)
        from adbc_driver_manager import dbapi

        options: dict[str, Any] = dict(self.options)
        if self.uri:
            options["uri"] = self._target(mode)
        if self.kind not in ("postgresql", "sqlite") and self.password is not None:
            options["password"] = self.password
        with self.telling(f"The database {self.shown} cannot be opened"):
            connection = dbapi.connect(driver=driver._driver_path(), db_kwargs=options)
        with closing(connection):
            with self.telling(f"The database {self.shown} cannot be opened"):
                self._prepare(connection, mode)
            yield connection

    def _prepare(self, connection: Any, mode: Mode) -> None:
        with closing(connection.cursor()) as cursor:
            match self.kind:
                case "postgresql":
                    cursor.execute("SET client_encoding TO 'UTF8'")
                    access = "READ WRITE" if mode == "write" else "READ ONLY"
                    level = f"ISOLATION LEVEL READ COMMITTED, {access}"
                    # It holds for the transactions after this one, which ADBC has begun already.
                    cursor.execute(f"SET SESSION CHARACTERISTICS AS TRANSACTION {level}")
                    connection.commit()
                case "sqlite":
                    cursor.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
                    cursor.fetchall()
                    connection.commit()

    @contextmanager
    def telling(self, what: str, error: type[PartwiseError] = SourceError) -> Iterator[None]:
        """Turn what a driver raises into one sentence with the server's own words.

        `what` failed: the beginning of the sentence.
        """
        import adbc_driver_manager

        try:
            yield
        except (adbc_driver_manager.Error, pa.ArrowException, OSError) as exc:
            if isinstance(exc, PartwiseError):
                raise
            redacted = error(f"{what}: {self.redact(_server_words(str(exc)))}.")
            if self.redact(text := f"{exc!r} {exc}") != text:
                # A traceback would show the words of the driver.
                raise redacted from None
            raise redacted from exc


def _server_words(text: str) -> str:
    """What the server says, without the driver's own words and the whole statement."""
    text = re.split(r"\n\n?(?:Query was|query): |\nLINE \d+: ", text)[0]
    text = re.sub(r"^[A-Z_]+: (?:\[\w+\] )?(?:Failed to \w+(?: \w+)?: )?", "", text)
    return " ".join(text.split()).removeprefix("ERROR: ").rstrip(".")


def import_driver(kind: DatabaseKind) -> Any:
    """Return the ADBC package of a kind of database."""
    try:
        importlib.import_module("adbc_driver_manager.dbapi")
        return importlib.import_module(f"adbc_driver_{kind}")
    except ImportError as error:
        what = f"'partwise[{kind}]'"
        if kind not in ("postgresql", "sqlite"):
            what = f"adbc-driver-manager adbc-driver-{kind}"
        raise InputError(
            f"The ADBC driver of {kind} is not installed ({error}): pip install {what}."
        ) from error


def quoted_name(name: str, kind: DatabaseKind = "postgresql") -> str:
    """Return a column or table name as SQL has it; any sign may be in it but a null character."""
    if "\0" in name:
        raise InputError(f"The name {name!r} has a null character in it, which SQL cannot express.")
    sign = "`" if kind == "bigquery" else '"'
    return sign + name.replace(sign, sign * 2) + sign


def quoted_text(text: str, kind: DatabaseKind = "postgresql") -> str:
    r"""Return a text as PostgreSQL or SQLite has it.

    With a backslash in it the text becomes `E'...'`, which PostgreSQL reads alike with
    `standard_conforming_strings` on and off (PostgreSQL manual, 4.1.2.2); for SQLite a backslash is
    a sign like any other.

    Raises:
        InputError: There is a null character in it, which ends a statement.
    """
    if "\0" in text:
        raise InputError(f"The text {text!r} has a null character in it, which SQL cannot express.")
    doubled = text.replace("'", "''")
    if kind == "sqlite" or "\\" not in text:
        return f"'{doubled}'"
    return "E'" + doubled.replace("\\", "\\\\") + "'"


def is_table_name(text: str) -> bool:
    """Whether a text is the name of a table (`sales`, `public.sales`, `"Sales"`), and no query."""
    return _NAME.fullmatch(text) is not None


def lower_case(name: str) -> str:
    """Return a name as databases fold it: A to Z, and no other letter (of PostgreSQL, in UTF-8)."""
    return "".join(sign.lower() if sign.isascii() else sign for sign in name)


def table_parts(name: str, kind: DatabaseKind) -> tuple[str, str, str]:
    """Return database and schema ("": not named) and name of a table, as the database knows them.

    `is_table_name` holds for the name. PostgreSQL makes what is not quoted lower case.
    """
    quoted_or_bare = re.findall(r'"((?:[^"]|"")+)"|([^."]+)', name)
    parts = [
        quoted.replace('""', '"') or (lower_case(bare) if kind == "postgresql" else bare)
        for quoted, bare in quoted_or_bare
    ]
    database, schema, table = ["", "", *parts][-3:]
    return database, schema, table


def subquery(text: str) -> str:
    """Return a query, or a table by its name, so that it can stand after FROM."""
    bare = text.strip().rstrip(";").strip()
    if not bare or "\0" in bare:
        raise InputError(f"The query {text!r} is empty, or has a null character in it.")
    if is_table_name(bare):
        return bare
    # On lines of its own, since it may end with a comment.
    return f"(\n{bare}\n)"
