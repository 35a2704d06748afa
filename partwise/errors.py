"""Every error that partwise raises, in one tree.

    PartwiseError
    ├── InputError (ValueError)            what the caller gave cannot be used; nothing was written
    │   ├── ArgumentError (TypeError)      no such argument of a flow, or one that it lacks
    │   ├── SourceError                    rows cannot be read, or there are none
    │   │   └── NoRowsError                a filter, or a choice of keys, leaves no row
    │   ├── ColumnError                    a column is missing, twice, or of an unfit type
    │   ├── NullKeyError                   a key is null under the policy "error"
    │   ├── KeyClassError                  keys are of another class than in the run they meet
    │   ├── RunIdError                     a run ID that is not a safe name
    │   ├── FunctionError                  a function or trainer that cannot be sent to the workers
    │   ├── TrustError                     a call in the store that the caller does not trust
    │   ├── SerdeError                     no serde for a type of model, or one that is not allowed
    │   │   └── UnkeptModelError           a function returned a model of a kind that cannot be kept
    │   ├── UnknownFeatureError            no such feature, or the architecture does not have it
    │   ├── UnknownModelTypeError          an architecture that is not in the table
    │   ├── OpsetError                     a version of ONNX' operators that does not suffice
    │   ├── CheckpointError                a model that cannot be read from its directory
    │   └── PackageError                   packages that are not found, or do not go together
    ├── StoreError (OSError)               the artifact store cannot be reached, read or written
    ├── ScratchError (OSError)             the disk of a worker's machine is full or broken
    ├── RunExistsError (FileExistsError)   the run ID is taken
    ├── RunNotFoundError (LookupError)     no run of that ID in the store
    ├── DatasetNotFoundError (LookupError) no dataset of that name, or no such version of it
    ├── CatalogNotFoundError (LookupError) no catalog of that name, or no such version of it
    ├── CatalogConflictError               another version of the catalog was made meanwhile
    ├── RunBusyError                       another process works on the run
    ├── RunFormatError (ValueError)        a document of an unknown or broken format
    │   └── NewerFormatError               a document that a newer release wrote
    ├── PartitionNotFoundError (KeyError)  the run has no such partition
    ├── ArtifactNotFoundError (LookupError)  the partition has no such artifact
    ├── ModelNotFoundError (LookupError)   a partition of an inference run has no trained model
    ├── ExportRefusedError                 a model that would not be exported rightly, by name
    ├── ExportMismatchError                an export that does not give what its model gives
    ├── IntegrityError                     bytes differ from their checksum
    ├── SignatureError                     a document that no key of ours signed, or an older one
    ├── PeerLostError                      a rank of a gang failed because another one had ended
    ├── TrialPruned                        a trial that its study gave up; a function lets it pass
    ├── MpiError                           Open MPI did not start a job, or came to an end before it
    ├── ClusterError                       the Dask cluster cannot be reached, or went away
    ├── EnvironmentBuildError              an environment cannot be built on a worker's machine
    ├── GateError                          a night was stopped before it changed what is in use
    ├── OutputError                        the rows of a run were not appended to a table
    ├── ServiceError                       a Prefect server or worker does not start, or refuses
    ├── RunFailedError                     none done, or the failure budget was exceeded
    └── RunCancelledError                  the run was cancelled; what was committed is kept

A message is one sentence or two: what failed, which run or partition, the value seen, what to do.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from partwise.redaction import without_secrets


class PartwiseError(Exception):
    """Base of every error that partwise raises."""

    final: ClassVar[bool] = False
    """Whether a second attempt at the same partition would come to the same."""
    check: str = ""
    """Which of several conditions did not hold, where one line of code raises for all of them: it
    tells groups of equal failures apart."""
    metrics: Mapping[str, float] = MappingProxyType({})
    """Numbers that the ledger keeps of a partition that failed so."""

    def __init__(self, *args: Any) -> None:
        # A message quotes what libraries say, and they quote URLs and options.
        super().__init__(*(without_secrets(a) if isinstance(a, str) else a for a in args))


class InputError(PartwiseError, ValueError):
    """What the caller gave cannot be used; nothing was written."""

    final = True


class ArgumentError(InputError, TypeError):
    """A call of a flow lacks an argument, or has one that the flow does not have."""


class SourceError(InputError):
    """Rows cannot be read from the source, or it has none."""

    final = False


class NoRowsError(SourceError):
    """A filter, or a choice of keys, leaves no row."""


class ColumnError(InputError):
    """A column is missing, stands there twice, or has a type that does not fit."""


class NullKeyError(InputError):
    """A partition key is null under the policy "error"."""


class KeyClassError(InputError):
    """Partition keys are of another class than those of the run that they meet."""


class RunIdError(InputError):
    """A run ID that is not a safe name on every store."""


class FunctionError(InputError):
    """A function or trainer that cannot be found, or cannot be sent to the workers."""


class TrustError(InputError):
    """A call that stands in the store would be repeated, and nobody said that it is trusted."""


class SerdeError(InputError):
    """No serde for this type of model, or one that the caller did not allow."""


class UnkeptModelError(SerdeError):
    """A function returned a model that its serde cannot write, or of a type that has none.

    Each partition would come to the same, so that the run ends with the first. A function that is
    annotated to return a PyTorch class which its serde does not know is refused before the work.
    """


class UnknownFeatureError(InputError):
    """There is no such feature, or the architecture does not have it."""


class UnknownModelTypeError(InputError):
    """The architecture is not in the table."""


class OpsetError(InputError):
    """A version of ONNX' operators that does not suffice, or that cannot be written."""


class CheckpointError(InputError):
    """A model cannot be read from its directory: files are missing, broken, or of another kind."""


class PackageError(InputError):
    """Packages of an environment are not found, do not go together, or cannot be read about."""

    final = False


class StoreError(PartwiseError, OSError):
    """The artifact store cannot be reached, read or written."""


class ScratchError(PartwiseError, OSError):
    """The folder for passing files of a worker's machine is full, broken or gone."""


class RunExistsError(PartwiseError, FileExistsError):
    """The run ID is taken."""


class RunNotFoundError(PartwiseError, LookupError):
    """The store holds no run of this ID."""


class DatasetNotFoundError(PartwiseError, LookupError):
    """The store holds no dataset of this name, or not this version of it."""


class CatalogNotFoundError(PartwiseError, LookupError):
    """The store holds no catalog of this name, or not this version of it."""


class CatalogConflictError(PartwiseError):
    """Somebody else has made the next version of a catalog meanwhile; nothing was changed."""


class RunBusyError(PartwiseError):
    """Another process is at work on this run."""


class RunFormatError(PartwiseError, ValueError):
    """A document on the store is broken, or of a format that this release does not know."""


class NewerFormatError(RunFormatError):
    """A document on the store is whole, but a newer release wrote it."""


class PartitionNotFoundError(PartwiseError, KeyError):
    """The run has no partition of this key."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ArtifactNotFoundError(PartwiseError, LookupError):
    """The partition has no artifact of this name."""


class ModelNotFoundError(PartwiseError, LookupError):
    """A partition of an inference run for which the training run has no model."""

    final = True


class TrialsFailedError(PartwiseError):
    """No settings that were tried on a partition have a score; carries the first one's error."""


class ExportRefusedError(PartwiseError):
    """A model, or an option for it, that this release cannot export rightly."""

    final = True


class ExportMismatchError(PartwiseError):
    """An export that does not take or give what its model does; nothing of it is published.

    Args:
        message: The findings, the first ones in full.
        check: What did not hold: "values", "shape", "names", "opset" and so on.
        metrics: The numbers of the comparison.
    """

    final = True

    def __init__(self, message: str, check: str, metrics: Mapping[str, float]) -> None:
        super().__init__(message)
        self.check = check
        self.metrics = dict(metrics)

    def __reduce__(self) -> tuple[Any, ...]:
        # Without __init__, which takes more than the message, and other things in derived classes.
        return type(self).__new__, (type(self), *self.args), self.__dict__


class IntegrityError(PartwiseError):
    """Bytes read from the store differ from their checksum."""


class SignatureError(PartwiseError):
    """A document that no key of this process signed, or that is older than one seen before."""


class PeerLostError(PartwiseError):
    """A rank failed because another one had ended; never the reason that a gang is given."""


class TrialPruned(PartwiseError):  # noqa: N818 (the word of studies)
    """A trial that its study gave up before its end; a function lets it pass."""

    final = True


class MpiError(PartwiseError):
    """Open MPI did not start the processes of a job, or came to an end before they did."""


class ClusterError(PartwiseError):
    """The Dask cluster cannot be reached, or went away."""


class EnvironmentBuildError(PartwiseError):
    """An environment cannot be built on a worker's machine, or cannot be used there."""


class GateError(PartwiseError):
    """A night of the lifecycle was stopped before it changed what is in use."""


class OutputError(PartwiseError):
    """The rows of a run were not appended to a table; the run itself is as it was."""


class ServiceError(PartwiseError):
    """A Prefect server or worker does not start, or refuses what it is asked."""


class _RunEndedError(PartwiseError):
    """A run that ended without success; carries its handle.

    Args:
        message: What happened, and what to do.
        run: The `Run`: what was committed can be read from it. None when a run was cancelled
            before its partitions ran.
    """

    def __init__(self, message: str, run: Any) -> None:
        super().__init__(message, run)
        self.message = message
        self.run = run

    def __str__(self) -> str:
        return self.message


class RunFailedError(_RunEndedError):
    """No partition was done, or the failure budget was exceeded."""


class RunCancelledError(_RunEndedError):
    """The run was cancelled; what was committed is kept, and a resume goes on from there."""
