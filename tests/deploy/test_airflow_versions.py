"""The module of ``deploy/airflow`` finds its names in each Airflow, and takes none from a place that warns.

No Airflow is installed here: modules with the names that a version has stand for it. ``test_deploy_airflow`` runs the
DAGs in a real one.
"""

from __future__ import annotations

import runpy
import sys
import warnings
from types import ModuleType
from typing import Any

import pytest

from tests.deploy.deployed import DEPLOY


class Failed(Exception):
    """Ends a task without a retry."""


class FailedForGood(Failed):
    pass


class Anything:
    """Stands for a class of Airflow: called, used as a decorator, and entered."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *_: Any) -> Anything:
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class Warns(ModuleType):
    """``airflow.exceptions`` from 3.2 on."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        warnings.warn(f"airflow.exceptions.{name} is deprecated", DeprecationWarning, stacklevel=2)
        return {"AirflowException": Failed, "AirflowFailException": FailedForGood}[name]


EXCEPTIONS = {"AirflowException": Failed, "AirflowFailException": FailedForGood}
SDK = {"DAG": Anything, "BaseOperator": Anything, "task": Anything}
VERSIONS: dict[str, dict[str, dict[str, Any]]] = {
    "2.11": {
        "airflow.exceptions": EXCEPTIONS,
        "airflow.decorators": {"task": Anything},
        "airflow.models.baseoperator": {"BaseOperator": Anything},
        "airflow.models.dag": {"DAG": Anything},
    },
    "3.0": {"airflow.exceptions": EXCEPTIONS, "airflow.sdk": SDK},
    "3.1": {
        "airflow.exceptions": EXCEPTIONS,
        "airflow.sdk": SDK,
        "airflow.sdk.exceptions": {"AirflowException": Failed},
    },
    "3.3": {"airflow.sdk": SDK, "airflow.sdk.exceptions": EXCEPTIONS},
}


def modules(version: str) -> dict[str, ModuleType]:
    names = {
        **VERSIONS[version],
        "airflow.providers.apache.spark.operators.spark_submit": {"SparkSubmitOperator": Anything},
        "airflow.providers.standard.hooks.subprocess": {"SubprocessHook": Anything},
    }
    found: dict[str, ModuleType] = {}
    for name, content in names.items():
        for end in (at for at, sign in enumerate(name) if sign == "."):
            found.setdefault(name[:end], ModuleType(name[:end])).__path__ = []
        found[name] = ModuleType(name)
        found[name].__path__ = []
        vars(found[name]).update(content)
    if version == "3.3":
        found["airflow.exceptions"] = Warns("airflow.exceptions")
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_the_dags_load_without_a_warning_in_each_airflow(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in modules(version).items():
        monkeypatch.setitem(sys.modules, name, module)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        judge = runpy.run_path(str(DEPLOY / "airflow" / "clicks.py"))["judge"]
    judge(0)
    for code, kind in ((2, FailedForGood), (4, FailedForGood), (5, Failed), (6, Failed), (7, Failed)):
        with pytest.raises(Failed) as caught:
            judge(code)
        assert caught.type is kind
