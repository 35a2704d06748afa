"""What processes and folders hold: memory, files, threads; and the end of processes."""

import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of one process, or of several together."""

    memory_mb: float
    files: int
    threads: int


def figures(processes: list[psutil.Process]) -> Figures:
    """Measure processes; memory is what they do not share."""
    return Figures(
        memory_mb=sum(each.memory_full_info().uss for each in processes) / 1e6,
        files=sum(each.num_fds() for each in processes),
        threads=sum(each.num_threads() for each in processes),
    )


def bytes_below(folder: Path) -> float:
    """Return how many megabytes there are in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def end(process: subprocess.Popen[bytes], patience_s: float = 0.0) -> None:
    """End a process, which may take so long for it, and all that it has started."""
    family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    if patience_s:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
    process.kill()
    process.wait()
    for each in family:
        with suppress(psutil.NoSuchProcess):
            each.kill()
