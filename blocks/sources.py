"""Where rows come from, and go to: files with their keys, databases with their passwords."""

import re
from typing import Any, ClassVar, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from partwise.blocks import bucket_fields
from partwise.blocks.named_fields import BlockType, NamedFields

_LOGO = "sqlalchemy"
_DOCUMENTATION = "https://arrow.apache.org/adbc/current/driver/status.html"


class FilesBlock(NamedFields):
    """Files of rows: in folders of this machine, or in buckets.

    Leave the secrets empty to use what the environment of the workers offers (environment
    variables, a profile, or the role of the machine): nothing secret then passes through Prefect.

    Raises:
        InputError: Only one half of the pair of access keys was given, or asterisks for a secret.

    Example:
        Load a saved source and list its paths:
        ```python
        from partwise import FilesBlock

        source = FilesBlock.load("BLOCK_NAME")
        print(source.paths)
        ```
    """

    block_type: ClassVar = BlockType(
        "Files Block",
        "files-block",
        "https://filesystem-spec.readthedocs.io/en/latest/",
        "filesystem",
    )

    paths: list[str] = Field(
        min_length=1,
        description="Files, globs, folders, or URLs such as s3://bucket/folder.",
    )
    format: Literal["", "parquet", "csv", "json", "orc", "ipc", "excel"] = Field(
        default="", description="The format of all files. Empty: as their names say."
    )
    schema_policy: Literal["cast", "strict", "union"] = Field(
        default="cast",
        description=(
            "What becomes of files whose columns differ: cast to those of the first, refused, or "
            "all columns of all files."
        ),
    )
    types: dict[str, str] = Field(
        default_factory=dict,
        description='The types of columns by name, such as {"zip": "string", "day": "date32"}.',
    )
    file_column: str = Field(
        default="", description="A column to add, with the path of each row's file."
    )
    version: str = Field(
        default="",
        description="Of a Delta table, the version to read; of an Iceberg table, the ID of the "
        "snapshot. Empty: the newest.",
    )
    csv: dict[str, Any] = Field(
        default_factory=dict,
        title="CSV",
        description='How CSV files are read, such as {"delimiter": ";", "decimal": ","}: the words '
        "of partwise.CsvOptions.",
    )
    excel: dict[str, Any] = Field(
        default_factory=dict,
        description='How Excel workbooks are read, such as {"sheet": "2026"}: the words of '
        "partwise.ExcelOptions.",
    )
    endpoint_url: str | None = bucket_fields.ENDPOINT_URL
    region: str | None = bucket_fields.REGION
    profile: str | None = Field(
        default=None,
        description="The profile in the workers' own credentials file that opens the bucket.",
    )
    access_key_id: SecretStr | None = bucket_fields.ACCESS_KEY_ID
    secret_access_key: SecretStr | None = bucket_fields.SECRET_ACCESS_KEY

    @model_validator(mode="after")
    def _keys_come_in_pairs(self) -> "FilesBlock":
        bucket_fields.check_key_pair(
            self.access_key_id, self.secret_access_key, "files-block/sales"
        )
        return self


class _Database(NamedFields):
    """What reaches a database."""

    uri: str = Field(
        min_length=1,
        title="URI",
        description=(
            "postgresql://user@host:5432/name, or sqlite:///folder/file.db; the password is apart."
        ),
    )
    password: SecretStr | None = Field(
        default=None,
        description="The password. Empty: what PGPASSWORD or ~/.pgpass of the machine say.",
    )
    driver: Literal["postgresql", "sqlite", "snowflake", "bigquery"] | None = Field(
        default=None, description="The kind of database, where the URI does not say."
    )

    @field_validator("uri")
    @classmethod
    def _has_no_password(cls, uri: str) -> str:
        _, scheme, rest = uri.partition("://")
        # The last @, since a password may hold others.
        user, at, _ = (rest if scheme else uri).rpartition("@")
        name, colon, _ = user.partition(":")
        # Snowflake's have no scheme; and so have paths, and names with values of PostgreSQL.
        is_name = bool(scheme) or not {"/", "="} & {*name}
        if (at and colon and is_name) or re.search(r"password\s*=", uri):
            raise ValueError("the URI has a password in it: put it into the field for it.")
        return uri

    @field_validator("password")
    @classmethod
    def _is_no_row_of_asterisks(cls, password: SecretStr | None) -> SecretStr | None:
        if password is not None and not password.get_secret_value().strip("*"):
            raise ValueError(
                "password is empty or a row of asterisks, which Prefect puts in place of secrets "
                "where a block itself is passed to run_deployment; pass the block's name instead, "
                "such as 'query-block/prod'."
            )
        return password


class QueryBlock(_Database):
    """Rows of a database: a query or a table.

    Raises:
        InputError: The URI holds a password, or there are asterisks for one.

    Example:
        Load a saved source and train on it by its name:
        ```python
        from partwise import QueryBlock
        from partwise.flows import train_models

        source = QueryBlock.load("BLOCK_NAME")
        train_models("query-block/BLOCK_NAME", "store", "mine:fit")
        ```
    """

    block_type: ClassVar = BlockType("Query Block", "query-block", _DOCUMENTATION, _LOGO)

    query: str = Field(min_length=1, description="A SELECT, or the name of a table.")
    order_by: list[str] = Field(
        default_factory=list,
        title="Order by",
        description="Columns by which the rows come; without them, a resume may run more again.",
    )


class TableBlock(_Database):
    """A table of a database to which predictions are appended.

    Raises:
        InputError: The URI holds a password, or there are asterisks for one.

    Example:
        Load a saved table and append the predictions of a run to it, by its name:
        ```python
        from partwise import TableBlock
        from partwise.flows import run_inference

        table = TableBlock.load("BLOCK_NAME")
        run_inference("new.parquet", "store", "sales-1", output="table-block/BLOCK_NAME")
        ```
    """

    block_type: ClassVar = BlockType("Table Block", "table-block", _DOCUMENTATION, _LOGO)

    table: str = Field(
        min_length=1, description="The table's name, such as predictions or public.predictions."
    )
