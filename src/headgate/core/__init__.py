"""Machines of the data path: no threads, no sockets, no clock. ``host`` and ``sim`` drive them.

The folders follow a record: it rides in ``buffers``, leaves through ``egress``, crosses the wire by
``exchange`` and arrives through ``ingress``.
"""
