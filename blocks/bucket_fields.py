"""The fields by which a block reaches a bucket, and its access keys among them."""

from typing import Any

from pydantic import Field, SecretStr

ENDPOINT_URL: Any = Field(
    default=None,
    title="Endpoint URL",
    description="The address of a service that speaks S3 but is not Amazon's own.",
)
REGION: Any = Field(default=None, description="The region of the bucket.")
ACCESS_KEY_ID: Any = Field(
    default=None,
    title="Access key ID",
    description="The public half of an access key. Empty: what the workers' environment has.",
)
SECRET_ACCESS_KEY: Any = Field(
    default=None,
    title="Secret access key",
    description="The secret half of an access key. Given exactly when the key ID is.",
)


def check_key_pair(
    access_key_id: SecretStr | None, secret_access_key: SecretStr | None, block: str
) -> None:
    """Check that a block has both halves of a pair of access keys, or neither.

    `block` is a name that a saved block might have, for the message.

    Raises:
        ValueError: Only one half was given, or asterisks for a secret.
    """
    if (access_key_id is None) != (secret_access_key is None):
        given, missing = "access_key_id", "secret_access_key"
        if access_key_id is None:
            given, missing = missing, given
        raise ValueError(f"{given} was given without {missing}; give both, or neither.")
    if secret_access_key is not None and not secret_access_key.get_secret_value().strip("*"):
        raise ValueError(
            "secret_access_key is a row of asterisks, which Prefect puts in place of secrets "
            "where a block itself is passed to run_deployment; pass the block's name instead, "
            f"such as {block!r}."
        )
