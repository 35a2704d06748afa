import os
import pickle

import numpy as np
import pytest

from partwise.errors import SerdeError
from partwise.models.serdes import TorchSerde
from partwise.testing import SerdeContract
from tests.lazily import Lazily

nets, torch = Lazily("tests.models.torch_nets"), Lazily("torch")


class Contract(SerdeContract):
    def predictions(self, model):
        with torch.no_grad():
            return model(nets.ROWS).numpy()


class TestTorchSerde(Contract):
    serde = TorchSerde()

    def model(self):
        torch.manual_seed(0)
        layers = (
            torch.nn.Linear(3, 4),
            torch.nn.BatchNorm1d(4),
            torch.nn.ReLU(),
            torch.nn.TransformerEncoderLayer(4, 2, dim_feedforward=4, batch_first=True),
        )
        return torch.nn.Sequential(*layers).eval()

    def test_classes_not_given_are_named_when_the_model_is_written(self, path):
        with pytest.raises(SerdeError, match=r"torch_nets\.Net\..*classes=\(\.\.\.\)"):
            self.serde.write(nets.Net(), str(path))

    def test_classes_not_given_are_named_when_the_model_is_read(self, path):
        TorchSerde(classes=(nets.Net,)).write(nets.Net(), str(path))
        with pytest.raises(SerdeError, match=r"torch_nets\.Net\..*classes=\(\.\.\.\)"):
            self.serde.read(str(path))

    def test_a_file_with_code_does_not_run_it(self, path):
        class Evil:
            def __reduce__(self):
                return os.mkdir, (str(path.parent / "pwned"),)

        torch.save(Evil(), path)
        with pytest.raises(SerdeError, match="mkdir"):
            self.serde.read(str(path))
        path.write_bytes(pickle.dumps(Evil(), protocol=2))
        with pytest.raises(SerdeError, match="not a model"):
            self.serde.read(str(path))
        assert not (path.parent / "pwned").exists()

    @pytest.mark.parametrize(
        "make", [lambda: {"a": 1}, lambda: torch.zeros(3)], ids=["dict", "tensor"]
    )
    def test_what_is_no_module_is_refused(self, path, make):
        with pytest.raises(SerdeError, match=r"writes a torch\.nn\.Module, not a"):
            self.serde.write(make(), str(path))

    def test_a_module_that_cannot_be_written_whole_is_refused(self, path):
        class Local(torch.nn.Module):
            pass

        with pytest.raises(SerdeError, match=r"Local cannot be written .*factory="):
            self.serde.write(Local(), str(path))

    def test_a_state_is_not_taken_for_a_module(self, path):
        TorchSerde(mode="state", factory=nets.Net).write(nets.Net(), str(path))
        with pytest.raises(SerdeError, match=r'OrderedDict: pass serde=TorchSerde\(mode="state"'):
            self.serde.read(str(path))


class TestTorchSerdeOfClasses(Contract):
    @property
    def serde(self):
        return TorchSerde(classes=(nets.Net,))

    def model(self):
        return nets.Net().eval()


class TestTorchSerdeOfStates(Contract):
    @property
    def serde(self):
        return TorchSerde(mode="state", factory=nets.Net)

    def model(self):
        return nets.Net().eval()

    def test_a_state_is_read_for_prediction(self, path):
        self.serde.write(nets.Net().train(), str(path))
        model = self.serde.read(str(path))
        assert not model.training
        np.testing.assert_array_equal(self.predictions(model), self.predictions(model))

    def test_a_state_that_was_gathered_is_read_as_that_of_its_module(self, path):
        net = nets.Net()
        self.serde.write(dict(net.state_dict()), str(path))
        for name, values in self.serde.read(str(path)).state_dict().items():
            assert torch.equal(values, net.state_dict()[name])

    def test_a_state_of_what_wraps_the_module_is_refused_when_it_is_written(self, path):
        state = {f"module.{name}": values for name, values in nets.Net().state_dict().items()}
        with pytest.raises(SerdeError, match=r"does not fit the Net .*state of the module itself"):
            self.serde.write(state, str(path))

    def test_a_module_is_not_taken_for_a_state(self, path):
        TorchSerde(classes=(nets.Net,)).write(nets.Net(), str(path))
        with pytest.raises(SerdeError, match="Net"):
            self.serde.read(str(path))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "state"}, 'needs factory= with mode="state"'),
        ({"factory": type}, 'none with mode="module"'),
        ({"mode": "weights"}, "not 'weights'"),
        ({"classes": (getattr,)}, "takes classes only, not <built-in function getattr>"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(SerdeError, match=message):
        TorchSerde(**settings)
