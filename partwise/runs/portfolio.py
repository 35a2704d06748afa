"""The portfolio of a run: a document beside its ledger."""

from typing import ClassVar

from pydantic import ConfigDict, JsonValue

from partwise.errors import InputError
from partwise.runs.documents import Document, run_path
from partwise.store.signing import check_signed, is_configured, seal
from partwise.store.store import Store

PORTFOLIO_FILE = "portfolio.json"


class Portfolio(Document):
    """The few settings of a trainer that together leave the least regret."""

    # Ignored: where keys are configured, the members of a seal stand beside these.
    model_config = ConfigDict(extra="ignore", frozen=True)

    sealed_since: ClassVar[int | None] = None
    format_version: int = 1
    trainer: str
    """The kind of the trainer, or the name of a function, whose settings they are."""
    metric: str
    settings: tuple[dict[str, JsonValue], ...]
    """The trainer's own first, which change nothing; then in the order of what they bring."""
    regrets: tuple[float, ...]
    """The mean regret with the first of them, with the first two, and so on: of 1, as bad as the
    median of all settings that were tried, and of 0, as good as the best of them on each."""
    partitions: int
    """On how many they were scored."""
    tried: int
    """Of how many settings they were picked."""


def write_portfolio(store: Store, run_id: str, portfolio: Portfolio) -> None:
    """Keep the portfolio of a run, signed where keys are configured."""
    path = run_path(run_id, PORTFOLIO_FILE)
    content = portfolio.model_dump_json(indent=1).encode() + b"\n"
    store.write(path, seal(content, path, store) if is_configured(store) else content)


def has_portfolio(store: Store, run_id: str) -> bool:
    """Whether settings were picked by a run."""
    return store.exists(run_path(run_id, PORTFOLIO_FILE))


def read_portfolio(store: Store, run_id: str) -> Portfolio:
    """Return the portfolio of a run.

    Raises:
        InputError: The run has none.
        NewerFormatError: A newer release wrote it.
        RunFormatError: It cannot be read.
        SignatureError: Keys are configured, and none of them signed it.
    """
    path = run_path(run_id, PORTFOLIO_FILE)
    try:
        content = store.read_document(path)
    except FileNotFoundError:
        raise InputError(
            f"The run {run_id!r} has no portfolio: give a run of find_portfolio that is complete."
        ) from None
    check_signed(content, path, path, store)
    return Portfolio.from_bytes(content, path)
