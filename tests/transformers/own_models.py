"""Models of transformers with a method of their own, which exports have to refuse or to limit."""

from typing import Any

import torch
import transformers


class OfOneLength(transformers.BertForSequenceClassification):
    """Its trace has the number of tokens as a constant."""

    def forward(self, input_ids: Any, **inputs: Any) -> Any:
        found = super().forward(input_ids, **inputs)
        found.logits = found.logits * float(input_ids.shape[1])
        return found


class OfOneLengthWithPast(transformers.GPT2LMHeadModel):
    def forward(self, input_ids: Any, **inputs: Any) -> Any:
        found = super().forward(input_ids, **inputs)
        found.logits = found.logits * float(input_ids.shape[1])
        return found


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Any) -> Any:
        return 2 * values


class WithOwnGradient(transformers.BertForSequenceClassification):
    def forward(self, input_ids: Any, **inputs: Any) -> Any:
        found = super().forward(input_ids, **inputs)
        found.logits = Doubled.apply(found.logits)
        return found


class WithNothingFilledIn(transformers.PreTrainedModel):
    """It has to be given the mask."""

    config_class = transformers.BertConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embedded = torch.nn.Embedding(config.vocab_size, 8)
        self.post_init()

    def forward(self, input_ids: Any, attention_mask: Any, return_dict: bool = True) -> Any:
        assert return_dict
        found = self.embedded(input_ids) * attention_mask[..., None]
        return transformers.modeling_outputs.BaseModelOutput(last_hidden_state=found)
