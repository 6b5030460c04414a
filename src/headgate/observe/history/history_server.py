"""Serves a folder of archives, until it is told to end; for ``headgate history``.

The thread that calls ``serve`` is the server's own. Law: the port is bound before, so that its
address can be printed; an address that others can reach asks for a token.
"""

import logging
from urllib.parse import quote

import uvicorn

from headgate.base.settings import RestSettings
from headgate.observe.history.archive_folder import ArchiveList, FilesFolder
from headgate.observe.history.history_app import make_history_app
from headgate.observe.web.addresses import bind, public_name, reachable, token_of
from headgate.observe.web.connections import make_config


class HistoryServer:
    """Listens from its construction to ``close``."""

    def __init__(self, folder: FilesFolder, settings: RestSettings) -> None:
        """Raises OSError if the address or the port cannot be had."""
        self.token = token_of(settings)
        self._address = settings.bind_address
        self._is_own_token = not settings.token
        self.archives = ArchiveList(folder)
        self._socket = bind(settings)
        self.port: int = self._socket.getsockname()[1]
        app = make_history_app(self.archives, bind_address=settings.bind_address, token=self.token)
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # it tells its life
        self._server = uvicorn.Server(make_config(app, timeout_graceful_shutdown=1))

    @property
    def url(self) -> str:
        """For people; with the token, if the server has made one."""
        name = public_name(self._address, reachable(self._address))
        path = f"token={quote(self.token, safe='')}" if self.token and self._is_own_token else "/"
        return f"http://{name}:{self.port}/#{path}"

    def serve(self) -> None:
        """Until ``close``, or a signal to the main thread."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def close(self) -> None:
        """From any thread; ``serve`` returns soon. Idempotent."""
        self._server.should_exit = True
