"""The labels of the rows of all ranks: how many there are of each."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from partwise.ranks.context import RankContext
from partwise.ranks.gathering import gather_tables
from partwise.ranks.protocols import Share


def global_label_counts(
    context: RankContext, share: Share, labels_of: Callable[[pa.Table], np.ndarray]
) -> dict[float, int]:
    """Count the distinct labels in the rows of all ranks, without null and NaN, ascending.

    Each rank has to call it alike. Meant for classes: of a label that is different in each row,
    every rank would hold all values. `labels_of` gives NaN where there is no label.
    """
    counts = Counter[float]()
    for batch in share.batches():
        labels = labels_of(pa.Table.from_batches([batch]))
        values, rows = np.unique(labels[~np.isnan(labels)], return_counts=True)
        counts.update(dict(zip(values.tolist(), rows.tolist(), strict=True)))
    own = pa.table(
        {
            "label": pa.array(list(counts), pa.float64()),
            "rows": pa.array(list(counts.values()), pa.int64()),
        }
    )
    total = Counter[float]()
    for table in gather_tables(context, own):
        total.update(dict(zip(*table.to_pydict().values(), strict=True)))
    return dict(sorted(total.items()))
