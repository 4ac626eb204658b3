"""The containers of the manifests of ``deploy/kubernetes`` run as they stand.

No cluster runs here. A pod's containers are run in turn as the kubelet would: the very command and environment, with
what is mounted in folders. The pod of a SparkApplication is put together as the operator's webhook does it.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import yaml

from tests.deploy.deployed import DEPLOY, ENDS_WITH, Deployed
from tests.waiting import LIMIT_S
from tests.world import World

pytestmark = pytest.mark.system

PUSHGATEWAY = "pushgateway.monitoring:9091"
STATE = "files:s3://clicks-state/reconciler"
OFFSETS = "checkpoint:s3a://clicks-data/checkpoints/clicks"
FOLDERS = DEPLOY / "kubernetes"


def documents(name: str) -> dict[str, dict[str, Any]]:
    """What kustomize makes of a folder, by kind. A folder above another one has no Job of its own."""
    made = yaml.safe_load((FOLDERS / name / "kustomization.yaml").read_text())
    found: dict[str, dict[str, Any]] = {}
    for resource in made["resources"]:
        if resource.startswith("../"):
            found |= documents(resource.removeprefix("../"))
            del found["Job"]
        else:
            found |= {each["kind"]: each for each in yaml.safe_load_all((FOLDERS / name / resource).read_text())}
    for each in made.get("configMapGenerator", []):
        data = {file: (FOLDERS / name / file).read_text() for file in each["files"]}
        found["ConfigMap"] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": each["name"]}, "data": data}
    return found


def pod_of_the_job() -> dict[str, Any]:
    spec = documents("base")["Job"]["spec"]["template"]["spec"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "clicks"}, "spec": spec}


def pod_of_the_driver() -> dict[str, Any]:
    """The operator's pod for the application: it has a volume only if the driver mounts it."""
    application = documents("spark-operator")["SparkApplication"]["spec"]
    driver = application["driver"]
    mounted = {mount["name"] for mount in driver["volumeMounts"]}
    main = {
        "name": "spark-kubernetes-driver",
        "image": application["image"],
        "command": ["spark-submit", application["mainApplicationFile"].removeprefix("local://")],
        "env": driver["env"],
        "volumeMounts": driver["volumeMounts"],
    }
    spec = {
        "restartPolicy": "Never",
        "serviceAccountName": driver["serviceAccount"],
        "securityContext": driver["podSecurityContext"],
        "initContainers": driver["initContainers"],
        "containers": [main],
        "volumes": [volume for volume in application["volumes"] if volume["name"] in mounted],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "clicks-driver"}, "spec": spec}


PODS = {"base": pod_of_the_job, "spark-operator": pod_of_the_driver}


# ---------------------------------------------------------------- running a pod


class Gateway:
    """Takes what is pushed."""

    def __init__(self) -> None:
        pushed: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                pushed.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self.send_response(202)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.pushed = pushed
        self.server = HTTPServer(("127.0.0.1", 0), Handler)

    def exit_codes(self) -> list[float]:
        lines = [line for text in self.pushed for line in text.splitlines()]
        return [float(line.rpartition(" ")[2]) for line in lines if line.startswith("reconciler_hook_exit_code{")]


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    gateway = Gateway()
    thread = threading.Thread(target=gateway.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield gateway
    gateway.server.shutdown()
    thread.join()
    gateway.server.server_close()


@pytest.fixture(params=PODS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def deployed(name: str, gateway: Gateway, world: World) -> Deployed:
    place = f"sqlite:///{world.folder}/at"
    there = {PUSHGATEWAY: f"127.0.0.1:{gateway.server.server_port}", STATE: f"{place}/state.db"}
    deployed = Deployed(world, places=("/config", "/handoff", "/app"), more={**there, OFFSETS: f"{place}/offsets.db"})
    text = documents(name)["ConfigMap"]["data"]["reconciler.toml"]
    deployed.configure(text, deployed.path("/config/reconciler.toml"))
    deployed.path("/handoff").mkdir()
    return deployed


def run(pod: dict[str, Any], deployed: Deployed) -> tuple[str, int]:
    """Run a pod's containers in turn, until one fails: the last one's name and exit code."""
    spec = pod["spec"]
    assert spec["restartPolicy"] == "Never"
    for container in [*spec["initContainers"], *spec["containers"]]:
        words = [deployed.moved(word) for word in [*container["command"], *container.get("args", [])]]
        names = {each["name"]: deployed.moved(each["value"]) for each in container["env"] if "value" in each}
        ended = subprocess.run(words, env={**deployed.environment, **names}, timeout=LIMIT_S, check=False)
        if ended.returncode != 0:
            break
    return container["name"], ended.returncode


def test_a_pods_job_is_started_or_not_as_the_hook_says(name: str, deployed: Deployed, gateway: Gateway) -> None:
    deployed.world.deliver(8)
    deployed.needs_a_person()
    assert run(PODS[name](), deployed) == ("hook", 4)
    assert (deployed.starts, deployed.path("/handoff/start.json").exists()) == ([], False)
    deployed.may_start()
    assert run(PODS[name](), deployed)[1] == 0
    assert deployed.starts == [str(deployed.path("/app/clicks.py"))]
    assert deployed.started_at_the_right_offsets
    assert gateway.exit_codes() == [4, 0]


def test_a_move_changes_no_manifest(name: str, deployed: Deployed) -> None:
    """The same pod with the same ConfigMap starts the job on the other cluster: for one job as for forty."""
    state = deployed.world.folder / "at" / "state.db"
    deployed.world.deliver(8)
    deployed.may_start()
    deployed.moves(state, to=None)
    assert run(PODS[name](), deployed)[1] == 0
    assert deployed.start["cluster"] == "a"
    move = ["reconciler", "move", "--config", str(deployed.path("/config/reconciler.toml")), "--to", "b", "--yes"]
    assert subprocess.run(move, env=deployed.environment, timeout=LIMIT_S, check=False).returncode == 0
    assert run(PODS[name](), deployed)[1] == 0
    assert deployed.start["cluster"] == "b"
    assert deployed.started_at_the_right_offsets


def test_no_job_is_started_after_a_hook_that_failed(name: str, deployed: Deployed) -> None:
    deployed.program("reconciler", ENDS_WITH.format(code=7))
    assert run(PODS[name](), deployed) == ("hook", 7)
    assert deployed.starts == []


def action_of_the_job(code: int, *, disrupted: bool = False) -> str:
    """What Kubernetes does after a pod whose hook ended so: the action of the first rule that fits, else Count."""
    for rule in documents("base")["Job"]["spec"]["podFailurePolicy"]["rules"]:
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions", [])
        assert (codes is None) != (conditions == [])
        if codes is not None:
            assert (codes["containerName"], codes["operator"]) == ("hook", "In")
        if (codes is not None and code in codes["values"]) or (
            disrupted and {"type": "DisruptionTarget", "status": "True"} in conditions
        ):
            return str(rule["action"])
    return "Count"


@pytest.mark.parametrize(("code", "given_up"), [(2, True), (4, True), (5, False), (6, False), (7, False)])
def test_the_job_is_given_up_when_starting_again_would_not_help(code: int, given_up: bool) -> None:
    assert action_of_the_job(code) == ("FailJob" if given_up else "Count")
    assert action_of_the_job(code, disrupted=True) == ("FailJob" if given_up else "Ignore")


def test_a_drained_node_takes_none_of_the_jobs_retries() -> None:
    """They are counted over the Job's whole life, which is the streaming job's."""
    assert action_of_the_job(143, disrupted=True) == "Ignore"
    spec = documents("base")["Job"]["spec"]
    assert spec["template"]["spec"]["restartPolicy"] == "Never", "the API server takes a podFailurePolicy with no other"
    assert spec["backoffLimit"] >= 20


def test_the_operator_submits_again_a_number_of_times() -> None:
    """It goes by no exit code, so the number has to end it; but it counts over the application's whole life."""
    again = documents("spark-operator")["SparkApplication"]["spec"]["restartPolicy"]
    assert again["type"] == "OnFailure"
    assert 10 <= again["onFailureRetries"] <= 50
    assert again["onFailureRetryInterval"] > 0
