"""What came of an export: its files, and how each was proved."""

from pydantic import BaseModel, ConfigDict


class OutputReport(BaseModel):
    """An output of a file, as it was compared."""

    model_config = ConfigDict(frozen=True)

    name: str
    shape: tuple[int, ...]
    """In the case with the most values."""
    findings: tuple[str, ...] = ()
    """What does not hold of it, in sentences. None: its shapes and values are the model's own."""


class FileReport(BaseModel):
    """An exported file, as it was proved."""

    model_config = ConfigDict(frozen=True)

    name: str
    """Of the file."""
    bytes: int
    """With the weights beside it."""
    inputs: tuple[str, ...]
    outputs: tuple[OutputReport, ...]
    cases: tuple[str, ...]
    """What it was compared on."""
    atol: float
    rtol: float
    scaled: float = 0.0
    """Values may differ by atol + rtol * |expected| + scaled * (the size of their output)."""
    metrics: dict[str, float]
    notes: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    """What does not hold of the file as a whole, in sentences."""

    @property
    def is_right(self) -> bool:
        """Whether nothing was found."""
        return not self.findings and not any(output.findings for output in self.outputs)


class ExportReport(BaseModel):
    """What came of the export of one model."""

    model_config = ConfigDict(frozen=True)

    model_type: str
    feature: str
    format: str
    opset: int | None
    seconds: float
    versions: dict[str, str]
    """Of the libraries that captured and ran the graph."""
    files: tuple[FileReport, ...]

    @property
    def is_right(self) -> bool:
        """Whether nothing was found in any file."""
        return all(file.is_right for file in self.files)
