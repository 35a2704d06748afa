"""A server of scales, as `partwise serve` begins one, whose serde a command line cannot name.

Where GATE names a named pipe, a model is loaded once somebody has written to that.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from partwise.serving.process import Service, serve
from partwise.serving.served import PredictorOptions
from partwise.serving.server_options import ServerOptions
from tests.serving.scales import Scale, Scales


@dataclass(frozen=True)
class GatedScales(Scales):
    def read(self, file_path: str) -> Scale:
        if gate := os.environ.get("GATE"):
            Path(gate).read_bytes()
        return super().read(file_path)


if __name__ == "__main__":
    store, port, processes = sys.argv[1:4]
    service = Service(
        reference="catalog://sales",
        store=store,
        predictor=PredictorOptions(format="native", serde=GatedScales()),
        options=ServerOptions(port=int(port), processes=int(processes), poll_s=0.05),
    )
    sys.exit(0 if serve(service) else 1)
