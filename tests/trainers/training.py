"""One partition, trained and predicted as a run does it."""

from partwise.connector.context import MemoryLink, PartitionContext
from partwise.connector.data_connector import DataConnector
from partwise.trainers import default_predict


def train(trainer, table, seed=3, **params):
    trainer.check(table.schema, frozenset(), ())
    context = PartitionContext(key="s", seed=seed, link=MemoryLink(), params=params)
    return trainer(DataConnector(table), context)


def predict(model, table):
    return default_predict(DataConnector(table), model, PartitionContext())
