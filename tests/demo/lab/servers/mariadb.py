"""One MariaDB server on this machine, for the tests."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from reconciler.core.errors import ConfigError, Unreachable
from reconciler.demo.lab.kafka import HOST
from tests.demo.lab.servers.server import Server

USER, PASSWORD, DATABASE = "reconciler", "a secret/of the lab", "results"


class MariaServer(Server):
    """A MariaDB server, as the user who runs the tests; ``USER`` may do anything.

    Raises ConfigError if this machine has none.
    """

    name = "MariaDB"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        path = f"{os.environ.get('PATH', '')}:/usr/sbin"
        self._program = shutil.which("mariadbd", path=path)
        self._install = shutil.which("mariadb-install-db", path=path)
        if self._program is None or self._install is None:
            raise ConfigError(
                "There is no MariaDB server on this machine.", hint="Install one (Debian and Ubuntu: mariadb-server)."
            )

    def start(self) -> Self:
        """Start it and wait until it answers. A second start keeps the address and the data."""
        if not (self._data / "mysql").exists():
            self._make_data()
        return super().start()

    def command(self, *ports: int) -> list[str]:
        return [
            *(str(self._program), "--no-defaults", f"--user={_user()}", f"--datadir={self._data}"),
            *(f"--bind-address={HOST}", f"--port={ports[0]}", f"--socket={self.directory}/socket"),
            *("--skip-name-resolve", "--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=16M"),
            *("--skip-log-bin", "--performance-schema=OFF"),
        ]

    def is_ready(self, *ports: int) -> bool:
        import pymysql

        try:
            self._connect(ports[0]).close()
        except pymysql.Error:
            return False
        return True

    def connect(self, database: str = DATABASE, *, user: str = USER) -> Any:
        """A plain connection that commits each statement."""
        return self._connect(self.ports[0], user=user, database=database)

    def _connect(self, port: int, **settings: Any) -> Any:
        import pymysql

        return pymysql.connect(
            host=HOST, port=port, **{"user": USER, "password": PASSWORD, "autocommit": True, **settings}
        )

    def url(self, database: str = DATABASE) -> str:
        """The address of a database, with its secret."""
        return f"mysql://{USER}:{quote(PASSWORD, safe='')}@{self.address}/{database}"

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _make_data(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        account = f"CREATE USER {USER}@'%' IDENTIFIED BY '{PASSWORD}';\n"
        grants = f"GRANT ALL ON *.* TO {USER}@'%' WITH GRANT OPTION;\nCREATE DATABASE {DATABASE};\n"
        options = ["--no-defaults", f"--user={_user()}", f"--datadir={self._data}", "--skip-test-db"]
        first = self.directory / "first.sql"
        first.write_text(f"FLUSH PRIVILEGES;\n{account}{grants}", encoding="utf-8")
        made = subprocess.run(
            [str(self._install), *options, "--auth-root-authentication-method=normal"],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode == 0:
            made = subprocess.run(
                [str(self._program), *options[:3], "--bootstrap", "--skip-log-bin"],
                input=first.read_text(encoding="utf-8"),
                capture_output=True,
                text=True,
                check=False,
            )
        if made.returncode != 0:
            raise Unreachable("MariaDB's data could not be made.", hint=f"It said: {made.stderr or made.stdout}")


def _user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name
