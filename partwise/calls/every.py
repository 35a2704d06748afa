"""All kinds of calls that are written down, by the name of their flow."""

from collections.abc import Mapping
from types import MappingProxyType

from partwise.calls.call import Call
from partwise.calls.exports import ExportCall, TransformersCall, ValidateCall
from partwise.calls.one_model import DistributedCall, TuneCall
from partwise.calls.partitions import (
    CompareCall,
    EvaluateCall,
    InferCall,
    MapCall,
    PortfolioCall,
    TrainCall,
)
from partwise.calls.script import ScriptCall

CALLS: Mapping[str, type[Call]] = MappingProxyType(
    {
        call.flow(): call
        for call in (
            *(TrainCall, InferCall, CompareCall, EvaluateCall, MapCall, PortfolioCall),
            *(DistributedCall, TuneCall),
            *(ExportCall, ValidateCall, TransformersCall, ScriptCall),
        )
    }
)
