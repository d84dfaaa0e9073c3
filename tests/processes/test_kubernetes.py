"""Resources that packaging/kubernetes and packaging/helm render: does the node accept its part, and do limits, times
and probes fit the node's own?"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tomllib
import yaml
from kubernetes_tools import Resource, checker, documents, program, render
from node import ROOT, GiB, MiB, free_ports, node_environment, run_cenote

KUSTOMIZE = ROOT / "packaging" / "kubernetes"
CHART = ROOT / "packaging" / "helm" / "cenote"
COMPONENTS = sorted(each.name for each in (KUSTOMIZE / "components").iterdir())
KUBERNETES = "1.31"  # whose schema resources are compared with

SOME_CLUSTER = ("cluster.enabled=true", "cluster.existingSecret=shared", "cluster.trustedNetwork=true")
SOME_MANAGER = ("manager.enabled=true", "manager.trustedNetwork=true")
VALUES: dict[str, tuple[str, ...]] = {
    "as it is": (),
    "cluster": SOME_CLUSTER,
    "cluster that drains": (*SOME_CLUSTER, "cluster.drainSeconds=40"),
    "cluster on the host's network": (*SOME_CLUSTER, "cluster.hostNetwork=true", "cluster.port=17000"),
    "two disks": ("nvme.enabled=true", "nvme.hostPaths={/mnt/a,/mnt/b}", "dram.capacityGiB=64", "dram.overheadGiB=4"),
    "huge pages": ("hugepages.enabled=true",),
    "manager": SOME_MANAGER,
    "no policy, no annotations": ("networkPolicy=false", "metrics.annotations=false"),
    "settings of one's own": ('config=[auth]\nallow_uids = [1000]\n[dram]\npolicy = "lru"\n',),
    "a long stop": ("node.flushTimeoutSeconds=600", "node.drainTimeoutSeconds=30", "nvme.enabled=true"),
    "a long stop of a cluster that drains": (*SOME_CLUSTER, "cluster.drainSeconds=40", "node.flushTimeoutSeconds=120"),
    "a short stop": ("node.flushTimeoutSeconds=0", "node.drainTimeoutSeconds=0", "terminationGracePeriodSeconds=30"),
    "all": (
        *(*SOME_CLUSTER, *SOME_MANAGER, "cluster.drainSeconds=20", "nvme.enabled=true", "hugepages.enabled=true"),
        *("seccomp.localhostProfile=cenote.json", "metrics.serviceMonitor=true", "image.tag=1.2.3"),
    ),
}


def helm(*values: str, release: str = "cenote") -> subprocess.CompletedProcess[str]:
    words = itertools.chain.from_iterable(("--set", each) for each in values)
    command = ["template", release, str(CHART), "--namespace", "kv", "--kube-version", KUBERNETES, *words]
    return subprocess.run([program("helm"), *command], capture_output=True, text=True, check=False)


@functools.cache
def chart(name: str) -> list[Resource]:
    made = helm(*VALUES[name])
    assert made.returncode == 0, made.stderr
    return [each for each in yaml.safe_load_all(made.stdout) if each]


def components(*names: str) -> Callable[[Path], list[Resource]]:
    """The base with these components, through a folder of kustomize."""

    def rendering(place: Path) -> list[Resource]:
        base, *others = (
            os.path.relpath(each, place)
            for each in (KUSTOMIZE / "base", *(KUSTOMIZE / "components" / n for n in names))
        )
        rules = {"resources": [base], "components": others, "namespace": "cenote"}
        (place / "kustomization.yaml").write_text(yaml.safe_dump(rules))
        return render(place)

    return rendering


RENDERINGS: dict[str, Callable[[Path], list[Resource]]] = {
    "kustomize: base": lambda _: render(KUSTOMIZE / "base"),
    "kustomize: production": lambda _: render(KUSTOMIZE / "overlays" / "production"),
    **{f"kustomize: {name}": components(name) for name in COMPONENTS},
    "kustomize: all": components(*COMPONENTS),
    **{f"helm: {name}": functools.partial(lambda name, _: chart(name), name) for name in VALUES},
}


@pytest.fixture(scope="module", params=RENDERINGS)
def resources(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Resource]:
    return RENDERINGS[request.param](tmp_path_factory.mktemp("rendering"))


def of_kind(resources: list[Resource], kind: str) -> list[Resource]:
    return [each for each in resources if each["kind"] == kind]


def number_of(text: str) -> float:
    """ "10Gi", "8GiB", "5s", "100m": bytes, seconds, processors."""
    amount, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text)).groups()  # type: ignore[union-attr]
    sizes = {"": 1, "Mi": MiB, "MiB": MiB, "Gi": GiB, "GiB": GiB, "ms": 0.001, "s": 1, "m": 60}
    return float(amount) * sizes[unit]


@dataclass
class NodePod:
    """The pod of a DaemonSet with a node, and the configuration of that node."""

    spec: dict[str, Any]
    node: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    check: str = ""  # why the node refuses it; empty: it does not

    def probe_seconds(self, probe: str) -> int:
        return int(self.node[probe].get("failureThreshold", 3)) * int(self.node[probe].get("periodSeconds", 10))


def environment_of(container: dict[str, Any], fields: dict[str, str]) -> dict[str, str]:
    """As the kubelet makes it: $(NAME) is a variable before."""
    made: dict[str, str] = {}
    for each in container.get("env", []):
        if "valueFrom" in each:
            made[each["name"]] = fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            made[each["name"]] = re.sub(r"\$\((\w+)\)", lambda found: made[found[1]], each["value"])
    return made


@pytest.fixture(scope="module")
def pod(resources: list[Resource], tmp_path_factory: pytest.TempPathFactory) -> NodePod:
    place = tmp_path_factory.mktemp("pod")
    (owner,) = of_kind(resources, "DaemonSet")
    spec = owner["spec"]["template"]["spec"]
    (node,) = spec["containers"]
    made = NodePod(spec, node)
    (volume,) = [each for each in spec["volumes"] if each["name"] == "config"]
    (config,) = [
        each for each in of_kind(resources, "ConfigMap") if each["metadata"]["name"] == volume["configMap"]["name"]
    ]
    made.environment = environment_of(node, {"status.podIP": "10.1.2.3", "spec.nodeName": "machine-7.example"})
    secret = place / "secret"
    secret.write_text("0" * 32)
    secret.chmod(0o400)
    if "CENOTE_CLUSTER__SECRET_FILE" in made.environment:
        made.environment["CENOTE_CLUSTER__SECRET_FILE"] = str(secret)
    (place / "cenote.toml").write_text(config["data"]["cenote.toml"])
    file = ("--config", str(place / "cenote.toml"))
    environment = {**node_environment(), **made.environment}
    shown = run_cenote("config", "show", *file, env=environment)  # `config check` would ask for the pod's machine, too
    made.check = shown.stderr if shown.returncode else ""
    made.config = tomllib.loads(shown.stdout)
    return made


# ---- pods of nodes


def test_the_node_accepts_its_configuration(pod: NodePod) -> None:
    assert pod.check == ""
    assert pod.node["args"] == ["node", "--config", "/etc/cenote/cenote.toml"]
    unknown = [name for name in pod.environment if name.startswith("CENOTE_") and "__" not in name]
    assert unknown == []


def test_capacity_fits_the_limit_of_memory_with_a_gib_to_spare(pod: NodePod) -> None:
    limits, requests = pod.node["resources"]["limits"], pod.node["resources"]["requests"]
    capacity = number_of(pod.config["dram"]["capacity"])
    assert capacity + capacity / 32 + GiB <= number_of(limits["memory"]) == number_of(requests["memory"])
    assert "cpu" not in limits, "a quota of time would make copies stand still"
    huge = limits.get("hugepages-2Mi")
    assert (pod.config["dram"]["huge_pages"] == "auto") == (huge is not None)
    assert huge is None or number_of(huge) >= capacity


def test_the_kubelet_waits_longer_than_an_end_in_order_takes_and_the_node_knows_how_long(pod: NodePod) -> None:
    times = {name: number_of(pod.config["node"][name]) for name in ("drain_timeout", "flush_timeout", "stop_limit")}
    drain = [
        int(each) for each in pod.node.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])[-1:]
    ]
    assert times["drain_timeout"] + times["flush_timeout"] + 2 <= times["stop_limit"]
    assert times["stop_limit"] == pod.spec["terminationGracePeriodSeconds"] - sum(drain)


def test_probes_ask_the_node_and_are_more_patient_than_its_keeper(pod: NodePod) -> None:
    for probe in ("startupProbe", "livenessProbe"):
        assert pod.node[probe]["exec"]["command"] == ["cenote", "status"]
    ports = {each["name"]: each["containerPort"] for each in pod.node["ports"]}
    asked = pod.node["readinessProbe"]["httpGet"]
    assert (asked["path"], ports[asked["port"]]) == (
        "/healthz",
        int(pod.config["metrics"]["listen"].rpartition(":")[2]),
    )
    assert not pod.config["metrics"]["listen"].startswith("127."), "the kubelet asks from outside"
    assert pod.probe_seconds("livenessProbe") >= 2 * number_of(pod.config["node"]["hang_timeout"])
    assert pod.probe_seconds("startupProbe") >= 300


def test_a_pod_sees_no_more_of_its_machine_than_it_needs(pod: NodePod) -> None:
    assert not pod.spec.get("hostPID") and not pod.spec.get("hostIPC")
    assert pod.spec["automountServiceAccountToken"] is False
    assert pod.spec["enableServiceLinks"] is False, "variables of services begin with CENOTE_ as the node's own do"
    assert pod.spec["securityContext"]["runAsNonRoot"] is True
    secured = pod.node["securityContext"]
    assert (secured["readOnlyRootFilesystem"], secured["allowPrivilegeEscalation"]) == (True, False)
    assert secured["capabilities"] == {"drop": ["ALL"]}
    for each in pod.spec["initContainers"]:
        assert set(each["securityContext"]["capabilities"].get("add", [])) <= {"CHOWN", "FOWNER"}
        assert each["image"] == pod.node["image"] and ":" in each["image"]


def test_each_path_that_the_node_is_given_is_a_volume(pod: NodePod) -> None:
    volumes = {each["name"] for each in pod.spec["volumes"]}
    containers = [*pod.spec["initContainers"], pod.node]
    assert {each["name"] for one in containers for each in one["volumeMounts"]} == volumes
    mounted = {each["mountPath"] for each in pod.node["volumeMounts"]}
    assert {"/run/cenote", "/var/lib/cenote", "/etc/cenote"} <= mounted
    assert set(pod.config["nvme"]["paths"]) <= mounted
    for path in ("/run/cenote", "/var/lib/cenote", *pod.config["nvme"]["paths"]):  # the node's user owns them
        assert any(path in each["command"] and "10001" in each["command"] for each in pod.spec["initContainers"])


def test_nodes_of_a_cluster_find_each_other_through_a_policy_and_a_service_with_all_addresses(
    pod: NodePod, resources: list[Resource]
) -> None:
    cluster = pod.config["cluster"]
    if not cluster["name"]:
        assert not [each for each in of_kind(resources, "Service") if each["metadata"]["name"].endswith("-peers")]
        return
    assert (cluster["name"], cluster["trusted_network"], pod.config["remote"]["backends"]) == (
        "machine-7.example",
        True,
        ["peers"],
    )
    port = int(cluster["listen"].rpartition(":")[2])
    assert cluster["listen"] == f"10.1.2.3:{port}"
    (peers,) = [each for each in of_kind(resources, "Service") if each["metadata"]["name"].endswith("-peers")]
    assert cluster["seeds"] == [f"{peers['metadata']['name']}:{port}"]
    assert (peers["spec"]["clusterIP"], peers["spec"]["publishNotReadyAddresses"]) == ("None", True)
    (owner,) = of_kind(resources, "DaemonSet")
    assert peers["spec"]["selector"] == owner["spec"]["selector"]["matchLabels"]
    assert peers["metadata"]["namespace"] == "cenote" if "namespace" in peers["metadata"] else True
    first, last = map(int, cluster["ports"].split("-"))
    allowed = [
        (each["port"], each.get("endPort", each["port"]))
        for policy in of_kind(resources, "NetworkPolicy")
        for rule in policy["spec"]["ingress"]
        for each in rule["ports"]
        if policy["spec"]["podSelector"]["matchLabels"] == owner["spec"]["selector"]["matchLabels"]
    ]
    assert first == port + 1 and (port, last) in allowed


def test_what_selects_pods_selects_those_that_are_there_and_no_others(resources: list[Resource]) -> None:
    owners = of_kind(resources, "DaemonSet") + of_kind(resources, "Deployment")
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in owners]
    selectors = [each["spec"]["selector"] for each in of_kind(resources, "Service")]
    selectors += [each["spec"]["podSelector"]["matchLabels"] for each in of_kind(resources, "NetworkPolicy")]
    for each in selectors:
        assert sum(each.items() <= one.items() for one in labels) == 1


def test_everything_but_a_namespace_is_in_one(resources: list[Resource]) -> None:
    """Of kustomize's resources; helm installs its own into one that is named at the call."""
    named = {each["metadata"].get("namespace") for each in resources if each["kind"] != "Namespace"}
    assert named in ({"cenote"}, {None})


def test_a_manager_starts_with_what_its_pod_gives_it(resources: list[Resource], tmp_path: Path) -> None:
    for owner in of_kind(resources, "Deployment"):
        (container,) = owner["spec"]["template"]["spec"]["containers"]
        assert owner["spec"]["strategy"] == {"type": "Recreate"}, "two managers have one journal"
        environment = environment_of(container, {})
        mounted = [each["mountPath"] for each in container["volumeMounts"]]
        assert any(environment["CENOTE_MANAGER__STATE_DIR"].startswith(f"{each}/") for each in mounted)
        environment["CENOTE_MANAGER__STATE_DIR"] = str(tmp_path / "manager")
        ports = dict(zip(("META_RPC", "META_HTTP", "ADMIN_RPC", "ADMIN_HTTP"), map(str, free_ports(4)), strict=True))
        environment |= {f"CENOTE_MANAGER__{name}_PORT": number for name, number in ports.items()}
        checked = run_cenote("manager", "check", env={**node_environment(), **environment})
        assert checked.returncode == 0, checked.stderr


# ---- the chart alone


def test_a_value_that_the_chart_does_not_know_or_a_word_that_is_missing_is_named() -> None:
    for values, why in (
        (("dram.capacityGib=8",), "capacityGib"),
        (("terminationGracePeriodSeconds=20",), "terminationGracePeriodSeconds"),
        (("cluster.enabled=true", "cluster.trustedNetwork=true"), "cluster.existingSecret"),
        (("cluster.enabled=true", "cluster.existingSecret=s"), "cluster.trustedNetwork"),
        (("manager.enabled=true",), "manager.trustedNetwork"),
        (('config=[node]\nflush_timeout = "60s"\n',), "node.flushTimeoutSeconds"),
        (("config=node.drain_timeout = '60s'",), "node.drainTimeoutSeconds"),
        (("env[0].name=CENOTE_NODE__STOP_LIMIT", "env[0].value=1h"), "node.flushTimeoutSeconds"),
        (("node.flushTimeoutSeconds=3601",), "flushTimeoutSeconds"),
    ):
        refused = helm(*values)
        assert refused.returncode != 0 and why in refused.stderr


@pytest.mark.parametrize("name", VALUES)
def test_helm_finds_nothing_wrong_with_the_chart(name: str) -> None:
    values = itertools.chain.from_iterable(("--set", each) for each in VALUES[name])
    command = [program("helm"), "lint", "--strict", str(CHART), "--kube-version", KUBERNETES, *values]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_two_releases_are_two_clusters_with_names_of_their_own() -> None:
    made = [list(yaml.safe_load_all(helm(*VALUES["all"], release=each).stdout)) for each in ("one", "two")]
    names = [{(each["kind"], each["metadata"]["name"]) for each in resources if each} for resources in made]
    assert names[0] and not names[0] & names[1]
    ids = []
    for resources in made:
        (owner,) = of_kind([each for each in resources if each], "DaemonSet")
        ids += [
            e["value"]
            for e in owner["spec"]["template"]["spec"]["containers"][0]["env"]
            if e["name"] == "CENOTE_CLUSTER__ID"
        ]
    assert ids == ["kv-one", "kv-two"]


def test_the_chart_and_the_base_agree(tmp_path: Path) -> None:
    (left,), (right,) = of_kind(chart("as it is"), "DaemonSet"), of_kind(render(KUSTOMIZE / "base"), "DaemonSet")
    one, other = (each["spec"]["template"]["spec"] for each in (left, right))
    for key in ("terminationGracePeriodSeconds", "securityContext", "tolerations", "automountServiceAccountToken"):
        assert one[key] == other[key]
    for key in (
        "startupProbe",
        "readinessProbe",
        "livenessProbe",
        "resources",
        "securityContext",
        "volumeMounts",
        "ports",
    ):
        assert one["containers"][0][key] == other["containers"][0][key]
    for key in ("command", "securityContext", "resources"):
        assert one["initContainers"][0][key] == other["initContainers"][0][key]


# ---- beside them


def test_the_versions_are_those_of_the_package() -> None:
    version = run_cenote("--version").stdout.split()[-1]
    meta = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert meta["version"] == meta["appVersion"] == version
    assert f"ARG VERSION={version}\n" in (ROOT / "packaging" / "Containerfile").read_text()
    named = re.findall(r"image: cenote(\S*)", "".join(each.read_text() for each in KUSTOMIZE.rglob("*.yaml")))
    assert named and set(named) == {f":{version}"}


def test_the_engine_of_the_example_gets_the_folder_of_the_socket_and_the_client_of_the_node_s_version() -> None:
    (owner,) = documents(KUSTOMIZE / "examples" / "vllm.yaml")
    spec = owner["spec"]["template"]["spec"]
    (node,) = of_kind(render(KUSTOMIZE / "base"), "DaemonSet")
    pod = node["spec"]["template"]["spec"]
    paths = {each["name"]: each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each}
    assert paths["run"] == {each["name"]: each for each in spec["volumes"]}["cenote"]["hostPath"]["path"]
    assert spec["initContainers"][0]["image"] == pod["containers"][0]["image"]
    (engine,) = spec["containers"]
    mounts = {each["name"]: each["mountPath"] for each in engine["volumeMounts"]}
    environment = environment_of(engine, {})
    assert environment["PYTHONPATH"] == f"{mounts['client']}/python"
    assert environment["CENOTE_SOCKET"] == f"{mounts['cenote']}/cenote.sock"
    transfer = json.loads(engine["args"][engine["args"].index("--kv-transfer-config") + 1])
    assert (transfer["kv_connector"], transfer["kv_connector_module_path"]) == ("CenoteConnector", "cenote.vllm")
    assert "class CenoteConnector" in (ROOT / "python" / "cenote" / "vllm.py").read_text()


def test_resources_are_valid_by_the_schema_of_kubernetes(tmp_path_factory: pytest.TempPathFactory) -> None:
    distinct = {json.dumps(each): each for each in documents(KUSTOMIZE / "examples" / "vllm.yaml")}
    for rendering in RENDERINGS.values():
        distinct |= {json.dumps(each): each for each in rendering(tmp_path_factory.mktemp("rendering"))}
    known = [each for each in distinct.values() if each["kind"] != "ServiceMonitor"]  # the Prometheus operator's
    everything = tmp_path_factory.mktemp("all") / "all.yaml"
    everything.write_text(yaml.safe_dump_all(known))
    command = [checker("kubernetes-validate"), "--strict", "-k", KUBERNETES, everything]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert (checked.stdout + checked.stderr).count(" passed for resource ") == len(known)


def test_the_containerfile_is_without_faults_of_style() -> None:
    command = [checker("hadolint"), ROOT / "packaging" / "Containerfile"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")
