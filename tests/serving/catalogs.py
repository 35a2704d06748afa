"""Catalogs whose models multiply the column "price": for servers and their pages."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from partwise.catalogs.catalog import Catalog
from partwise.models.serdes import serde_name
from partwise.serving.app import make_app
from partwise.serving.predictor import Predictor
from partwise.serving.served import PredictorOptions
from partwise.serving.server_options import ServerOptions
from partwise.store.store import Store
from tests.one_catalog import promote
from tests.run_maker import TEXTS, RunMaker
from tests.serving.loopback import listening
from tests.serving.scales import Scales

API_KEY = "0123456789abcdef-of-tests"


def promote_scales(
    store: Store, run_id: str, values: Mapping[Any, float], keys: pa.Schema = TEXTS
) -> Catalog:
    """Make a run whose keys have the given numbers, and a version of "sales" with all of them."""
    maker = RunMaker(store, run_id, "train", serde_name(Scales()), keys=keys)
    maker.begin()
    maker.commit(*((key, "DONE", value) for key, value in values.items()))
    maker.end(len(values))
    return promote(store, run_id)


def predictor_of(store: Store, reference: str = "catalog://sales", **options: Any) -> Predictor:
    options = {"format": "native", "serde": Scales(), **options}
    return Predictor.open(reference, store, PredictorOptions(**options))


@contextmanager
def serving(store: Store, reference: str = "catalog://sales", **options: Any) -> Iterator[str]:
    """Serve models of a store at the URL that is given."""
    predictor = predictor_of(store, reference)
    with listening(make_app(predictor, ServerOptions(access_log=False, **options))) as url:
        yield url
