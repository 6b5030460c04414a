"""Buffers in flight as bytes: what an unaligned checkpoint keeps of them.

Law: the bytes are those that a deserializer would have read, from where its reader stands. They are
copied at once. Slow storage then holds no segment, and records that were handed over by reference
are written before their consumer can change them.
"""

from headgate.base.elements import LENGTH, Bundle, ByteLike, Serializer, encode_element
from headgate.core.buffers.buffer import Buffer, BufferConsumer


def bundle_bytes(bundle: Bundle, serializer: Serializer) -> bytes:
    """A bundle as it would have been written into buffers."""
    return b"".join(encode_element(bundle, serializer))


def buffer_bytes(buffer: Buffer, serializer: Serializer) -> bytes:
    """All of a data buffer."""
    if buffer.bundle is not None:
        return bundle_bytes(buffer.bundle, serializer)
    return bytes(buffer.view)


def waiting_bytes(consumer: BufferConsumer, serializer: Serializer) -> bytes:
    """What was written and not read yet; the consumer stays where it is."""
    builder = consumer.builder
    if builder is not None:
        return bytes(builder.memory[consumer.position : builder.committed])
    return b"" if consumer.ready is None else buffer_bytes(consumer.ready, serializer)


def begun_bytes(length: ByteLike, gathered: ByteLike | None, missing: int) -> bytes:
    """What a deserializer has taken of an element that spans buffers.

    ``length``: the bytes of its length as long as that is not complete; then ``gathered`` holds
    what follows it, and ``missing`` bytes are still to come.
    """
    if gathered is None:
        return bytes(length)
    return LENGTH.pack(len(gathered) + missing) + bytes(gathered)
