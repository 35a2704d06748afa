"""A change that changes what a function returns changes its fingerprint, or makes it unknown."""

import decimal
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from partwise.fingerprints.functions import CodeFingerprint, code_fingerprint
from partwise.fingerprints.libraries import library_version

Load = Callable[..., types.ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Import the package `mine` as texts say, in place of the one before."""
    count = 0

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] in ("mine", "lib")]:
            del sys.modules[name]

    def load(text: str, **others: str) -> types.ModuleType:
        nonlocal count
        count += 1
        folder = tmp_path / str(count) / "mine"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        for name, content in {"models": text, **others}.items():
            (folder / f"{name}.py").write_text(content)
        forget()
        importlib.invalidate_caches()
        monkeypatch.syspath_prepend(str(folder.parent))
        return importlib.import_module("mine.models")

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    # What modules set on import ends with the test.
    with decimal.localcontext(), np.errstate():
        yield load
    forget()


def found(module: types.ModuleType) -> CodeFingerprint:
    return code_fingerprint(module.fit)


FIT = "\ndef fit(data, context):\n    return "
CHANGES = {
    "order of a dict": (
        "D = {'a': 1, 'b': 2}" + FIT + "list(D)",
        "'a': 1, 'b': 2",
        "'b': 2, 'a': 1",
    ),
    "order of an OrderedDict": (
        "from collections import OrderedDict\nD = OrderedDict(a=1, b=2)" + FIT + "list(D)",
        "a=1, b=2",
        "b=2, a=1",
    ),
    "order of the fields of a dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass P:\n    a: int\n    b: int"
        + FIT
        + "P(1, 2)",
        "a: int\n    b: int",
        "b: int\n    a: int",
    ),
    "order of the members of an enum": (
        "import enum\nclass E(enum.Enum):\n    A = 1\n    B = 2" + FIT + "list(E)",
        "A = 1\n    B = 2",
        "B = 2\n    A = 1",
    ),
    "an ordered categorical": (
        "import pandas as pd\nC = pd.Categorical(['a'], ['a', 'b'], ordered=True)" + FIT + "max(C)",
        "ordered=True",
        "ordered=False",
    ),
    "eq of a dataclass": (
        "import dataclasses\n@dataclasses.dataclass(eq=True)\nclass P:\n    a: int = 1"
        + FIT
        + "P() == P()",
        "eq=True",
        "eq=False",
    ),
    "frozen of a dataclass": (
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass P:\n    a: int = 1"
        + FIT
        + "vars(P())",
        "frozen=True",
        "frozen=False",
    ),
    "order of a dataclass": (
        "import dataclasses\n@dataclasses.dataclass(order=True)\nclass P:\n    a: int = 1"
        + FIT
        + "max([P(1), P(2)])",
        "order=True",
        "order=False",
    ),
    "compare of a field": (
        "import dataclasses\n@dataclasses.dataclass\nclass P:\n"
        "    a: int = dataclasses.field(default=1, compare=True)" + FIT + "P(1) == P(2)",
        "compare=True",
        "compare=False",
    ),
    "a bound in Field": (
        "from pydantic import BaseModel, Field\nclass M(BaseModel):\n    a: int = Field(1, le=9)"
        + FIT
        + "M(a=8)",
        "le=9",
        "le=7",
    ),
    "a bound in Annotated": (
        "from typing import Annotated\nfrom pydantic import BaseModel, Field\n"
        "class M(BaseModel):\n    a: Annotated[int, Field(le=9)] = 1" + FIT + "M(a=8)",
        "le=9",
        "le=7",
    ),
    "a validator in Annotated": (
        "from typing import Annotated\nfrom pydantic import AfterValidator, BaseModel\n"
        "def check(value):\n    return value + 1\n"
        "class M(BaseModel):\n    a: Annotated[int, AfterValidator(check)]" + FIT + "M(a=8)",
        "value + 1",
        "value + 2",
    ),
    "the field of a validator": (
        "from pydantic import BaseModel, field_validator\nclass M(BaseModel):\n"
        "    a: int\n    b: int\n    @field_validator('a')\n    @classmethod\n"
        "    def check(cls, value):\n        return value + 1" + FIT + "M(a=1, b=1)",
        "field_validator('a')",
        "field_validator('b')",
    ),
    "the type of a field of a model": (
        "from pydantic import BaseModel\nclass M(BaseModel):\n    a: int" + FIT + "M(a='1')",
        "a: int",
        "a: str",
    ),
    "the config of a model": (
        "from pydantic import BaseModel\nclass M(BaseModel, extra='allow'):\n    a: int = 1"
        + FIT
        + "M(b=2)",
        "extra='allow'",
        "extra='ignore'",
    ),
    "a special attribute of a class": (
        "class A:\n    __array_priority__ = 1" + FIT + "A()",
        "= 1",
        "= 2",
    ),
    "_missing_ of an enum": (
        "import enum\nclass E(enum.Enum):\n    A = 1\n    @classmethod\n"
        "    def _missing_(cls, value):\n        return cls.A if value > 3 else None"
        + FIT
        + "E(4)",
        "value > 3",
        "value > 4",
    ),
    "globals()": (
        "def help_a():\n    return 1" + FIT + "globals()['help_' + 'a']()",
        "return 1",
        "return 2",
    ),
    "sys.modules": (
        "import sys\ndef help_a():\n    return 1"
        + FIT
        + "getattr(sys.modules[__name__], 'help_' + 'a')()",
        "return 1",
        "return 2",
    ),
    "__subclasses__": (
        "class Base:\n    pass\nclass One(Base):\n    value = 1"
        + FIT
        + "[c.value for c in Base.__subclasses__()]",
        "value = 1",
        "value = 2",
    ),
    "eval": ("def help_a():\n    return 1" + FIT + "eval('help_' + 'a()')", "return 1", "return 2"),
    "exec under another name": (
        (
            "from builtins import exec as run\ndef help_a():\n    return 1\n"
            "def fit(data, context):\n    space = {}\n    run('from mine.models import *', space)\n"
            "    return space['help_' + 'a']()"
        ),
        "return 1",
        "return 2",
    ),
    "__globals__": (
        "def help_a():\n    return 1" + FIT + "fit.__globals__['help_' + 'a']()",
        "return 1",
        "return 2",
    ),
    "a setting on import": (
        "import decimal\ndecimal.getcontext().prec = 5" + FIT + "decimal.Decimal(1) / 3",
        "= 5",
        "= 6",
    ),
    "a setting whose answer is kept": (
        "import numpy as np\nbefore = np.seterr(all='ignore')" + FIT + "np.float64(1) / 0",
        "'ignore'",
        "'raise'",
    ),
    "a setting in a block": (
        "import decimal\ntry:\n    decimal.getcontext().prec = 5\nexcept ImportError:\n    pass"
        + FIT
        + "decimal.Decimal(1) / 3",
        "= 5",
        "= 6",
    ),
    "a setting by a function": (
        "import decimal\ndef setup():\n    decimal.getcontext().prec = 5\nsetup()"
        + FIT
        + "decimal.Decimal(1) / 3",
        "= 5",
        "= 6",
    ),
    "an attribute of another package": (
        "import statistics\ndef middle(values):\n    return 1\nstatistics.center = middle"
        + FIT
        + "statistics.center([2])",
        "return 1",
        "return 2",
    ),
    "what a decorator of another package keeps": (
        "import statistics\nstatistics.keep = lambda name: lambda f: setattr(statistics, name, f)\n"
        "@statistics.keep('center')\ndef middle(values):\n    return 1"
        + FIT
        + "statistics.center([2])",
        "return 1",
        "return 2",
    ),
    "a docstring that is read": (
        'def help_a():\n    """One."""' + FIT + "help_a.__doc__",
        "One.",
        "Two.",
    ),
    "the docstring of the module": ('"""One."""' + FIT + "__doc__", "One.", "Two."),
    "annotations that are read": (
        "def help_a(value: int):\n    pass" + FIT + "help_a.__annotations__",
        "int",
        "str",
    ),
    "annotations by inspect": (
        "import inspect\ndef help_a(value: int):\n    pass"
        + FIT
        + "str(inspect.signature(help_a))",
        "int",
        "str",
    ),
    "annotations by typing": (
        "from typing import get_type_hints\ndef help_a(value: int):\n    pass"
        + FIT
        + "get_type_hints(help_a)",
        "value: int",
        "value: str",
    ),
    "the order of methods that is read": (
        "class A:\n    def one(self): ...\n    def two(self): ..." + FIT + "list(vars(A))",
        "def one(self): ...\n    def two",
        "def two(self): ...\n    def one",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_the_result_changes_the_fingerprint(load: Load, name: str) -> None:
    text, old, new = CHANGES[name]
    assert text.count(old) == 1
    before = found(load(text))
    assert before.unknown == ()
    assert found(load(f"\n# Moved.\n{text}" if '"""One' not in text else text)) == before
    after = found(load(text.replace(old, new)))
    assert after.digest is None or after.digest != before.digest


OTHER = "def help_a():\n    return 1\n"
REACHED = {
    "import_module": (
        "import importlib" + FIT + "importlib.import_module('mine.other').help_a()",
        OTHER,
    ),
    "relative import_module": (
        "from importlib import import_module"
        + FIT
        + "import_module('.other', __package__).help_a()",
        OTHER,
    ),
    "__import__": ("" + FIT + "__import__('mine.other').other.help_a()", OTHER),
    "getattr of a computed name": (
        "from mine import other" + FIT + "getattr(other, 'help_' + 'a')()",
        OTHER,
    ),
    "__subclasses__": (
        "from mine import other\nfrom mine.base import Base"
        + FIT
        + "[c.value for c in Base.__subclasses__()]",
        "from mine.base import Base\nclass One(Base):\n    value = 1\n",
    ),
    "a setting of an imported module": (
        "import decimal\nfrom mine import other" + FIT + "decimal.Decimal(1) / 3",
        "import decimal\ndecimal.getcontext().prec = 1\n",
    ),
    "a registry of another package": (
        "import statistics\nimport mine.other" + FIT + "statistics.registry['a']()",
        (
            "import statistics\nstatistics.registry = {}\ndef register(function):\n"
            "    statistics.registry['a'] = function\n@register\ndef help_a():\n    return 1\n"
        ),
    ),
}


@pytest.mark.parametrize("name", REACHED)
def test_other_modules_that_are_reached_count(load: Load, name: str) -> None:
    text, other = REACHED[name]
    base = "class Base:\n    pass\n"
    before = found(load(text, other=other, base=base))
    assert before.unknown == ()
    assert found(load(text, other=f"# Moved.\n\n{other}", base=base)) == before
    after = found(load(text, other=other.replace("1", "2"), base=base))
    assert after.digest != before.digest


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "import importlib\nNAME = 'mine.other'" + FIT + "importlib.import_module(NAME)",
            "mine.models.fit: imports a module of a computed name",
        ),
        (
            "import importlib" + FIT + "importlib.import_module('mine.' + context.key)",
            "mine.models.fit: imports a module of a computed name",
        ),
        (
            "from importlib import import_module as load" + FIT + "load(context.key)",
            "mine.models.fit: imports a module of a computed name",
        ),
        (
            FIT + "__import__(context.key)",
            "mine.models.fit: imports a module of a computed name",
        ),
        (
            "import runpy" + FIT + "runpy.run_path('more.py')",
            "mine.models.fit: runs code from a file (run_path)",
        ),
        (
            "import inspect" + FIT + "inspect.getsource(fit)",
            "mine.models.fit: reads the text of code (getsource)",
        ),
    ],
)
def test_what_nobody_can_tell_is_unknown(load: Load, text: str, why: str) -> None:
    assert found(load(text, other=OTHER)).unknown == (why,)


def test_annotations_that_a_decorator_of_another_package_may_read_count(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "lib.py").write_text(
        "def converted(function):\n"
        "    kind = function.__annotations__['value']\n"
        "    return lambda value: function(kind(value))\n"
    )
    monkeypatch.syspath_prepend(str(installed))
    text = "from lib import converted\n@converted\ndef help_a(value: int):\n    return value"
    text += FIT + "help_a('1')"
    before = found(load(text))
    assert before.digest is not None
    assert before == found(load(text))
    assert before != found(load(text.replace("value: int", "value: float")))


FUTURE = "from __future__ import annotations\n"
NOTED = """
import dataclasses
from typing import NamedTuple, Optional

from pydantic import BaseModel


class Window(NamedTuple):
    days: int = 28


@dataclasses.dataclass
class Options:
    rounds: int = 1
    more: Optional["Options"] = None


class Trainer(BaseModel):
    label: str = "y"
    options: list[int] = []


def helper(value: int, *more: float, key: "str" = "a") -> dict[str, int]:
    total: float = 0.0
    return {key: value}


def fit(data: object, context: object) -> tuple[int, ...]:
    def inner(value: int, offset: float = 1.5) -> float:
        return value + offset + len(str(context))

    try:
        for item in [1, 2]:
            if item:
                nested = lambda value: value
                def deeper(value: Optional[int] = None) -> Optional[list["int"]]:
                    return nested(value) or item
                deeper()
    except ValueError:
        return ()
    return Window(), Options(), Trainer(), helper(1), inner(2)
"""


def test_annotations_as_text_are_no_change(load: Load) -> None:
    before = found(load(NOTED))
    assert before.unknown == ()
    assert found(load(FUTURE + NOTED)) == before


def test_an_annotated_function_is_the_last_that_a_factory_makes(load: Load) -> None:
    """More instructions make its annotations than follow them."""
    text = (
        "def make(factor: int, names: list[str], path: str) -> object:\n"
        "    def inner(first: int, second: dict[str, int], third: list[str]) -> object:\n"
        "        return factor, names\n"
        "    return inner\n" + FIT + "make(1, [], '')"
    )
    before = found(load(text))
    assert before.unknown == ()
    assert found(load(text.replace("third: list[str]", "third"))) == before
    assert found(load(text.replace("return factor", "return -factor"))) != before


def test_annotations_as_text_are_a_change_where_they_are_read(load: Load) -> None:
    text = NOTED.replace("return ()", "return helper.__annotations__")
    assert found(load(FUTURE + text)) != found(load(text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value: int, *more: float", "value: float, *more: int"),
        ("def inner(value: int, offset: float = 1.5) -> float", "def inner(value, offset=1.5)"),
        ("total: float = 0.0", "total = 0.0"),
    ],
)
def test_annotations_of_functions_do_not_count(load: Load, old: str, new: str) -> None:
    assert found(load(NOTED.replace(old, new))) == found(load(NOTED))


def test_what_a_module_does_not_do_on_import_does_not_count(load: Load) -> None:
    text = (
        "import logging\nimport decimal\nfrom typing import TYPE_CHECKING\n"
        "logger = logging.getLogger(__name__)\ndecimal.getcontext().prec = 5\n"
        "UNUSED = [1, 2]\nif TYPE_CHECKING:\n    import mine.nothing\n"
        "if __name__ == '__main__':\n    print(1)\n" + FIT + "decimal.Decimal(1) / 3"
    )
    before = found(load(text))
    assert before.unknown == ()
    for old, new in [
        ("UNUSED = [1, 2]", "UNUSED = [1, 3]"),
        ("print(1)", "print(2)"),
        ("mine.nothing", "mine.something"),
    ]:
        assert found(load(text.replace(old, new))) == before


def test_a_flow_in_the_module_does_not_count(load: Load) -> None:
    text = (
        "def flow(function):\n    return function\n"
        "class Lib:\n    flow = staticmethod(lambda function: function)\n" + FIT + "1\n"
    )
    flow = "\nfrom prefect import flow\n@flow\ndef nightly(on='error'):\n    return 1\n"
    plain = FIT + "1\n"
    assert found(load(plain + flow)) == found(load(plain + flow.replace("error", "resume")))
    # A decorator of one's own may call what it decorates.
    own = text + "\n@flow\ndef nightly():\n    return 2\n"
    assert found(load(own)) != found(load(own.replace("return 2", "return 3")))


class TestLibraries:
    """The versions of what the code imports count."""

    @pytest.fixture
    def version(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
        def version(library: str, number: str) -> None:
            def told(module: str) -> str:
                return number if module == library else library_version(module)

            monkeypatch.setattr("partwise.fingerprints.code_walk.library_version", told)

        return version

    @pytest.mark.parametrize(
        "text",
        [
            FIT + "train()\n\ndef train():\n    import lightgbm\n    return lightgbm",
            "import lightgbm as gbm" + FIT + "gbm.train()",
            "from lightgbm import Dataset" + FIT + "Dataset([])",
            "import importlib" + FIT + "importlib.import_module('lightgbm')",
            "from mine import other" + FIT + "other",
            "from mine.other import train" + FIT + "train()",
        ],
    )
    def test_another_version_is_a_change(self, load: Load, version, text: str) -> None:
        other = "import lightgbm\n\ndef train():\n    return lightgbm.train\n"
        version("lightgbm", "4.5.0")
        before = found(load(text, other=other))
        version("numpy", "1.0")
        assert found(load(text, other=other)).parts["library lightgbm"] != "4.5.0"
        version("lightgbm", "4.6.0")
        after = found(load(text, other=other))
        assert before.parts["library lightgbm"] == "4.5.0"
        assert after.parts["library lightgbm"] == "4.6.0"
        assert after.digest != before.digest

    def test_what_is_not_imported_does_not_count(self, load: Load) -> None:
        names = found(load("import json" + FIT + "json.dumps(1)")).parts
        assert not [name for name in names if name.startswith("library")]
        assert "library yaml" not in found(load(FIT + "1", other="import yaml")).parts

    def test_partwise_itself_does_not_count(self, load: Load) -> None:
        parts = found(load("from partwise import Result" + FIT + "Result(1)")).parts
        assert "library partwise" not in parts

    def test_a_version_is_that_of_the_package_that_has_the_module(self) -> None:
        from importlib.metadata import packages_distributions, version

        assert library_version("yaml") == version("PyYAML")
        assert library_version("sklearn") == version("scikit-learn")
        assert library_version("nowhere_to_be_found") == "unknown"
        # A module of each package, as the standard library finds it, at ten times the cost.
        known = packages_distributions()
        for module in ("numpy", "lightgbm", "xgboost", "pandas", "google", "nvidia", "mpi4py"):
            names = sorted(set(known.get(module, ())))
            if names:
                assert library_version(module) == ", ".join(map(version, names))


def test_a_package_that_is_installed_is_followed_when_the_function_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from partwise.fingerprints.functions import arguments_fingerprint

    folder = tmp_path / "site-packages" / "installed_models"
    folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(folder.parent))
    digests = []
    for number in "12":
        (folder / "__init__.py").write_text(f"def fit(data, context):\n    return {number}\n")
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        importlib.invalidate_caches()
        module = importlib.import_module("installed_models")
        digests.append(arguments_fingerprint({"trainer=": module.fit, "seed=": 0}).digest)
        del sys.modules["installed_models"]
    assert digests[0] != digests[1]
