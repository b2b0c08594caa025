"""The chart: rendered here (and by Helm where there is one), and held against Kubernetes' own schemas."""

from __future__ import annotations

import json
import shutil
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from deepprof.commands import prepare_parser
from deepprof.live.service.config import load_config
from tests.deploy.helm_template import Renderer, TemplateError, overlay, parse, render_chart

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "deepprof"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
VERSIONS = ("1.29", "1.34")
DAY_NS = 86_400 * 10**9
CASES: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "confined": {"socket": {"hostPath": ""}},
    "prepared by hand": {"socket": {"prepare": False}, "store": {"hostPath": "/data/deepprof"}},
    "over the network": {
        "tcp": {"enabled": True, "port": 7700},
        "secrets": {"tokens": "deepprof-tokens", "tls": "deepprof-tls", "clientCA": True},
        "metrics": {"port": 7701, "annotations": False},
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "networkPolicy": {"from": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]},
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [],
        "priorityClassName": "monitoring",
        "imagePullSecrets": [{"name": "registry"}],
        "podAnnotations": {"team": 'training: "a"'},
        "affinity": {"nodeAffinity": {}},
        "config": '[history]\nkeep_for = "7d"\n\n[limits]\njobs = 12\n',
    },
    "open": {"networkPolicy": {"enabled": False}},
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    return CASES[request.param]


def documents(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what the chart makes of values, by kind."""
    jsonschema.validate(overlay(DEFAULTS, values), SCHEMA)
    files = render_chart(CHART, values, name="prod", namespace="monitoring")
    made = [yaml.safe_load(text) for file, text in files.items() if file.endswith(".yaml")]
    return {each["kind"]: each for each in made if each is not None}


def pod(values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = documents(values)["DaemonSet"]["spec"]["template"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_every_field(case: dict[str, Any], version: str) -> None:
    for kind, document in documents(case).items():
        if kind != "PodMonitor":  # the operator's own kind
            kubernetes_validate.validate(document, version, strict=True)


def compare_with_helm(case: dict[str, Any], tmp_path: Path) -> None:
    """Assert that helm itself renders a case as the renderer above, which is in for it where it is missing."""
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(case))
    command = ["helm", "template", "prod", CHART, "--namespace", "monitoring", "--values", tmp_path / "values.yaml"]
    told = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout
    made = {each["kind"]: each for each in yaml.safe_load_all(told) if each is not None}
    assert made == documents(case)


if shutil.which("helm") is not None:  # docs/deploy.md states with which one it was compared
    test_helm_renders_the_same = compare_with_helm


def test_everything_stands_in_the_namespace_under_the_releases_name(case: dict[str, Any]) -> None:
    for document in documents(case).values():
        about = document["metadata"]
        assert (about["name"], about["namespace"]) == ("prod-deepprof", "monitoring")
        assert about["labels"]["app.kubernetes.io/instance"] == "prod"


def test_selectors_find_the_pods(case: dict[str, Any]) -> None:
    made, labels = documents(case), pod(case)["metadata"]["labels"]
    selectors = [made["DaemonSet"]["spec"]["selector"]["matchLabels"], made["Service"]["spec"]["selector"]]
    if "NetworkPolicy" in made:
        selectors.append(made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"])
    if "PodMonitor" in made:
        selectors.append(made["PodMonitor"]["spec"]["selector"]["matchLabels"])
    assert all(selector.items() <= labels.items() for selector in selectors)


def test_volumes_are_mounted_and_mounts_are_volumes(case: dict[str, Any]) -> None:
    spec = pod(case)["spec"]
    every = [*spec["containers"], *spec.get("initContainers", [])]
    mounted = {mount["name"] for container in every for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}


def test_the_daemon_meets_the_restricted_pod_security_standard(case: dict[str, Any]) -> None:
    spec = pod(case)["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] >= 10_000
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    own = container["securityContext"]
    assert own == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False  # variables of services would be taken for settings
    confined = not case.get("socket", {}).get("hostPath", "/run") and not case.get("store", {}).get("hostPath")
    assert any("hostPath" in volume for volume in spec["volumes"]) is not confined
    assert ("initContainers" in spec) is (not confined and case.get("socket", {}).get("prepare", True))


def test_the_one_container_with_root_can_do_nothing_but_chown() -> None:
    (prepare,) = pod({})["spec"]["initContainers"]
    assert prepare["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}
    compile(prepare["command"][2], "prepare", "exec")


def test_the_daemon_takes_its_flags_and_its_file(case: dict[str, Any], tmp_path: Path) -> None:
    from deepprof.commands.serve import Serve
    from deepprof.live.service.config import read_flags

    parser = prepare_parser()
    serve = Serve()
    own = type(parser)(prog="deepprof serve")
    serve.prepare_parser(own)
    (container,) = pod(case)["spec"]["containers"]
    command, *flags = container["args"]
    assert command == "serve"
    args = own.parse_args(flags)
    assert args.config == "/etc/deepprof/deepprof.toml"
    (tmp_path / "deepprof.toml").write_text(documents(case)["ConfigMap"]["data"]["deepprof.toml"])
    config = load_config(tmp_path / "deepprof.toml", read_flags(args), {})
    assert config.metrics.exposed
    assert config.metrics.address == f"0.0.0.0:{overlay(DEFAULTS, case)['metrics']['port']}"
    assert config.listen.socket_mode == "0660"
    assert config.store.path.startswith("/var/lib/deepprof/")
    network = case.get("tcp", {}).get("enabled", False)
    assert len(config.listen.addresses) == 1 + network
    assert bool(config.tls.cert and config.tokens.file and config.tls.client_ca) is network
    assert (
        config.history.keep_for == (7 if network else 30) * 86_400 * 10**9 if hasattr(config.history, "keep_for") else 1
    )


def test_probes_and_the_service_ask_the_metrics_port(case: dict[str, Any]) -> None:
    (container,) = pod(case)["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    paths = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    assert {probe["path"] for probe in paths.values()} == {"/healthz", "/readyz"}
    assert all(probe["port"] in ports for probe in paths.values())
    service = documents(case)["Service"]["spec"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    assert [port["port"] for port in service["ports"]] == [ports["metrics"]]


def test_what_the_network_policy_lets_in_is_what_the_pod_listens_on(case: dict[str, Any]) -> None:
    policy = documents(case).get("NetworkPolicy")
    if policy is None:
        assert case["networkPolicy"]["enabled"] is False
        return
    (container,) = pod(case)["spec"]["containers"]
    (rule,) = policy["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == [port["containerPort"] for port in container["ports"]]
    assert rule["from"] == overlay(DEFAULTS, case)["networkPolicy"]["from"]
    assert policy["spec"]["egress"] == []


def test_another_configuration_restarts_the_pods() -> None:
    one, other = (pod({"config": text})["metadata"]["annotations"]["checksum/config"] for text in ("", "# b"))
    assert one != other


def test_the_notes_say_where_the_socket_is() -> None:
    notes = render_chart(CHART, {}, name="prod", namespace="monitoring")["NOTES.txt"]
    assert "unix:/run/deepprof/deepprof.sock" in notes
    assert "{{" not in notes


def test_the_chart_and_the_package_have_one_version() -> None:
    import tomllib

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["version"] == about["appVersion"] == DEFAULTS["image"]["tag"] == version


@pytest.mark.parametrize(
    "wrong",
    [
        {"tcp": {"enabled": True}},  # without secrets
        {"tcp": {"enabled": True}, "secrets": {"tls": "a"}},
        {"sokcet": {}},
        {"socket": {"hostPath": "run"}},
        {"socket": {"hostPath": "/run/../etc"}},
        {"metrics": {"port": "7601"}},
        {"metrics": {"port": 80}},
        {"secrets": {"tokens": "A b"}},
        {"image": {"tag": "a\nb: c"}},
        {"store": {"size": "much"}},
    ],
)
def test_values_that_cannot_be_meant_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(overlay(DEFAULTS, wrong), SCHEMA)


@pytest.mark.parametrize("section", [name for name, value in DEFAULTS.items() if isinstance(value, dict) and value])
def test_unknown_values_are_refused_everywhere(section: str) -> None:
    values = deepcopy(DEFAULTS)
    values[section]["unheard-of"] = [1]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        "{{ .Values.absent }}",
        "{{ lower .Values.a }}",
        "{{ if .Values.a }}",
        "{{ end }}",
        "{{ .Values }}",
        "{{ $x }}",
        "{{",
    ],
)
def test_the_renderer_refuses_what_it_does_not_know(text: str) -> None:
    with pytest.raises(TemplateError):
        Renderer({}).render(parse(text), {"Values": {"a": 1}})


def test_the_renderer_cuts_white_space_as_go_does() -> None:
    template = (
        'a:\n  {{- with .m }}\n  {{- toYaml . | nindent 2 }}\n  {{- end }}\n{{- /* no */ -}}\nb: {{ "x" | quote }}'
    )
    assert Renderer({}).render(parse(template), {"m": {"k": True}}) == 'a:\n  k: trueb: "x"'


@given(st.text())
def test_any_template_is_rendered_or_refused(text: str) -> None:
    if "{{" not in text and "}}" not in text:
        assert Renderer({}).render(parse(text), {}) == text
        return
    try:
        Renderer({}).render(parse(text), {})
    except TemplateError:
        assert "{" in text or "}" in text
