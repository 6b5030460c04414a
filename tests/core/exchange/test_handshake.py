"""The handshake: only those who know the job's secret get in. Row 115 (before anything else)."""

import pytest

from headgate.base.errors import BeforeHandshake, PeerBrokeProtocol, PeerUnproven
from headgate.base.ids import PeerName
from headgate.base.settings import Compression, FlowControl
from headgate.core.exchange.frames import (
    Alive,
    Close,
    LinkChallenge,
    LinkHello,
    LinkProof,
    LinkWelcome,
    Message,
)
from headgate.core.exchange.handshake import LIFE, Handshake, HandshakeStep

SECRET = b"a secret of the job"


def side(
    is_client: bool,
    secret: bytes = SECRET,
    nonce: int | None = None,
    flow_control: FlowControl = FlowControl.CREDIT,
    segment_bytes: int = 64,
) -> Handshake:
    number = nonce if nonce is not None else (1 if is_client else 2)
    return Handshake(
        is_client=is_client,
        secret=secret,
        nonce=bytes([number]) * 16,
        flow_control=flow_control,
        compression=Compression.NONE,
        segment_bytes=segment_bytes,
        peer=PeerName("the server" if is_client else "the client"),
    )


def answered(message: Message | None) -> Message:
    assert message is not None
    return message


def challenge_of(client: Handshake, server: Handshake) -> LinkChallenge:
    challenge = server.received(client.first_word())
    assert isinstance(challenge, LinkChallenge)
    return challenge


def test_two_sides_with_the_same_secret_prove_themselves() -> None:
    client, server = side(True), side(False)
    proof = answered(client.received(challenge_of(client, server)))
    assert not server.is_done and not client.is_done
    welcome = answered(server.received(proof))
    assert server.is_done and not client.is_done
    assert client.received(welcome) is None
    assert client.is_done


def test_client_sees_a_server_with_another_secret() -> None:
    client, server = side(True), side(False, secret=b"of another job")
    with pytest.raises(PeerUnproven, match="secret") as caught:
        client.received(challenge_of(client, server))
    assert caught.value.peer == "the server"
    assert not client.is_done


def test_server_sees_a_client_with_another_secret() -> None:
    client, server = side(True, secret=b"of another job"), side(False)
    challenge_of(client, server)
    with pytest.raises(PeerUnproven) as caught:
        server.received(LinkProof(bytes(32)))
    assert caught.value.peer == "the client"
    assert not server.is_done


def test_challenge_recorded_on_another_connection_proves_nothing() -> None:
    recorded = challenge_of(side(True, nonce=3), side(False))
    with pytest.raises(PeerUnproven):
        side(True, nonce=4).received(recorded)


def test_proof_recorded_on_another_connection_proves_nothing() -> None:
    client = side(True)
    recorded = answered(client.received(challenge_of(client, side(False, nonce=5))))
    server = side(False, nonce=6)
    challenge_of(side(True), server)
    with pytest.raises(PeerUnproven):
        server.received(recorded)


def test_server_does_not_take_its_own_proof_back() -> None:
    client, server = side(True), side(False)
    challenge = challenge_of(client, server)
    with pytest.raises(PeerUnproven):
        server.received(LinkProof(challenge.proof))


@pytest.mark.parametrize("length", [0, 1, 31])
def test_proof_that_is_cut_short_proves_nothing(length: int) -> None:
    client, server = side(True), side(False)
    challenge = challenge_of(client, server)
    with pytest.raises(PeerUnproven):
        side(True).received(LinkChallenge(challenge.nonce, challenge.proof[:length]))
    proof = answered(client.received(challenge))
    assert isinstance(proof, LinkProof)
    with pytest.raises(PeerUnproven):
        server.received(LinkProof(proof.proof[:length]))
    assert not server.is_done


def test_client_does_not_take_its_own_nonce_back() -> None:
    client, server = side(True, nonce=7), side(False, nonce=7)
    with pytest.raises(PeerUnproven, match="own nonce"):
        client.received(challenge_of(client, server))


@pytest.mark.parametrize(
    ("changed", "described"),
    [
        ({"flow_control": FlowControl.TCP}, "tcp flow control"),
        ({"segment_bytes": 128}, "segments of 128 bytes"),
    ],
)
def test_differing_settings_are_named_on_the_server(
    changed: dict[str, object], described: str
) -> None:
    client, server = side(True, **changed), side(False)  # type: ignore[arg-type]
    with pytest.raises(PeerBrokeProtocol, match=described) as caught:
        server.received(client.first_word())
    assert "the same settings" in str(caught.value)


def test_flow_control_of_the_future_is_named_by_its_number() -> None:
    with pytest.raises(PeerBrokeProtocol, match="unknown 9 flow control"):
        side(False).received(LinkHello(9, 64, bytes(16)))


def test_settings_changed_on_the_way_break_the_proof() -> None:
    client, server = side(True, segment_bytes=128), side(False)
    hello = client.first_word()
    challenge = answered(server.received(LinkHello(hello.flow_control, 64, hello.nonce)))
    with pytest.raises(PeerUnproven):
        client.received(challenge)


EVERY: list[Message] = [
    LinkHello(0, 64, bytes(16)),
    LinkChallenge(bytes(16), bytes(32)),
    LinkProof(bytes(32)),
    LinkWelcome(),
    Alive(),
    Close(),
]


@pytest.mark.parametrize("step", HandshakeStep)
@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_message_out_of_order_is_refused(step: HandshakeStep, message: Message) -> None:
    if (step, type(message)) in LIFE:
        return
    handshake = side(step in (HandshakeStep.CLIENT_ASKED, HandshakeStep.CLIENT_PROVED))
    handshake.step = step
    with pytest.raises(BeforeHandshake, match=step.value):
        handshake.received(message)
    assert handshake.step is step


def test_second_hello_cannot_replace_the_first() -> None:
    client, server = side(True), side(False)
    challenge_of(client, server)
    with pytest.raises(BeforeHandshake):
        server.received(client.first_word())


def test_failed_proof_leaves_the_server_unproven() -> None:
    client, server = side(True), side(False)
    challenge_of(client, server)
    for _ in range(2):
        with pytest.raises(PeerUnproven):
            server.received(LinkProof(bytes(32)))
    assert server.step is HandshakeStep.SERVER_ASKED


def test_sides_that_compress_differently_do_not_talk() -> None:
    with pytest.raises(PeerBrokeProtocol, match="zstd compression .* none compression"):
        side(False).received(LinkHello(0, 64, bytes(16), compression=2))
