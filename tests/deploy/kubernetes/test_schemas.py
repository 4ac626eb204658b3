"""The manifests of ``deploy/kubernetes`` fit the schemas of the oldest Kubernetes that takes them, and the newest."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.kubernetes.test_pods import FOLDERS, PODS, documents

OLDEST = "1.29"
"""Before it, the schema of a Job's podFailurePolicy wants onPodConditions beside onExitCodes."""
Validate = Callable[[dict[str, Any]], None]


@pytest.fixture(params=[OLDEST, kubernetes_validate.latest_version()])
def validate(request: pytest.FixtureRequest) -> Validate:
    """Holds a document against Kubernetes' own schema: raises where it does not fit, as unknown keys do not."""
    return lambda document: kubernetes_validate.validate(document, request.param, strict=True)


@pytest.mark.parametrize("name", PODS)
def test_kubernetes_takes_what_kustomize_makes(name: str, validate: Validate) -> None:
    for kind, document in documents(name).items():
        if kind != "SparkApplication":
            validate(document)
    validate(PODS[name]())


@pytest.mark.parametrize("name", PODS)
def test_kustomize_makes_what_the_tests_take_for_it(name: str) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is missing")
    made = subprocess.run(["kubectl", "kustomize", FOLDERS / name], capture_output=True, text=True, check=True).stdout
    assert {each["kind"]: each for each in yaml.safe_load_all(made)} == documents(name)


def test_the_schema_would_see_a_mistake(validate: Validate) -> None:
    for name, value in (("retries", 3), ("backoffLimit", "three")):
        job = documents("base")["Job"]
        job["spec"][name] = value
        with pytest.raises(kubernetes_validate.ValidationError):
            validate(job)


@pytest.mark.parametrize("name", PODS)
def test_every_mount_has_its_volume(name: str) -> None:
    """Of the operator's pod too, which has only the volumes that the driver mounts."""
    spec = PODS[name]()["spec"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    for container in [*spec["initContainers"], *spec["containers"]]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        assert container["image"] == spec["containers"][0]["image"], "one image, one user: files are for their owner"


@pytest.mark.parametrize("name", PODS)
def test_no_pod_keeps_anything(name: str) -> None:
    """The offsets and the state are in buckets: a volume that outlives the pod would be another place to lose."""
    assert {frozenset(volume) for volume in PODS[name]()["spec"]["volumes"]} == {
        frozenset({"name", "configMap"}),
        frozenset({"name", "emptyDir"}),
    }


def test_one_selector_restarts_all_jobs_and_the_people_on_call_may_do_that() -> None:
    for name, kind in (("base", "Job"), ("spark-operator", "SparkApplication")):
        made = documents(name)
        assert [each for each, document in made.items() if "labels" in document["metadata"]] == [kind]
        assert f"{kind.lower()} -l reconciler/job " in (FOLDERS / name / "kustomization.yaml").read_text()
        (rule,) = (rule for rule in made["Role"]["rules"] if f"{kind.lower()}s" in rule["resources"])
        assert made[kind]["apiVersion"].partition("/")[0] in rule["apiGroups"]
        assert {"create", "delete", "get", "list", "patch"} <= {*rule["verbs"]}
