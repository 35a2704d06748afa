"""Whether a server may be named, beside what Prefect's own settings find."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prefect.settings import Settings

from partwise.flows.orchestration.direct import may_name_server

URL = "http://127.0.0.1:9/api"
CASES = st.sampled_from([str.upper, str.lower, str.title])
TABLES = st.sampled_from(
    ['[{}api]\nurl = "{}"', '[{}]\napi.url = "{}"', "[ {}api ]\n\"url\" = '{}'", '{}api.url = "{}"']
)
PROFILES = st.sampled_from(["mine", "ephemeral", "local", ""])
PLACES = st.sampled_from(["variable", ".env", "prefect.toml", "pyproject.toml", "profile", "none"])


def write(place: str, case, table: str, profile: str) -> dict[str, str]:
    """Name a server in one place, in one of the ways to write it; return the variables."""
    name = case("PREFECT_API_URL")
    match place:
        case "variable":
            return {name: URL}
        case ".env":
            Path(".env").write_text(f"{name}={URL}\n")
        case "prefect.toml" | "pyproject.toml":
            prefix = "tool.prefect." if place == "pyproject.toml" else ""
            text = table.format(prefix, URL).replace(".]", "]").replace("[]\n", "")
            Path(place).write_text(text)
        case "profile":
            home = Path("home")
            home.mkdir()
            text = f'active = "{profile}"\n[profiles.mine]\nPREFECT_API_URL = "{URL}"\n'
            (home / "profiles.toml").write_text(text)
    return {}


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=PLACES, case=CASES, table=TABLES, profile=PROFILES)
def test_no_server_that_prefect_finds_is_overlooked(tmp_path_factory, place, case, table, profile):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("project"))
        for name in [name for name in os.environ if name.upper().startswith("PREFECT")]:
            patch.delenv(name)
        patch.setenv("PREFECT_HOME", str(Path("home").absolute()))
        for name, value in write(place, case, table, profile).items():
            patch.setenv(name, value)
        if place == "none":
            assert not may_name_server()
        # Prefect reads all of its sources again.
        elif Settings().api.url:
            assert may_name_server()
