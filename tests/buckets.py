"""New buckets in the object stores that the environment names; ``.ci/outside`` names imitations on this machine."""

from __future__ import annotations

import os
import uuid

import fsspec
import pytest

WHERE = {"s3": "AWS_ENDPOINT_URL", "gs": "STORAGE_EMULATOR_HOST", "abfs": "AZURE_STORAGE_CONNECTION_STRING"}
"""Schemes, each with the variable by which its client finds another server than the cloud's."""


def new_bucket(scheme: str) -> str:
    """The URL of an empty bucket or container. Skips the test if the environment names no server for it."""
    if WHERE[scheme] not in os.environ:
        pytest.skip(f"{WHERE[scheme]} names no server")
    name = f"st{uuid.uuid4().hex[:12]}"
    fsspec.filesystem(scheme).mkdir(name)
    return f"{scheme}://{name}"


def as_spark_writes(url: str) -> str:
    """The bucket's URL as it is in a job that reads it."""
    scheme, _, name = url.partition("://")
    return {"s3": f"s3a://{name}", "abfs": f"abfss://{name}@devstoreaccount1.dfs.core.windows.net"}.get(scheme, url)
