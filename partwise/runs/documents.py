"""The documents of a run: what `run.json` and `generations/` hold, and where.

    <store>/runs/<run_id>/
        run.json                        the claim, created exclusively and never changed
        generations/0001.json           one for each time that work on the run was begun
        generations/0001.keys-0002.parquet  what it is to work on: see `partwise.runs.unfinished`
        generations/0001.ledger.parquet all rows of a generation that has ended
        generations/0001.summary.json   how it ended; created last, and never changed
        generations/0001.attempt-02     its gang was begun once more, which its earlier ranks see
        generations/0001.removed        the run was removed, up to this generation: see
                                        `partwise.runs.removal`
        lease/                          who works on it now; see `partwise.store.lease`
        lease/0001.run                  what a new run is to be, while its rows are loaded
        bundles/<shard>-<token>-<segment>.zip
        ledger/<shard>-<token>-<segment>.parquet
        predictions/, outputs/          rows that inference and map functions returned, named
                                        likewise
        replaced/                       those of them that a newer generation replaced
        damaged/                        ledger segments that could not be read
        checkpoints/                    of the ranks of a gang; see `partwise.runs.checkpoints`
        snapshots/                      what scripts were run from; see `partwise.scripts.snapshot`
        held/                           what versions of catalogs draw on: see `partwise.runs.holds`
        sent/                           inputs of scripts that were sent to a work pool; see
                                        `partwise.runs.sent_files`
        report.html                     for people, of the newest generation that had ended when it
                                        was written (it says which); only browsers read it

Every document carries `format_version`; a newer one than this release knows is refused by name.
Version 1 had one `summary.json` and one `ledger.parquet` for the run, of the newest generation that
had ended. Since version 3 each document ends in a checksum of its own, and those of generations in
a signature (`partwise.store.signing`). A generation's document names the checksum of `run.json`,
and its summary those of both and of the ledger, which has those of all files. Since version 4
`run.json` names all models that the run uses.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from partwise.errors import NewerFormatError, RunFormatError, RunIdError
from partwise.outcomes import PartitionStatus, RunStatus
from partwise.runs.kinds import KINDS, RunKind
from partwise.store.signing import seal, unseal
from partwise.store.store import Store
from partwise.store.strict_json import parse_json
from partwise.tables.keys.partition_keys import KeyColumn

FORMAT_VERSION = 4
SEALED_SINCE = 3
"""The first format version of documents that end in a checksum of their own."""
RUNS = "runs"
RUN_SCHEME = "run://"
"""Begins what names the models, or the rows, of a run."""
RUN_DOCUMENT = "run.json"
SUMMARY_OF_V1 = "summary.json"
LEDGER_OF_V1 = "ledger.parquet"
SAMPLE_SUFFIX = "-sample"
"""Ends the name of a dry run."""
REPORT_FILE = "report.html"
BUNDLES = "bundles"
LEDGER = "ledger"
SCRATCH = "scratch"
REPLACED = "replaced"
DAMAGED = "damaged"
SNAPSHOTS = "snapshots"
SENT = "sent"

_GENERATION_FILE = re.compile(r"(\d{4,})\.json")
_SUMMARY_FILE = re.compile(r"(\d{4,})\.summary\.json")
_KEYS_FILE = re.compile(r"(\d{4,})\.keys-(\d{4,})\.parquet")
_REMOVED_FILE = re.compile(r"(\d{4,})\.removed")
_ATTEMPT_FILE = re.compile(r"(\d{4,})\.attempt-(\d{2,})")
_SEGMENT_FILE = re.compile(r"\d{5,}-g(\d{4,})[0-9a-f]{8}-\d{3,}\..+")
_Status = Annotated[str, Field(pattern=f"^({'|'.join(PartitionStatus)})$")]
_LONGEST = 64
_RUN_ID = re.compile(rf"(?!.*\.(\.|\Z))[A-Za-z0-9][A-Za-z0-9._-]{{0,{_LONGEST - 1}}}")
"""A dot stands between others only: two of them are the folder above, and some systems leave out
one at the end of a name."""


def check_run_id(run_id: str) -> str:
    """Return the run ID when it is a safe name on every store, else raise a RunIdError."""
    if not is_run_id(run_id):
        shown = repr(run_id)
        shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
        if str(run_id).startswith("catalog://"):
            raise RunIdError(
                f"{shown} is a catalog, and one run is wanted here: name one of the runs that its "
                "models are of, which partwise catalog show lists. Each of these runs is exported "
                "by itself."
            )
        raise RunIdError(
            f"The run_id {shown} is not a safe name; use 1 to 64 letters, digits, '-', '_' and "
            "single dots, beginning with a letter or digit and not ending in a dot."
        )
    return run_id


def check_stem(noun: str, stem: str, run_ids: Iterable[str]) -> None:
    """Refuse a name of which run IDs are made, where one of them would be too long.

    Raises:
        RunIdError: It would.
    """
    longest = max(run_ids, key=len)
    if len(longest) > _LONGEST:
        most = _LONGEST - len(longest) + len(stem)
        raise RunIdError(
            f"The {noun} {stem!r} has {len(stem)} characters, and {longest!r} would be one of its "
            f"runs, longer than the {_LONGEST} of a run_id: give a name of at most {most}."
        )


def is_run_id(name: object) -> bool:
    """Whether a name can be that of a run."""
    return isinstance(name, str) and _RUN_ID.fullmatch(name) is not None


def run_path(run_id: str, *names: str) -> str:
    """Return a path below the folder of a run, relative to the store."""
    return "/".join((RUNS, run_id, *names))


def sha256_of(content: bytes | memoryview) -> str:
    """Return the checksum by which documents and the ledger name a file."""
    return hashlib.sha256(content).hexdigest()


class Document(BaseModel):
    """A frozen JSON document of the store, with the number of its format.

    The default of `format_version` is the newest that this release writes and reads.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: int = FORMAT_VERSION
    sealed_since: ClassVar[int | None] = SEALED_SINCE
    """The first format version that ends in a checksum; None: none does."""

    def to_bytes(self, purpose: str = "", store: Store | None = None) -> bytes:
        """Return the document as indented JSON.

        `purpose` says which document of the store it is, for its signature; None: it gets none.
        """
        content = self.model_dump_json(indent=2).encode() + b"\n"
        return content if self.sealed_since is None else seal(content, purpose, store)

    @classmethod
    def from_bytes(cls, content: bytes, where: str) -> Self:
        """Read a document. Its signature is the caller's concern (`check_signed`).

        Raises:
            NewerFormatError: A newer release wrote it.
            RunFormatError: It is damaged.
        """
        try:
            values = parse_json(content)
            version = values.get("format_version")
        except (ValueError, AttributeError) as error:
            raise RunFormatError(f"{where} is not a JSON document: {error}") from error
        newest = cls.model_fields["format_version"].default
        # By its very type: isinstance() would take JSON's true for version 1.
        if type(version) is not int or not 1 <= version <= newest:
            is_newer = type(version) is int and version > newest
            raise (NewerFormatError if is_newer else RunFormatError)(
                f"{where} has format version {version!r}, and this release reads up to "
                f"{newest}; install a newer partwise."
            )
        for name, field in cls.model_fields.items():
            # Pydantic keeps a copy of the whole document for each member that is missing.
            if field.is_required() and name not in values:
                raise RunFormatError(f"{where} is damaged: {name}: Field required")
        body: bytes | None = content
        if cls.sealed_since is not None and version >= cls.sealed_since:
            # An older document has no seal, and one whose number was lowered is refused: to it,
            # the members of the seal are unknown ones.
            body = unseal(content)
        if body is None:
            raise RunFormatError(
                f"{where} is damaged: it differs from the checksum at its end. Restore it from a "
                "backup."
            )
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise RunFormatError(f"{where} is damaged: {place}: {first['msg']}") from error


class Part(BaseModel):
    """A part of a document, without a number of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RunDocument(Document):
    """`run.json`: what a run is, for as long as it exists."""

    run_id: str
    kind: RunKind
    keys: tuple[KeyColumn, ...]
    n_shards: int = Field(ge=1)
    hash_version: int
    models: tuple[str, ...] = ()
    """The models that it uses, in the order in which they are asked: run://sales-1 of a training
    run or of exports, catalog://sales@7."""
    created_at: datetime
    writer: str
    """Random: by it a creator whose response was lost knows the document as its own."""

    @model_validator(mode="before")
    @classmethod
    def _name_models(cls, values: Any) -> Any:
        """Take what stood in place of `models` before format version 4."""
        if isinstance(values, dict) and "training_run_id" in values:
            used = values["training_run_id"]
            rest = {name: value for name, value in values.items() if name != "training_run_id"}
            named = f"{RUN_SCHEME}{used}" if isinstance(used, str) else used
            return {**rest, "models": () if used is None else (named,)}
        return values

    @property
    def training_run_id(self) -> str | None:
        """The run whose models it uses, if it uses those of one run and no others."""
        if len(self.models) != 1 or not self.models[0].startswith(RUN_SCHEME):
            return None
        return self.models[0].removeprefix(RUN_SCHEME)

    @property
    def partition_by(self) -> list[str]:
        """The names of the key columns."""
        return [key.name for key in self.keys]


class ClaimDocument(RunDocument):
    """`lease/000N.run`: what a run is to be whose rows are being loaded, as its claim says.

    It counts while that claim is held, and no generation was begun, or none since a removal.
    """

    n_shards: int = Field(default=0, ge=0, le=0)
    """It is not known yet."""


class GenerationDocument(Document):
    """`generations/000N.json`: one time that work on the run was begun."""

    generation: int = Field(ge=1)
    run_sha256: str | None = None
    """Of `run.json`; None: before format version 3."""
    before_sha256: str | None = None
    """Of the document of the generation before; None: there is none, or before version 3."""
    on_existing_artifacts: Literal["error", "overwrite", "resume"]
    partitions: int | None = None
    """How many there are to work on; None: in format version 1."""
    source_fingerprint: str
    inputs_fingerprint: str | None
    """Of source, params, null policy and trained models; None: it cannot be determined."""
    code_fingerprint: str | None
    """Of function or trainer, serde and seed; None: it cannot be determined, and
    counts as changed."""
    code_parts: dict[str, str] | None = None
    """What `code_fingerprint` is made of, each part with its hash, version or checksum; None: it
    is unknown, or an older release wrote this."""
    compatible: tuple[int, ...]
    """Earlier generations whose DONE partitions are kept: of the same code, serde and settings, or,
    where a resume was told to keep all that was done, of any."""
    call: dict[str, JsonValue] | None
    """The call, as far as another process can repeat it; None: it cannot (see `call_obstacle`)."""
    call_obstacle: str | None
    """Why another process cannot repeat the call: a closure, a frame in memory."""
    call_known: dict[str, JsonValue] | None = None
    """What is known of such a call all the same."""
    environment: dict[str, str]
    started_at: datetime
    owner: str
    flow_run_id: str | None = None
    """The Prefect flow run that began it: begun again, it goes on with its own run."""

    @property
    def written_call(self) -> Mapping[str, Any]:
        """The call, or what is known of one that cannot be repeated; empty: nothing is."""
        return self.call or self.call_known or {}

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Those of the call as far as they are known, by name."""
        # Whoever may write to the store may write anything in their place.
        found = self.written_call.get("arguments")
        return found if isinstance(found, dict) else {}


class SummaryDocument(Document):
    """`generations/000N.summary.json`: how a generation ended. Created last."""

    generation: int = Field(ge=1)
    run_sha256: str | None = None
    """Of `run.json`; None: before format version 3."""
    generation_sha256: str | None = None
    """Of the generation's own document; None: before format version 3."""
    status: RunStatus
    message: str
    remark: str = ""
    """What else to report: of a dry run, what all partitions would take."""
    counts: dict[_Status, Annotated[int, Field(ge=0)]]
    kept: int
    """Partitions that a resume found done."""
    executed: int | None = None
    """Partitions that were begun at least once; None: in format version 1."""
    rows: int
    dropped_rows: int
    """Rows with a null key under the policy "drop"."""
    ledger_file: str = LEDGER_OF_V1
    """The ledger: of an earlier generation where this one found nothing to do."""
    ledger_sha256: str
    started_at: datetime
    finished_at: datetime
    stages: dict[str, float]
    """Seconds of each stage."""

    def is_complete(self, kind: RunKind) -> bool:
        """Whether all partitions were worked on: it was neither cancelled nor stopped by a budget.

        Readers see the newest generation of which this holds. The ranks of a gang do one thing
        together, so that a gang that failed has done nothing, even where each failed by itself.
        """
        if KINDS[kind].is_gang and self.status is RunStatus.FAILURE:
            return False
        return not self.counts.get(PartitionStatus.CANCELLED.value)


class RunOrigin(Part):
    """A run, and which outcome of it: that of which a version of something was made."""

    run_id: str
    generation: int
    ledger_sha256: str
    """Of the run's consolidated ledger."""


def claim_file(number: int) -> str:
    """Return the name of what a claim says of a new run."""
    return f"lease/{number:04d}.run"


def generation_file(generation: int) -> str:
    """Return the name of a generation's document."""
    return f"generations/{generation:04d}.json"


def summary_file(generation: int) -> str:
    """Return the name of the document that says how a generation ended."""
    return f"generations/{generation:04d}.summary.json"


def ledger_file(generation: int) -> str:
    """Return the name of the ledger of a generation that has ended."""
    return f"generations/{generation:04d}.ledger.parquet"


def keys_file(generation: int, claim: int) -> str:
    """Return the name of the keys that a generation is to work on, as a claim wrote them."""
    return f"generations/{generation:04d}.keys-{claim:04d}.parquet"


def keys_claim(name: str, generation: int | None = None) -> int:
    """Return the claim that wrote a file of keys of this name; 0 for any other file.

    `generation` None: of any.
    """
    match = _KEYS_FILE.fullmatch(name)
    return int(match[2]) if match and generation in (None, int(match[1])) else 0


def removal_file(generation: int) -> str:
    """Return the name of what says that a run was removed, up to this generation."""
    return f"generations/{generation:04d}.removed"


def removed_number(name: str) -> int | None:
    """Return the generation up to which a file of this name says a run was removed; None: none."""
    match = _REMOVED_FILE.fullmatch(name)
    return int(match[1]) if match else None


def attempt_file(generation: int, attempt: int) -> str:
    """Return the name of what says that a gang was begun once more in a generation."""
    return f"generations/{generation:04d}.attempt-{attempt:02d}"


def attempt_number(name: str, generation: int) -> int:
    """Return which attempt of a generation a file of this name says was begun; 1 for any other."""
    match = _ATTEMPT_FILE.fullmatch(name)
    return int(match[2]) if match and int(match[1]) == generation else 1


def generation_number(name: str) -> int:
    """Return the generation whose document has this name; 0 for any other file."""
    match = _GENERATION_FILE.fullmatch(name)
    return int(match[1]) if match else 0


def ended_number(name: str) -> int:
    """Return the generation whose summary has this name; 0 for any other file."""
    match = _SUMMARY_FILE.fullmatch(name)
    return int(match[1]) if match else 0


def execution_token(generation: int, random: str) -> str:
    """Return the token of one execution of a shard: its generation, then chance.

    Two executions of one Dask task, as after a network partition, never share a name with it.
    """
    return f"g{generation:04d}{random}"


def segment_file(shard: int, token: str, segment: int, suffix: str) -> str:
    """Return the name of a file of a segment.

    Example:
        >>> segment_file(42, "g0001ab12cd34", 3, "zip")
        '00042-g0001ab12cd34-003.zip'
    """
    return f"{shard:05d}-{token}-{segment:03d}.{suffix}"


def generation_of(path: str) -> int:
    """Return the generation that wrote a file of a segment, by its name; 0 for any other file."""
    match = _SEGMENT_FILE.fullmatch(path.rpartition("/")[2])
    return int(match[1]) if match else 0


def to_json(value: Any) -> JsonValue:
    """Return a value as JSON can hold it.

    Raises:
        TypeError: JSON cannot: its keys are texts.
        ValueError: It is, or has in it, a number that is not finite.
    """
    result: JsonValue = json.loads(json.dumps(value, allow_nan=False))
    _check_keys(value)
    return result


def _check_keys(value: Any) -> None:
    if isinstance(value, dict):
        for key, each in value.items():
            # json.dumps makes a text of a number.
            if not isinstance(key, str):
                raise TypeError(f"The key {key!r} is not a text.")
            _check_keys(each)
    elif isinstance(value, list | tuple):
        for each in value:
            _check_keys(each)
