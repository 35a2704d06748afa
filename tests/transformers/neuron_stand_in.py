"""A stand-in for the SDK of AWS Neuron."""

STAND_IN = """
import torch


def trace(func, example_inputs, **settings):
    shapes = [tuple(example.shape) for example in example_inputs]

    class Compiled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.func = func

        def forward(self, *inputs):
            # These sizes are constants of the trace: others do not fit.
            return self.func(*[x.reshape(s) for x, s in zip(inputs, shapes, strict=True)])

    return torch.jit.trace(Compiled().eval(), example_inputs, check_trace=False)
"""
