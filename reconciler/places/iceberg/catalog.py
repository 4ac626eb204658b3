"""A catalog of pyiceberg's configuration, whose requests end.

Import it only where a table is opened: pyiceberg takes a second to load. Its client of a REST catalog sets no time
limit (``RestCatalog._create_session`` of 0.12), so that a request which its caller has given up would keep a thread and
a connection forever, and in a watcher one more each round. Other catalogs' clients keep the limits that they have.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pyiceberg.catalog import TYPE, URI, CatalogType, infer_catalog_type, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.utils.config import Config


def open_catalog(name: str, timeout_s: float) -> Any:
    """The catalog of that name. Of a REST catalog, every request ends after ``timeout_s`` without an answer."""
    configured = Config().get_catalog_config(name) or {}
    if URI not in configured:
        return load_catalog(name)  # it has the words for what is missing, and knows the catalogs without a URI
    kind = configured[TYPE] if TYPE in configured else infer_catalog_type(name, configured)
    is_rest = kind is CatalogType.REST or str(kind).lower() == CatalogType.REST.value
    return _Rest(name, timeout_s, configured) if is_rest else load_catalog(name)


class _Rest(RestCatalog):  # type: ignore[misc]
    """pyiceberg's REST catalog, with a limit in each of its sessions."""

    def __init__(self, name: str, timeout_s: float, configured: Any) -> None:
        self._timeout_s = timeout_s
        super().__init__(name, **configured)

    def _create_session(self) -> Any:
        return self._limited(super()._create_session())

    def _create_legacy_oauth2_auth_manager(self, session: Any) -> Any:
        """It asks for a token at once, by the session that is being made."""
        return super()._create_legacy_oauth2_auth_manager(self._limited(session))

    def _limited(self, session: Any) -> Any:
        session.request = partial(type(session).request, session, timeout=self._timeout_s)
        return session
