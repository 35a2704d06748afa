"""Where runs are kept: any folder or bucket that fsspec reaches.

A block holds what a person saves in Prefect; the flows turn it into the plain, secret-free value
that workers receive.
"""

from typing import ClassVar

from pydantic import Field, SecretStr, model_validator

from partwise.blocks import bucket_fields
from partwise.blocks.named_fields import BlockType, NamedFields


class StoreBlock(NamedFields):
    """A folder or bucket in which runs are kept.

    Leave the secrets empty to use what the environment of the workers offers (environment
    variables, a profile, or the role of the machine): nothing secret then passes through Prefect.

    Raises:
        InputError: Only one half of the pair of access keys was given, or asterisks for a secret.

    Example:
        Load a saved store and list its runs' folder:
        ```python
        from partwise import StoreBlock

        store = StoreBlock.load("BLOCK_NAME")
        print(store.url)
        ```
    """

    block_type: ClassVar = BlockType(
        "Store Block",
        "store-block",
        "https://filesystem-spec.readthedocs.io/en/latest/",
        "filesystem",
    )

    url: str = Field(
        min_length=1,
        title="URL",
        description=(
            "A folder, or a URL such as s3://bucket/folder, gs://bucket/folder or az://container."
        ),
    )
    endpoint_url: str | None = bucket_fields.ENDPOINT_URL
    region: str | None = bucket_fields.REGION
    profile: str | None = Field(
        default=None,
        description="The profile in the workers' own credentials file that opens the store.",
    )
    access_key_id: SecretStr | None = bucket_fields.ACCESS_KEY_ID
    secret_access_key: SecretStr | None = bucket_fields.SECRET_ACCESS_KEY

    signing_keys: SecretStr | None = Field(
        default=None,
        title="Signing keys",
        description=(
            "Keys that sign the documents of runs, as ID:KEY, ID:KEY, each KEY 64 hexadecimal "
            "digits; the first signs, all verify. The flow has them, and its workers for a run."
        ),
    )

    @model_validator(mode="after")
    def _keys_come_in_pairs(self) -> "StoreBlock":
        bucket_fields.check_key_pair(self.access_key_id, self.secret_access_key, "store-block/prod")
        return self
