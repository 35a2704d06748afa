import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from partwise.engine.options import ExecutionOptions
from partwise.engine.worker.shard_run import run_on
from partwise.engine.works import TrainWork
from partwise.errors import SerdeError
from partwise.models.serdes import PickleSerde, TorchSerde
from partwise.runs.completion import complete_run
from partwise.runs.run import Run
from partwise.testing import SerdeContract
from tests.engine.shards import ShardOfRun, table_of
from tests.lazily import Lazily
from tests.run_maker import ending

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
            TorchSerde(classes=(Local,)).write(Local(), str(path))
        hooked = torch.nn.Linear(1, 1)
        hooked.register_forward_hook(lambda *_: None)
        with pytest.raises(SerdeError, match=r"Linear cannot be written .*factory="):
            self.serde.write(hooked, str(path))

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


def main_script():
    """Return what a script defines, as a child has it: its `__main__` is another one."""
    names = {"__name__": "__main__"}
    exec(Path(__file__).with_name("torch_nets.py").read_text(), names)
    return names


def test_a_class_of_a_script_is_written_where_it_came_by_value(tmp_path, monkeypatch):
    path = tmp_path / "model.pt"
    kind = main_script()["Net"]
    model = kind().eval()
    assert (kind.__module__, kind.__qualname__) == ("__main__", "Net")
    monkeypatch.setattr(sys.modules["__main__"], "Net", "another", raising=False)
    TorchSerde(classes=(kind,)).write(model, str(path))
    assert sys.modules["__main__"].Net == "another"
    monkeypatch.delattr(sys.modules["__main__"], "Net")
    TorchSerde(classes=(kind,)).write(model, str(path))
    assert not hasattr(sys.modules["__main__"], "Net")
    # Another process has the script as a module.
    for classes in ((kind,), (nets.Net,)):
        read = TorchSerde(classes=classes).read(str(path))
        assert type(read) is classes[0]
        with torch.no_grad():
            assert torch.equal(read(nets.ROWS), model(nets.ROWS))
    with pytest.raises(SerdeError, match=r"__main__\.Net\..*PickleSerde"):
        TorchSerde().read(str(path))
    TorchSerde(classes=(nets.Net,)).write(nets.Net(), str(path))
    with pytest.raises(SerdeError, match=r"tests\.models\.torch_nets\.Net\."):
        TorchSerde(classes=(kind,)).read(str(path))


def test_a_run_keeps_modules_of_a_script_by_what_it_was_given(tmp_path):
    names = main_script()
    exec("def fit(data, context):\n    return Net().eval()\n", names)
    given = {"a": None, "b": TorchSerde(classes=(names["Net"],)), "c": PickleSerde()}
    runs = {}
    for name, serde in given.items():
        shard = ShardOfRun(tmp_path / name)
        work = TrainWork(function=names["fit"], serde=serde)
        with shard.assigned(table_of(k=1), work, ExecutionOptions(max_retries=0)) as (
            claim,
            assignment,
        ):
            receipt = run_on(shard.host, assignment, lambda: False)
            complete_run(claim, ending(receipt.partitions))
        shard.host.close()
        runs[name] = Run.open("run", shard.store)
    refusal = runs["a"].partition("k")["error_message"]
    assert refusal.startswith("The model needs what TorchSerde does not load by itself: __main__.N")
    assert type(runs["b"].model("k", serde=TorchSerde(classes=(nets.Net,)))) is nets.Net
    assert runs["c"].model("k", serde=PickleSerde())(nets.ROWS).shape == (4, 4)


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
