"""Blocks that a call gives by the names under which they are saved, and the store of a call."""

from typing import Any, TypeGuard

from partwise.blocks import FilesBlock, StoreBlock
from partwise.blocks.named_fields import NamedFields
from partwise.errors import InputError
from partwise.flows.orchestration.block_parameters import StoreParameter
from partwise.flows.orchestration.direct import runs_directly
from partwise.formatting import did_you_mean
from partwise.renamed import block_is_called_now, block_of_today
from partwise.store.credentials import set_credentials
from partwise.store.signing import set_signing_keys
from partwise.store.store import Store


def open_store(store: StoreParameter) -> Store:
    """Return the store that a caller names; a block's keys are kept in this process."""
    if names_block(store, StoreBlock):
        store = load_block(StoreBlock, store)
    if not isinstance(store, StoreBlock):
        return Store.parse(store)
    opened = Store.parse(
        store.url, endpoint_url=store.endpoint_url, region=store.region, profile=store.profile
    )
    if keys := keys_of(store):
        set_credentials(opened.url, keys)
    if store.signing_keys is not None:
        set_signing_keys(opened, store.signing_keys.get_secret_value())
    return opened


def keys_of(block: StoreBlock | FilesBlock) -> dict[str, str]:
    """Return the access keys that a block holds; none where it has none."""
    if block.access_key_id is None or block.secret_access_key is None:
        return {}
    return {
        "key": block.access_key_id.get_secret_value(),
        "secret": block.secret_access_key.get_secret_value(),
    }


def names_block(value: Any, kind: type[NamedFields]) -> TypeGuard[str]:
    """Whether a value is the name of a saved block of a kind, such as "query-block/shop".

    Raises:
        InputError: It is the name that such a block had once.
    """
    if not isinstance(value, str):
        return False
    slug = kind.block_type.slug
    if (sentence := block_is_called_now(value)) and block_of_today(value).startswith(f"{slug}/"):
        raise InputError(sentence)
    return value.startswith(f"{slug}/")


def load_block(kind: type[NamedFields], name: str) -> Any:
    """Return the block of a kind that is saved under a name.

    Raises:
        InputError: There is none, or no server is named that would have it.
    """
    if runs_directly():
        raise InputError(
            f"The block {name!r} is kept by a Prefect server, and none is named: set "
            "PREFECT_API_URL to its address; or run the command with --prefect, for one that was "
            "saved on this machine without a server."
        )
    from prefect.exceptions import PrefectHTTPStatusError

    from partwise.flows.orchestration.embedded_server import start_embedded_server
    from partwise.flows.orchestration.server_client import refused_password

    # Outside of flows too: one that Prefect embeds by itself lets in whoever is on the machine.
    start_embedded_server()
    try:
        return kind.load(name.partition("/")[2])
    except PrefectHTTPStatusError as error:
        if (refusal := refused_password(error)) is not None:
            raise refusal from error
        raise
    except ValueError as error:
        raise InputError(
            f"No block {name!r} can be loaded ({error}); `prefect block ls` lists those that are "
            f"saved.{did_you_mean(name, _saved(kind))}"
        ) from error


def _saved(kind: type[NamedFields]) -> list[str]:
    """Return the names of the blocks of a kind, as callers give them."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectHTTPStatusError

    slug = kind.block_type.slug
    try:
        with get_client(sync_client=True) as client:
            documents = client.read_block_documents_by_type(slug, include_secrets=False)
    except PrefectHTTPStatusError:  # none of the kind was ever registered
        return []
    return [f"{slug}/{document.name}" for document in documents]
