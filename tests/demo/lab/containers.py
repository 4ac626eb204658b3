"""Kafka in containers, by testcontainers: the image from ``deploy/images``, and a cluster that the tests can use.

A cluster in a container has what one of processes has, as far as the shared pair is used: topics, offsets, and to be
killed, frozen and started again at the same address.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from reconciler.demo.lab.in_use import ClusterInUse
from reconciler.demo.lab.kafka import HOST, free_ports, new_cluster_id
from tests import ROOT

REPOSITORY = ROOT
IMAGE = "reconciler-kafka:tests"
START_SECONDS = 120
_SETTINGS = {"offsets.retention.minutes": "10000000"}


class CannotRun(Exception):
    """Why there can be no containers here, as the end of a sentence."""


def daemon() -> Any:
    """A client of the Docker daemon that DOCKER_HOST or the machine's own settings name, and that answers."""
    try:
        import docker
    except ImportError:
        raise CannotRun("the client of Docker is not installed") from None
    try:
        client = docker.from_env(timeout=600)
        client.ping()
    except docker.errors.DockerException as error:
        raise CannotRun(f"no Docker daemon answers ({error})") from error
    return client


def kafka_image(client: Any, jars: Callable[[], Path]) -> str:
    """The image's name. It is built on $BASE, from the jars that are in the cache: nothing is downloaded for it.

    What did not change since the last build is not built again.
    """
    from docker.errors import APIError, BuildError

    base = {"BASE": os.environ["BASE"]} if "BASE" in os.environ else {}
    how = {"dockerfile": "deploy/images/Dockerfile", "target": "kafka", "buildargs": base, "rm": True, "forcerm": True}
    try:
        with _context(jars()) as context:
            client.images.build(fileobj=context, custom_context=True, tag=IMAGE, **how)
    except BuildError as error:
        said = "".join(line.get("stream", "") for line in error.build_log)
        raise CannotRun(f"the image of Kafka cannot be built: {error.msg}\n{said[-2000:]}") from error
    except APIError as error:
        raise CannotRun(f"the image of Kafka cannot be built: {error.explanation}") from error
    return IMAGE


def _context(jars: Path) -> io.BytesIO:
    """The files that the Dockerfile copies for this target, with the jars where it expects local ones."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in _sources():
            archive.add(path, str(path.relative_to(REPOSITORY)), recursive=False, filter=_anonymous)
        for path in sorted(path for path in jars.iterdir() if path.suffix != ".jsa"):  # of this machine's JVM
            archive.add(path, f"deploy/images/cache/{jars.name}/{path.name}", filter=_anonymous)
    packed.seek(0)
    return packed


def _sources() -> Iterable[Path]:
    yield from (path for path in sorted((REPOSITORY / "deploy/images").rglob("*")) if path.is_file())
    core = (f"core/{name}.py" for name in ("__init__", "errors", "text"))
    yield from (REPOSITORY / "reconciler" / name for name in ("__init__.py", "artifacts.py", *core))


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


class ContainerCluster(ClusterInUse):
    """One broker in a container, reached at a port of this machine."""

    def __init__(self, name: str, image: str) -> None:
        super().__init__(name)
        self.cluster_id = new_cluster_id()
        self._image = image
        (self._port,) = free_ports(1)
        self._container: Any = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self._port}"

    # ------------------------------------------------------------ life

    def start(self) -> Self:
        """Start it and wait until it answers."""
        self._container = self._new()
        self._container.start()
        self.wait_until(self._answers, START_SECONDS, "its first answer")
        return self

    def kill(self) -> None:
        """The disaster: gone between two instructions."""
        self._wrapped.kill()
        self._wrapped.wait()

    @property
    def running(self) -> bool:
        if self._container is None:
            return False
        self._wrapped.reload()
        return bool(self._wrapped.status == "running")

    def log(self) -> str:
        return str(self._wrapped.logs(tail=40).decode(errors="replace"))

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        if self._container is not None:
            self._container.stop()  # testcontainers' word for killing and removing it

    # ------------------------------------------------------------ starting

    @property
    def _wrapped(self) -> Any:
        return self._container.get_wrapped_container()

    def _new(self) -> Any:
        container = _container(self._image, "broker")
        container.ports["9094/tcp"] = (HOST, self._port)  # with_bind_ports would open it to the network
        # The published port is for this machine; within the container the broker finds itself at another.
        doors = {
            "listeners": "INSIDE://localhost:9092,PLAINTEXT://:9094,CONTROLLER://localhost:9093",
            "advertised.listeners": f"INSIDE://localhost:9092,PLAINTEXT://{self.bootstrap}",
            "inter.broker.listener.name": "INSIDE",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
        lines = "\n".join(f"{key}={value}" for key, value in {**_SETTINGS, **doors}.items())
        return container.with_envs(CLUSTER_ID=self.cluster_id, HEAP="256m", PROPERTIES=lines)

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        if not self.running:
            raise RuntimeError(f"The container of cluster {self.name} has ended. Its log ends:\n{self.log()}")
        try:
            described = self.admin().list_topics(timeout=2)
        except KafkaException:
            return False
        return described.cluster_id == self.cluster_id and 1 in described.brokers


def container_mirror(source: ContainerCluster, target: ContainerCluster, image: str, directory: Path) -> Any:
    """MirrorMaker 2 in a container, with docker-compose.yml's settings: a context that is left with it gone.

    Only the addresses are others: it is in the machine's network, as nothing lets containers of a daemon that keeps
    out of the packet filter reach each other.
    """
    settings = (REPOSITORY / "deploy/mirror/mm2.properties").read_text()
    settings = settings.replace("a:9092", source.bootstrap).replace("b:9092", target.bootstrap)
    (directory / "mm2.properties").write_text(settings)
    directory.chmod(0o755)  # for the image's user
    container = _container(image, "mirror /mirror/mm2.properties").with_kwargs(network_mode="host")
    return container.with_volume_mapping(str(directory), "/mirror", "ro").with_env("HEAP", "384m")


def _container(image: str, command: str) -> Any:
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer

    # Its helper that removes what a killed run left is an image to be pulled.
    testcontainers_config.ryuk_disabled = True
    return DockerContainer(image).with_command(command)
