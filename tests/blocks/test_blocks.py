"""Prefect's own demands on every block, and what ours promise beyond them."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import prefect
import pytest
from prefect.blocks.core import Block
from pydantic import SecretStr, TypeAdapter

from partwise.blocks import (
    CudaCluster,
    CustomCluster,
    FilesBlock,
    LocalCluster,
    QueryBlock,
    RemoteCluster,
    StoreBlock,
    TableBlock,
    saved,
)
from partwise.blocks.saved import BLOCKS
from partwise.blocks.saved import CustomCluster as SavedCustomCluster
from partwise.errors import InputError
from partwise.flows.orchestration.saved_blocks import open_store
from partwise.store import signing


def _suite_of_prefect() -> type:
    """Prefect's file by itself: its package imports the whole server, for two seconds."""
    place = Path(prefect.__file__).with_name("testing") / "standard_test_suites" / "blocks.py"
    spec = importlib.util.spec_from_file_location("suite_of_blocks", place)
    spec.loader.exec_module(suite := importlib.util.module_from_spec(spec))
    return suite.BlockStandardTestSuite


# Of the other one, the example makes a value, and loads none.
@pytest.mark.parametrize("block", [each for each in BLOCKS if each is not SavedCustomCluster])
class TestEveryBlock(_suite_of_prefect()):
    @pytest.fixture
    def block(self, request: pytest.FixtureRequest) -> type[Block]:
        return request.param

    def test_has_a_valid_image(self, block: type[Block]) -> None:
        # The suite would fetch it; a commit in the address keeps it what it was.
        assert re.fullmatch(r"https://.*/[0-9a-f]{40}/.*\.png", str(block._logo_url))

    def test_has_a_readable_slug(self, block: type[Block]) -> None:
        assert re.fullmatch(r"[a-z]+-[a-z]+", block._block_type_slug)


def test_secrets_of_a_store_are_saved_but_never_shown(prefect_server):
    store = StoreBlock(
        url="s3://bucket/runs",
        access_key_id=SecretStr("canary-id"),
        secret_access_key=SecretStr("canary-secret"),
    )
    store.save("secrets", overwrite=True)

    loaded = StoreBlock.load("secrets")

    assert loaded.url == "s3://bucket/runs"
    assert loaded.secret_access_key.get_secret_value() == "canary-secret"
    assert "canary" not in repr(loaded) + str(loaded.model_dump())


@pytest.mark.parametrize("given", ["access_key_id", "secret_access_key"])
def test_half_a_pair_of_keys_is_refused(given):
    with pytest.raises(InputError, match=f"{given} was given without .*; give both"):
        StoreBlock(url="s3://bucket", **{given: "AKIA"})


def test_blocks_load_as_what_was_saved(prefect_server):
    for block in (
        LocalCluster(workers=3, memory_limit_bytes=10**9),
        CudaCluster(devices="0,1"),
        RemoteCluster(address="tcp://127.0.0.1:8786", shares_filesystem=True),
    ):
        block.save("kept", overwrite=True)
        loaded = type(block).load("kept")
        assert isinstance(loaded, type(block))
        assert dict(loaded) == dict(block)
        assert loaded.saved_name == block.saved_name == f"{block.block_type.slug}/kept"


def test_a_value_needs_no_prefect():
    code = """
import sys
from partwise import FilesBlock, LocalCluster, StoreBlock
values = [LocalCluster(workers=2), StoreBlock(url="runs"), FilesBlock(paths=["a.csv"])]
assert all(type(value).model_validate(value.model_dump()) == value for value in values)
assert "prefect" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_without_a_field_is_refused():
    with pytest.raises(InputError) as refused:
        LocalCluster(workesr=2)
    assert str(refused.value) == (
        "LocalCluster has settings that it cannot use: there is no workesr (did you mean workers?)."
    )


@pytest.mark.parametrize("kind", [StoreBlock, saved.StoreBlock])
def test_what_cannot_be_used_is_said_in_a_line_and_not_repeated(kind):
    with pytest.raises(InputError) as refused:
        kind(pth="canary")
    said = "StoreBlock has settings that it cannot use: url: Field required"
    # Prefect's blocks take any name.
    unknown = "; there is no pth" if kind is StoreBlock else ""
    assert str(refused.value) == f"{said}{unknown}."
    with pytest.raises(InputError, match=r"cannot use: workers: Input should be a valid integer,"):
        LocalCluster(workers="canary")
    with pytest.raises(InputError) as refused:
        kind(url="runs", access_key_id=["canary"])
    assert "canary" not in str(refused.value)


def test_the_type_that_a_value_is_written_with_tells_it_from_others():
    either = TypeAdapter(LocalCluster | CudaCluster)
    for value in (LocalCluster(), CudaCluster(dashboard_address="127.0.0.1:1")):
        written = value.model_dump(mode="json", include=value.model_fields_set)
        assert type(either.validate_python(written)) is type(value)


def test_signing_keys_of_a_block_stay_in_the_process_that_opens_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setattr(signing, "_of_blocks", {})
    keys = f"2026:{'a1' * 32}"
    block = StoreBlock(url=str(tmp_path), signing_keys=SecretStr(keys))
    assert "a1a1" not in repr(block)
    before = dict(os.environ)
    store = open_store(block)
    assert [key.key_id for key in signing.configured_keys(store)] == ["2026"]
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        *((StoreBlock, "url"), (FilesBlock, "paths"), (QueryBlock, "uri"), (TableBlock, "uri")),
        *((LocalCluster, "workers"), (CudaCluster, "devices"), (RemoteCluster, "address")),
        (CustomCluster, "cluster_class"),
    ],
)
def test_values_without_names_are_refused_in_a_sentence(kind, first) -> None:
    with pytest.raises(TypeError, match=rf"given 2 without one: write {kind.__name__}\({first}="):
        kind("canary", 2)
    with pytest.raises(TypeError) as caught:
        kind("canary")
    assert "canary" not in str(caught.value)


def test_a_class_of_ones_own_is_not_saved():
    class Own(LocalCluster):
        pass

    for keep in (Own().save, Own.load):
        with pytest.raises(TypeError, match=r"Prefect keeps no Own.*save one of StoreBlock"):
            keep("mine")
