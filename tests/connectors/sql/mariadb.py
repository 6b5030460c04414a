"""A real MariaDB server for tests; without its system tables it is made in no time."""

import re
from pathlib import Path
from typing import Any

from tests.servers import ServerProcess, accepts, free_port, program

OPTIONS = (
    "--no-defaults",
    "--skip-grant-tables",
    "--skip-name-resolve",
    "--skip-networking=0",
    "--skip-log-bin",
    "--performance-schema=OFF",
    "--bind-address=127.0.0.1",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-flush-method=O_DIRECT_NO_FSYNC",
    "--innodb-doublewrite=0",
    "--innodb-log-file-size=4M",
    "--innodb-buffer-pool-size=16M",
    "--innodb-data-file-path=ibdata1:5M:autoextend",
)


TABLES_OF_RIGHTS = (
    *("global_priv", "db", "tables_priv", "columns_priv", "procs_priv", "proxies_priv"),
    *("roles_mapping", "servers"),
)
SYSTEM_TABLES = ("mariadb_system_tables.sql", "mysql_system_tables.sql")
"""As MariaDB's own set-up makes them."""


class MariaServer(ServerProcess):
    """Every test finds an empty table ``found``."""

    def __init__(self, folder: Path) -> None:
        data = folder / "data"
        data.mkdir()
        self.port = free_port()
        command = [program("mariadbd"), *OPTIONS, f"--datadir={data}", f"--port={self.port}"]
        command += [f"--socket={folder / 'socket'}", "--user=root"]
        super().__init__(command, lambda: accepts(self.port), folder / "log")

    def connect(self, **options: Any) -> Any:
        import pymysql

        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="root",
            database="shop",
            ssl_disabled=True,  # loading certificates takes a tenth of a second
            **options,
        )

    def clear(self) -> None:
        import pymysql

        with pymysql.connect(host="127.0.0.1", port=self.port, user="root") as connection:
            cursor = connection.cursor()
            cursor.execute("DROP DATABASE IF EXISTS shop")
            cursor.execute("CREATE DATABASE shop")
            cursor.execute("CREATE TABLE shop.found (n INT, word VARCHAR(20) NOT NULL)")

    def check_rights(self) -> None:
        """From now on, until it is started again: it knows ``root`` and the users that he makes."""
        import pymysql

        folder = Path("/usr/share/mysql")
        (script, *_) = [folder / name for name in SYSTEM_TABLES if (folder / name).exists()]
        text = script.read_text()
        with pymysql.connect(host="127.0.0.1", port=self.port, user="root") as connection:
            cursor = connection.cursor()
            cursor.execute("CREATE DATABASE IF NOT EXISTS mysql")
            cursor.execute("USE mysql")
            for table in TABLES_OF_RIGHTS:
                made = re.search(rf"CREATE TABLE IF NOT EXISTS {table} .*?(?=;\n)", text, re.DOTALL)
                assert made is not None, table
                cursor.execute(made[0])
            everything = f'{{"access": {2**64 - 1}}}'
            cursor.execute("REPLACE INTO global_priv VALUES ('%%', 'root', %s)", (everything,))
            connection.commit()
            cursor.execute("FLUSH PRIVILEGES")

    def rows(self, query: str) -> list[Any]:
        with self.connect() as connection:
            cursor = connection.cursor()
            cursor.execute(query)
            connection.commit()
            return list(cursor.fetchall())

    def numbers(self) -> list[int]:
        return [number for (number,) in self.rows("SELECT n FROM found ORDER BY n")]
