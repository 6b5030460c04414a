"""Authorities, certificates and keys for tests, made on the spot."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headgate.base.settings import ExchangeSettings
from tests.host.rig import quick

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """Paths of a certificate and its key."""

    certificate: str
    key: str


class Authority:
    """Signs certificates; its own is at ``path``."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        certificate = (
            self._begin(self._name, self._key)
            .add_extension(constraints, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.path = str(folder / f"{name}.pem")
        Path(self.path).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, password: bytes | None = None) -> Identity:
        """A certificate for a worker, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        certificate = (
            self._begin(subject, key)
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        encryption = (
            serialization.BestAvailableEncryption(password)
            if password
            else serialization.NoEncryption()
        )
        paths = Identity(str(self._folder / f"{name}.crt"), str(self._folder / f"{name}.key"))
        Path(paths.certificate).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        Path(paths.key).write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
            )
        )
        return paths

    def _begin(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
        )


def settings_of(authority: Authority, identity: Identity, **changes: object) -> ExchangeSettings:
    return quick(
        tls_enabled=True,
        tls_certificate=identity.certificate,
        tls_key=identity.key,
        tls_authority=authority.path,
        **changes,
    )
