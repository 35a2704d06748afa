"""Memory of GPUs: whether a failure is for want of it, and what a process need not hold on to.

It is no memory of the process, so nobody outside sees which one takes how much, and nothing but the
libraries themselves keeps a process within its part.
"""

import sys
from contextlib import suppress

from partwise.engine.failures import Failure

_SPENT = (
    *("CUDA out of memory", "CUDA error: out of memory", "cudaErrorMemoryAllocation"),
    *("CUDA_ERROR_OUT_OF_MEMORY", "RESOURCE_EXHAUSTED: Out of memory", "_STATUS_ALLOC_FAILED"),
    "cupy.cuda.memory.OutOfMemoryError",
)
"""As torch, CUDA's runtime (XGBoost), its driver (Numba), JAX, cuBLAS and CuPy say it."""
_OF_GPUS = ("cuda", "cudnn", "cublas", "nvidia")


def lacks_gpu_memory(failure: Failure) -> bool:
    """Whether a failure says that a GPU has no memory left."""
    return any(words in failure.summary for words in _SPENT)


def concerns_gpu(failure: Failure) -> bool:
    """Whether a failure speaks of a GPU, which a process may be unable to use from then on."""
    text = failure.summary.lower()
    return lacks_gpu_memory(failure) or any(word in text for word in _OF_GPUS)


def free_gpu_memory() -> None:
    """Give back what libraries keep of a GPU's memory for later: neighbours may have need of it."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    # One that is still being imported, or another one of the name, lacks these; a GPU may fail.
    with suppress(Exception):
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
    with suppress(Exception):
        if cupy is not None:
            cupy.get_default_memory_pool().free_all_blocks()
