"""Names of things that tasks of different processes talk about.

A partition is named by a readable string, so that an error can say which task's output it means.
Channels and task managers get theirs from their own process; a channel id is unique within it.
"""

from typing import NewType

PartitionId = NewType("PartitionId", str)
"""A task's output, for instance ``orders/map/3#0``: job, vertex, subtask, attempt."""

ChannelId = NewType("ChannelId", int)
"""One input channel (the *receiver* of frames), unique within its task manager."""

PeerName = NewType("PeerName", str)
"""How errors call the process at the other end, for instance ``127.0.0.1:4711``."""

MAX_PARTITION_ID_BYTES = 1024
