"""A network of the user's own, and rows for it."""

import torch

torch.set_num_threads(1)
ROWS = torch.linspace(-1, 1, 12).reshape(4, 3)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5))

    def forward(self, rows):
        return self.layers(rows)
