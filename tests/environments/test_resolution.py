"""What is asked for, and what comes of it on the driver: versions, or an error that says why."""

import json
import pickle
from pathlib import Path

import pytest

from partwise.environments.environment import Environment, without_passwords
from partwise.environments.requirement_files import read_requested
from partwise.environments.resolution import resolve
from partwise.errors import InputError, PackageError
from tests.environments.wheels import make_wheel


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    make_wheel(folder, "shop", "1.0", requires=["till>=1"])
    make_wheel(folder, "shop", "2.0", requires=["till>=2"])
    for version in ("1.0", "2.0", "3.0"):
        make_wheel(folder, "till", version)
    return folder


@pytest.fixture
def versions(wheels):
    def find(**asked):
        found = resolve(Environment(find_links=(str(wheels),), no_index=True, **asked))
        return {name: version.split()[0] for name, version in found.versions.items()}

    return find


def test_packages_of_all_places_are_resolved_together(versions, tmp_path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "requirements.txt").write_text("# what the shop needs\n-r sub/base.txt\n-c few.txt")
    (tmp_path / "sub" / "base.txt").write_text("shop >= 1.0 \\\n  , < 2  # the old one\n")
    (tmp_path / "few.txt").write_text("till != 3.0\n")
    file = str(tmp_path / "requirements.txt")
    assert versions(requirements_file=file) == {"shop": "1.0", "till": "2.0"}
    (tmp_path / "pins.txt").write_text("till<2\n")
    found = versions(packages=("shop",), constraints_file=str(tmp_path / "pins.txt"))
    assert found == {"shop": "1.0", "till": "1.0"}


def test_an_extra_that_names_others_of_its_project_has_what_these_have(tmp_path) -> None:
    """And no package of the project's name, which an index may have of somebody else."""
    project = tmp_path / "pyproject.toml"
    project.write_text(
        '[project]\nname = "My_sales"\ndependencies = ["shop"]\n'
        "[project.optional-dependencies]\n"
        'all = ["my-sales[More_plots, tables]", "till"]\n'
        'more-plots = ["my.sales[all]", "axes", "my-sales[old]; python_version < \'3\'"]\n'
        'tables = ["my-salesroom"]\nold = ["ancient"]\n'
    )
    asked = read_requested(Environment(pyproject_file=f"{project}[all]"))
    assert asked.requirements == ["shop", "till", "axes", "my-salesroom"]
    with pytest.raises(PackageError, match="has no extra 'none'; it has"):
        read_requested(Environment(pyproject_file=f"{project}[none]"))


def test_a_pyproject_gives_its_dependencies_and_extras(versions, tmp_path) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text(
        "[project]\nname = 'mine'\ndependencies = ['till<3']\n"
        "[project.optional-dependencies]\nshops = ['shop']\n"
    )
    assert versions(pyproject_file=str(project)) == {"till": "2.0"}
    assert versions(pyproject_file=f"{project}[shops]") == {"shop": "2.0", "till": "2.0"}
    with pytest.raises(PackageError, match=r"has no extra 'plots'; it has .'shops'"):
        versions(pyproject_file=f"{project}[plots]")


def test_versions_that_are_preferred_are_taken_where_they_fit(wheels) -> None:
    asked = Environment(packages=("shop",), find_links=(str(wheels),), no_index=True)
    found = resolve(asked, {"till": "2.0", "numpy": "1.0", "shop": "9"})
    assert found.versions["till"].startswith("2.0 ")
    assert found.versions["shop"].startswith("2.0 ")
    assert found.versions.keys() == {"shop", "till"}
    assert found.key == resolve(asked, {"till": "2.0"}).key
    assert found.key != resolve(asked).key


@pytest.mark.parametrize(
    ("packages", "constraints", "words"),
    [
        (("shop>3",), "", r"only shop<=2\.0 is available and you require shop>3"),
        (("nothing-of-the-kind",), "", "nothing-of-the-kind was not found"),
        (("shop==2.0", "till<2"), "", r"shop>=2\.0 depends on till>=2"),
        (("shop==2.0",), "till==1.0", r"till==1\.0"),
        (("shop==2.0",), "till==7", r"till==7"),
    ],
)
def test_the_resolver_says_itself_why_there_is_no_answer(
    versions, packages, constraints, words, tmp_path
) -> None:
    (tmp_path / "constraints.txt").write_text(constraints)
    with pytest.raises(PackageError, match=f"environment of {packages[0]}.* uv says: .*{words}"):
        versions(packages=packages, constraints_file=str(tmp_path / "constraints.txt"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-e .", "line 2: '-e .' is a folder of this machine.*find_links"),
        ("./mine", "'./mine' lies on this machine"),
        ("../dist/mine-1.0-py3-none-any.whl", r"lies on this machine"),
        ("mine-1.0-py3-none-any.whl", r"lies on this machine"),
        ("mine @ file:///srv/mine", "lies on this machine"),
        ("mine @ FILE:///srv/mine", "lies on this machine"),
        ("mine-1.0.tgz", "lies on this machine"),
        pytest.param(f"mine; {5000 * '('}", "is not a requirement: ", id="deep"),
        ("git+file:///srv/mine", "lies on this machine"),
        ("shop >= ", "is not a requirement"),
        ("shop numpy", "is not a requirement"),
        ("--pre", "line 2: --pre is an option that environments do not have"),
        ("\n\n--pre \\", "line 4: --pre is an option that environments do not have"),
        ("-r gone.txt", "gone.txt' cannot be read: No such file"),
        ("--index-url", "line 2: --index-url has no value"),
        ("-c gone.txt", "gone.txt' cannot be read"),
    ],
)
def test_what_workers_cannot_install_is_refused_by_name(line, words, tmp_path) -> None:
    (tmp_path / "requirements.txt").write_text(f"shop\n{line}\n")
    with pytest.raises(PackageError, match=words):
        read_requested(Environment(requirements_file=str(tmp_path / "requirements.txt")))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-e git+https://s3cr3tword@git.example/shop.git#egg=shop", r"without -e, as NAME @ URL"),
        ("-e git+file://s3cr3tword@git.example/shop.git", "is a folder of this machine"),
        ("-r https://s3cr3tword@git.example/base.txt", "is not on this machine: download it"),
        ("-c https://s3cr3tword@git.example/base.txt", "is not on this machine: download it"),
        ("-f https://s3cr3tword@git.example/a,b", "cannot have a comma"),
    ],
)
def test_a_line_that_is_refused_shows_no_token(line, words, tmp_path) -> None:
    (tmp_path / "requirements.txt").write_text(f"{line}\n")
    with pytest.raises(PackageError, match=words) as refused:
        read_requested(Environment(requirements_file=str(tmp_path / "requirements.txt")))
    assert "s3cr3tword" not in str(refused.value)
    assert "***@git.example" in str(refused.value)


def test_a_file_that_begins_with_a_mark_of_its_encoding_is_read(tmp_path):
    for name, text in (("r.txt", "shop==1.0\n-c c.txt\n"), ("c.txt", "till==2.0\n")):
        (tmp_path / name).write_text(text, "utf-8-sig")
    project = tmp_path / "pyproject.toml"
    project.write_text('[project]\ndependencies = ["desk"]\n', "utf-8-sig")
    asked = read_requested(
        Environment(requirements_file=str(tmp_path / "r.txt"), pyproject_file=str(project))
    )
    assert (asked.requirements, asked.constraints) == (["shop==1.0", "desk"], ["till==2.0"])


def test_files_that_include_each_other_end(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("shop\n-r b.txt")
    (tmp_path / "b.txt").write_text("till\n-r a.txt")
    asked = read_requested(Environment(requirements_file=str(tmp_path / "a.txt")))
    assert asked.requirements == ["shop", "till"]
    # By other paths at each turn.
    (tmp_path / "b.txt").write_text(f"till\n-r ../{tmp_path.name}/a.txt")
    asked = read_requested(Environment(requirements_file=str(tmp_path / "a.txt")))
    assert asked.requirements == ["shop", "till"]


def test_a_line_may_have_several_options(tmp_path) -> None:
    one, two = "https://one.example/simple", "https://two.example/a-b"
    (tmp_path / "r.txt").write_text(f"-i {one} --extra-index-url {two} -f wheels\n")
    asked = read_requested(Environment(requirements_file=str(tmp_path / "r.txt")))
    assert (asked.index_url, asked.extra_index_urls) == (one, [two])
    assert asked.find_links == [str(tmp_path / "wheels")]


def test_options_in_files_count(tmp_path, monkeypatch) -> None:
    place = "https://me:${TOKEN}@one.example/simple"
    (tmp_path / "requirements.txt").write_text(
        f"-f wheels\n--extra-index-url={place}\n--no-index\n"
        "-i https://two.example/simple\n--only-binary :all:\n"
        f"shop==1.0 --hash=sha256:{'0' * 64}  # why\nmine @ https://example.org/mine.whl\n"
    )
    path = str(tmp_path / "requirements.txt")
    asked = read_requested(Environment(requirements_file=path), {"TOKEN": "abc"})
    assert asked.find_links == [str(tmp_path / "wheels")]
    assert asked.extra_index_urls == ["https://me:abc@one.example/simple"]
    assert (asked.index_url, asked.no_index) == ("https://two.example/simple", True)
    assert asked.options == ["--only-binary :all:"]
    assert [line.partition(" ")[0] for line in asked.requirements] == ["shop==1.0", "mine"]
    with pytest.raises(PackageError, match=r"is not a requirement"):
        read_requested(Environment(packages=("-r other.txt",)))


@pytest.mark.parametrize("between", [" ", "=", "\t", " = ", "  "])
def test_the_address_of_an_option_keeps_all_of_its_signs(between, tmp_path) -> None:
    address = "https://aws:abc==@one.example/simple?a=b&sig=abc="
    (tmp_path / "r.txt").write_text(
        f"--index-url{between}{address}\n--extra-index-url{between}{address}\n"
        f"-f{between}{address}\n--no-index\n"
    )
    asked = read_requested(Environment(requirements_file=str(tmp_path / "r.txt")))
    assert (asked.index_url, asked.extra_index_urls) == (address, [address])
    assert (asked.find_links, asked.no_index) == ([address], True)
    (tmp_path / "r.txt").write_text(f"-i{address}\n")
    assert read_requested(Environment(requirements_file=str(tmp_path / "r.txt"))).index_url == (
        address
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dependencies = [", "is not TOML"),
        pytest.param(f"dependencies = {5000 * '['}", "is not TOML", id="deep"),
        ("[project]\nname = 'a'\ndynamic = ['dependencies']", "build backend"),
        ("[tool.poetry.dependencies]\npandas = '^2'", "has no .project., which is where"),
        ("project = 'mine'", "project is 'mine', and has to be a table"),
        ("[project]\ndependencies = 'pandas'", "dependencies is 'pandas', and has to be a list"),
        ("[project]\ndependencies = [1]", r"dependencies is .1., and has to be a list of texts"),
        ("[project]\nrequires-python = '^3.11'", "requires-python is '.3.11', and has to be such"),
        ("[project]\nrequires-python = 3", "requires-python is 3, and has to be such as"),
        ("[project]\noptional-dependencies = ['a']", "optional-dependencies is .'a'., and has to"),
        ("[project.optional-dependencies]\nextra = 'abc'", "extra is 'abc', and has to be a list"),
        ("[project]\n[tool]\nuv = 'x'", "uv is 'x', and has to be a table"),
        ("[project]\nname = 'a'\nrequires-python = '>=4'", "needs Python >=4"),
        (
            "[project]\ndependencies = ['My_shop']\n[tool.uv.sources]\nmy-shop = {path = 'x'}",
            r"takes My_shop from a place of its own",
        ),
    ],
)
def test_a_pyproject_that_leaves_things_open_is_refused(text, words, tmp_path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    place = f"{tmp_path / 'pyproject.toml'}{'[extra]' if 'extra =' in text else ''}"
    with pytest.raises(PackageError, match=words):
        read_requested(Environment(pyproject_file=place))


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(PackageError, match="cannot be read: it is not text"):
        read_requested(Environment(requirements_file="a\0b"))


def test_a_rebuilt_wheel_of_the_same_version_is_another_one(wheels, tmp_path) -> None:
    asked = Environment(packages=("mine",), find_links=(str(tmp_path),), no_index=True)
    make_wheel(tmp_path, "mine", "1.0")
    first = resolve(asked)
    make_wheel(tmp_path, "mine", "1.0", "changed = True")
    second = resolve(asked, {"mine": "1.0"})
    assert first.versions != second.versions
    assert first.key != second.key


# Nobody answers there.
SECRET = "http://carol:s3cr%40t@127.0.0.1:9/simple"
TOKEN = "http://ghp_token@127.0.0.1:9/simple?api_key=k3y"


@pytest.mark.parametrize("address", [SECRET, TOKEN])
def test_a_password_is_in_no_text_of_an_environment(address, tmp_path) -> None:
    asked = Environment(packages=("shop",), index_url=address, extra_index_urls=(address,))
    (tmp_path / "r.txt").write_text(f"--extra-index-url {address}\nshop @ {address}/shop.whl\n")
    by_file = Environment(requirements_file=str(tmp_path / "r.txt"))
    by_package = Environment(packages=(f"shop @ {address}/shop.whl",))
    shown = []
    for each in (asked, by_file, by_package):
        shown += [repr(each), str(each), json.dumps(each.model_dump(mode="json"))]
        with pytest.raises(PackageError) as caught:
            resolve(each)
        shown += [str(caught.value), repr(caught.value.__cause__), repr(caught.value.__context__)]
    with pytest.raises(InputError) as refused:
        Environment(index_url=address, user_managed=True)
    shown.append(str(refused.value))
    for text in shown:
        assert not [word for word in ("s3cr", "ghp_token", "k3y") if word in text], text
    assert asked.has_password
    assert by_package.has_password
    assert pickle.loads(pickle.dumps(asked)).index_url == address


@pytest.mark.parametrize(
    "address", ["https://wheels.example/simple", "/srv/wheels", "file:///srv/wheels/", "wheels"]
)
def test_an_address_without_a_password_stays_as_it_is(address) -> None:
    assert without_passwords(address) == address
    assert not Environment(packages=("a",), find_links=(address,)).has_password


@pytest.mark.parametrize(
    "asked",
    [
        {"user_managed": True, "packages": ["shop"]},
        {"conda_file": "a.yml", "requirements_file": "a.txt"},
        {"conda_file": "a.yml", "user_managed": True},
        {"find_links": ["wheels"]},
        {"constraints_file": "a.txt"},
    ],
)
def test_what_does_not_go_together_is_refused(asked) -> None:
    with pytest.raises(InputError, match=r"go together|no package"):
        Environment(**asked)


def test_what_was_written_down_is_read_back() -> None:
    asked = Environment(packages=("shop", "till<3"), find_links=("/srv",), no_index=True)
    written = asked.model_dump(mode="json")
    assert Environment.model_validate(written) == asked
    assert Environment.model_validate(Environment().model_dump(mode="json")) == Environment()
