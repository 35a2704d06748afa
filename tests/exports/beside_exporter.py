"""An exporter whose files differ a little from what it says that its models predict."""

from typing import Any

import numpy as np

from partwise.exports.trees.xgboost import XGBoostOnnxExporter
from partwise.models.signature import Feeds, Outputs, Signature


class BesideExporter(XGBoostOnnxExporter):
    def predict(self, model: Any, signature: Signature, feeds: Feeds) -> Outputs:
        found = super().predict(model, signature, feeds)
        return {name: values * np.float32(1 + 2e-6) for name, values in found.items()}


def make() -> BesideExporter:
    return BesideExporter()
