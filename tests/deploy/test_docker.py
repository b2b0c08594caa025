"""The image's recipe and the compose file, as far as they can be proved without a container engine."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepprof.live.service.config import load_config
from deepprof.live.service.config.default_paths import listen_addresses

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "docker"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
PINNED = re.compile(r"[a-z/]+:v?\d+\.\d+(\.\d+)?[a-z-]*")


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions, continued lines joined, comments left out."""
    text = "\n".join(line for line in (FOLDER / "Dockerfile").read_text().splitlines() if not line.startswith("#"))
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def words(name: str) -> list[str]:
    return [rest for found, rest in instructions() if found == name]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `.dockerignore` leaves of the tree."""
    folder = tmp_path_factory.mktemp("context")
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    kept = [rule[1:] for rule in rules if rule.startswith("!")]
    left_out = [rule.removeprefix("**/") for rule in rules[1:] if not rule.startswith("!")]

    def ignore(_: str, names: list[str]) -> set[str]:
        return {name for name in names for pattern in left_out if fnmatch(name, pattern)}

    for name in kept:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, symlinks=True, ignore=ignore)
        else:
            shutil.copy(source, folder / name)
    return folder


def test_the_stages_are_pinned_and_the_last_is_slim() -> None:
    stages = words("FROM")
    assert len(stages) == 2
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim-bookworm( AS build)?", stage) for stage in stages)


def test_it_runs_as_a_numbered_user_without_a_shell() -> None:
    (user,) = words("USER")
    assert re.fullmatch(r"[1-9]\d{4}:[1-9]\d{4}", user)
    assert json.loads(words("ENTRYPOINT")[0]) == ["deepprof"]
    assert json.loads(words("CMD")[0]) == ["serve"]
    last = [name for name, _ in instructions()].index("USER")
    assert not {"RUN", "COPY", "ADD"} & {name for name, _ in instructions()[last:]}


def test_what_is_copied_is_there() -> None:
    here = [shlex.split(rest)[:-1] for rest in words("COPY") if not rest.startswith("--from=")]
    assert here == [["."]]
    assert [rest.split()[0] for rest in words("COPY") if rest.startswith("--from=")] == ["--from=build"]


def test_the_image_asks_the_daemon_by_python_whether_it_is_well() -> None:
    (check,) = words("HEALTHCHECK")
    command = json.loads(check.partition("CMD ")[2])
    assert command[:2] == ["python", "-c"]
    compile(command[2], "healthcheck", "exec")
    config = load_config(None, {}, {})
    assert f"http://{config.metrics.address}/healthz" in command[2]


def test_the_variables_of_the_image_are_settings_of_the_daemon() -> None:
    (given,) = words("ENV")
    variables = dict(word.split("=", 1) for word in shlex.split(given))
    config = load_config(None, {}, {k: v for k, v in variables.items() if k.startswith("DEEPPROF_")})
    (address,) = listen_addresses(config)
    assert address.is_unix
    volumes = json.loads(words("VOLUME")[0])
    assert str(address) == f"unix:{volumes[0]}/deepprof.sock"
    assert (config.store.path, config.listen.socket_mode) == (volumes[1], "0660")
    made = " ".join(words("RUN"))
    assert all(f"-o 10001 -g 10001 -m {mode} {place}" in made for mode, place in zip(("0755", "0700"), volumes))  # noqa: B905


def test_the_context_holds_what_a_wheel_is_built_from(context: Path) -> None:
    """A link is there where what it leads to is there, too."""
    kept = [each.name for each in context.iterdir()]
    command = ["git", "ls-files", "-z", "--", *kept]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = listed.rstrip("\0").split("\0")
    assert len(tracked) > 500
    assert [name for name in tracked if not (context / name).exists()] == []


@pytest.mark.slow  # the context is whole by the test above, and test_packaging.py builds and examines such a wheel
def test_the_wheel_is_built_from_the_context_and_holds_the_tree(context: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, context]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("deepprof-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert any("/_native." in name for name in names) or shutil.which("cc") is None
    held = {name for name in names if name.endswith((".py", ".c", ".binpb", ".json"))}
    tree = {str(path.relative_to(ROOT)) for path in find_sources(ROOT / "deepprof")}
    linked = {
        f"deepprof/{path.relative_to(ROOT)}"
        for name in ("collectors", "metrics", "mining")
        for path in find_sources(ROOT / name)
    }
    assert tree | linked <= held
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel]
    subprocess.run(install, check=True, capture_output=True)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "deepprof", "--help"],
        env={"PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "usage: deepprof" in done.stdout


def find_sources(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.py") if not any(each.is_symlink() for each in path.parents)]


def test_the_recipe_installs_that_wheel_with_the_extras_that_there_are() -> None:
    import tomllib

    (asked,) = re.findall(r"\[([a-z,]+)\]", " ".join(words("RUN")))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(asked.split(",")) <= set(extras)
    assert "service" in asked


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = COMPOSE["services"]
    return found


def test_compose_names_nothing_that_is_not_there() -> None:
    assert set(COMPOSE) <= {"name", "services", "volumes", "networks", "configs", "secrets", "x-hardening"}
    for name, service in services().items():
        assert isinstance(service["image"], str), name
        for volume in service.get("volumes", []):
            source, target, *options = volume.split(":")
            assert target.startswith("/")
            if source.startswith("."):
                assert (FOLDER / source).resolve().exists(), volume
                assert options == ["ro"]
            else:
                assert source in COMPOSE["volumes"]
        for other in service.get("depends_on", ()):
            assert other in services()
        mode = service.get("network_mode", "")
        assert not mode or mode.removeprefix("service:") in services()
        assert not (mode and service.get("ports"))  # who shares a network publishes nothing


def test_compose_builds_from_the_root_and_pins_the_others() -> None:
    build = services()["deepprof"]["build"]
    assert (FOLDER / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
    assert all(PINNED.fullmatch(each["image"]) for name, each in services().items() if name != "deepprof")


def test_compose_opens_nothing_to_other_hosts() -> None:
    ports = [port for service in services().values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_compose_takes_away_what_nobody_needs() -> None:
    for service in services().values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_prometheus_and_the_dashboards_find_each_other() -> None:
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]
    targets = [target for job in scraped for each in job["static_configs"] for target in each["targets"]]
    assert targets == [load_config(None, {}, {}).metrics.address]  # the loopback that both share
    assert services()["deepprof"]["network_mode"] == "service:prometheus"
    sources = yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text())
    assert [each["url"] for each in sources["datasources"]] == ["http://prometheus:9090"]
    boards = yaml.safe_load((ROOT / "deploy/grafana/provisioning/dashboards/deepprof.yml").read_text())
    (place,) = {each["options"]["path"] for each in boards["providers"]}
    mounted = {v.split(":")[1] for v in services()["grafana"]["volumes"] if v.split(":")[0].endswith(".json")}
    assert mounted == {f"{place}/{path.name}" for path in (ROOT / "deploy/grafana").glob("*.json")}
