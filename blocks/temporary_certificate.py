"""The certificate of a cluster on this machine, which lives as long as the cluster."""

from datetime import UTC, datetime, timedelta

import dask
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from distributed.security import Security

_NAME = "dask-internal"
_VALID = timedelta(days=365)


def temporary_security() -> Security:
    """Return what has each connection of a cluster show the one certificate, made here.

    As `Security.temporary` of Dask, whose RSA key takes 0.03 to 0.13 s to find; one of the curve
    P-256 takes none.
    """
    # Ciphers that somebody has configured for Dask may be those of RSA alone.
    if dask.config.get("distributed.comm.tls.ciphers"):
        made: Security = Security.temporary()
        return made
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + _VALID)
    alternative = x509.SubjectAlternativeName([x509.DNSName(_NAME)])
    certificate = builder.add_extension(alternative, critical=False).sign(key, hashes.SHA256())
    shown = certificate.public_bytes(serialization.Encoding.PEM).decode()
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    roles = ("client", "scheduler", "worker")
    files = dict.fromkeys((f"tls_{role}_cert" for role in roles), shown)
    files |= dict.fromkeys((f"tls_{role}_key" for role in roles), secret)
    return Security(require_encryption=True, tls_ca_file=shown, **files)
