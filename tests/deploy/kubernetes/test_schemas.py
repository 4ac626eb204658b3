"""The manifests of ``deploy/kubernetes`` fit the schemas of the oldest Kubernetes that takes them, and the newest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kubernetes_validate
import pytest

from tests.deploy.kubernetes.test_pods import PODS, documents, pod_of_the_driver

OLDEST = "1.29"
"""Before it, the schema of a Job's podFailurePolicy wants onPodConditions beside onExitCodes."""
Validate = Callable[[dict[str, Any]], None]


@pytest.fixture(params=[OLDEST, kubernetes_validate.latest_version()])
def validate(request: pytest.FixtureRequest) -> Validate:
    """Holds a document against Kubernetes' own schema: raises where it does not fit, as unknown keys do not."""
    return lambda document: kubernetes_validate.validate(document, request.param, strict=True)


def test_kubernetes_takes_the_job(validate: Validate) -> None:
    for document in documents("hook-init-container.yaml").values():
        validate(document)


def test_kubernetes_takes_the_configuration_and_the_pod_of_the_spark_application(validate: Validate) -> None:
    validate(documents("spark-application.yaml")["ConfigMap"])
    validate(pod_of_the_driver())


def test_the_schema_would_see_a_mistake(validate: Validate) -> None:
    for name, value in (("retries", 3), ("backoffLimit", "three")):
        job = documents("hook-init-container.yaml")["Job"]
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
def test_a_volumes_permissions_are_changed_once(name: str) -> None:
    """By Kubernetes' default every mount makes the folder of plans writable by the group, and the hook refuses it."""
    context = PODS[name]()["spec"]["securityContext"]
    assert context["fsGroup"] > 0
    assert context["fsGroupChangePolicy"] == "OnRootMismatch"
