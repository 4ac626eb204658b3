"""Offsets in manifests, a file a batch, on any file system that fsspec opens: the store behind ``files:PATH``."""
