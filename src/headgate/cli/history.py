"""``headgate history``: the page and the REST API of jobs that have ended, from their archives.

Drivers write the archives, if the setting jobmanager.archive.fs.dir names a folder.
"""

import click

from headgate.base.extras import install_command
from headgate.base.settings import MAX_PORT, RestSettings
from headgate.host.checkpoints.folder import open_folder
from headgate.observe.logs import log_settings, set_up_logs


@click.command()
@click.argument("folder", metavar="FOLDER")
@click.option(
    "--port",
    type=click.IntRange(0, MAX_PORT),
    default=0,
    help="Where the page is; without it 8081, or the next free port.",
)
@click.option(
    "--bind",
    "bind_address",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="From another address than the loopback one the page asks for a token.",
)
@click.option(
    "--token",
    envvar="HEADGATE__REST__TOKEN",
    default="",
    help="The one it asks for; without it one is made and printed.",
)
def history(folder: str, port: int, bind_address: str, token: str) -> int:
    """Show the jobs that have ended and whose archives are in FOLDER, until Ctrl-C.

    FOLDER is a path or a URI, as in jobmanager.archive.fs.dir. New archives appear while the
    server runs; it changes nothing.
    """

    logs = log_settings({})
    set_up_logs(logs.level.value, logs.format.value)
    settings = RestSettings(bind_address=bind_address, port=port, token=token)
    archives = open_folder(folder)
    if (found := archives.look()) is None or not found.is_folder:
        raise click.BadParameter(f"{archives.shown} is no folder", param_hint="FOLDER")
    try:
        from headgate.observe.history.history_server import HistoryServer
    except ImportError as error:
        problem = f"{error.name} is not installed; {install_command('ui')} adds it"
        raise click.ClickException(problem) from error
    try:
        server = HistoryServer(archives, settings)
    except OSError as error:
        where = f"port {port}" if port else "any port"
        problem = f"{where} of {bind_address} cannot be opened: {error.strerror or error}"
        raise click.ClickException(problem) from error
    listed = len(server.archives.archives())
    click.echo(f"archives of {archives.shown} ({listed:,}) are shown at {server.url}", err=True)
    server.serve()
    return 0
