"""Records for a channel that the test chooses, by the way that routed records take."""

from headgate.base.elements import Bundle, Record
from headgate.core.egress.writer import RecordWriter


def emit_to(writer: RecordWriter, channel: int, records: list[Record]) -> None:
    """Send records to one chosen channel, whatever the router would say."""
    if not records:
        return
    writer.flush_error()
    writer.seal()
    writer.records_out += len(records)
    writer.unflushed = True
    writer._write_records(channel, Bundle(list(records)), alone=writer._router.is_broadcast)
    if writer.timeout_ms == 0:
        writer._flush_lanes([channel])
