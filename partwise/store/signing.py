"""Signatures of documents: HMAC-SHA256 with keys that the store does not hold.

Whoever can write a store can write checksums too, but cannot sign. Keys come from the environment
variable `PARTWISE_SIGNING_KEYS`, for all stores, or from the block of a store, for this store
alone: who has the keys of one store is not to write what is believed in another. They are "ID:KEY,
ID:KEY", each key 64 hexadecimal digits. The first signs and all verify, so that a key can be
replaced. Without any, the key of this user on this machine signs: it is made when it is first
needed, in the folder that `state_folder` names, and says only which documents were made here.
Beside configured keys it does not count: what runs as this user, a function of a partition too, can
read it or put its own there.

Processes that run functions get no key, and one of them has to sign: the rank that keeps a
checkpoint. It gets a key that is derived for a scope, all checkpoints of its own attempt, and that
verifies nothing else.

A sealed document is JSON whose last members are its own checksum and its signature, both of the
bytes before them; a signature has a purpose besides, which document it is. So a document is still
one object, created at once, and a release that writes other members can verify it.
"""

import contextlib
import functools
import hashlib
import hmac
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from partwise.errors import InputError, SignatureError

if TYPE_CHECKING:
    from partwise.store.store import Store

KEYS_VARIABLE = "PARTWISE_SIGNING_KEYS"
STATE_VARIABLE = "PARTWISE_STATE"
"""Names the folder of what this user's processes remember; for tests and services."""
OWN_KEY_FILE = "signing-key"

_OWN = "own-"
"""What the IDs of keys of machines begin with."""
_KEY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_SECRET = re.compile(r"[0-9a-fA-F]{64}")
_SIGNATURE = re.compile(r"hmac-sha256:([A-Za-z0-9][A-Za-z0-9._-]{0,31}):([0-9a-f]{64})")
# Greedy, so that the last such members are the seal, and nothing that a text of it looks like.
_SEAL = re.compile(
    rb'(.*),\n  "sha256": "([0-9a-f]{64})"(?:,\n  "signature": "([^"\\\n]*)")?\n\}\n', re.DOTALL
)
_END = b"\n}\n"

_lock = threading.Lock()
_of_blocks: dict[tuple[str, str], str] = {}
"""By the endpoint of a store and its place, both as its URL has it and without links."""
_blocks_count: ContextVar[bool] = ContextVar("partwise_signing_keys_of_blocks", default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A key, and the name that signatures call it by."""

    key_id: str
    secret: bytes = field(repr=False)

    def digest(self, content: bytes, purpose: str) -> str:
        """Return the HMAC of a content for a purpose, as hexadecimal digits."""
        name = purpose.encode()
        # The length comes first, so that no content can be taken for the end of a purpose.
        message = b"partwise-signature-1\n%d\n%b\n%b" % (len(name), name, content)
        return hmac.new(self.secret, message, hashlib.sha256).hexdigest()

    def derived(self, scope: str) -> "SigningKey":
        """Return the key for a scope, which does not disclose this one; for "" this one."""
        if not scope:
            return self
        message = b"partwise-derived-key-1\n" + scope.encode()
        secret = hmac.new(self.secret, message, hashlib.sha256).digest()
        return SigningKey(key_id=self.key_id, secret=secret)

    def to_text(self) -> str:
        """Return the key as `parse_keys` reads it."""
        return f"{self.key_id}:{self.secret.hex()}"


def set_signing_keys(store: "Store", text: str) -> None:
    """Keep the keys of a store's block in this process, in place of those that it was given before.

    Those of the environment come before them. Child processes and workers do not inherit them, as
    they would the environment.
    """
    parse_keys(text, "the block's signing_keys")
    with _lock:
        # A link may lead elsewhere later, or a folder become one: keys do not vanish with that.
        for place in {store.url, place_of(store.url)}:
            _of_blocks[store.endpoint_url or "", place] = text


def place_of(url: str) -> str:
    """Return what two URLs of one store have in common: one may be a link to the other."""
    return url if "://" in url else os.path.realpath(url)


def parse_keys(text: str, where: str) -> tuple[SigningKey, ...]:
    """Return the keys that a text names, in its order.

    `text` is "ID:KEY, ID:KEY". `where` names it in messages, which never repeat a key.
    """
    keys: list[SigningKey] = []
    for number, item in enumerate(filter(None, re.split(r"[,\s]+", text)), 1):
        key_id, colon, secret = item.partition(":")
        if not colon or _KEY_ID.fullmatch(key_id) is None:
            raise InputError(
                f"Key {number} of {where} is not of the form ID:KEY, with an ID of up to 32 "
                "letters, digits, '.', '_' and '-'."
            )
        if _SECRET.fullmatch(secret) is None:
            raise InputError(
                f"The key {key_id!r} of {where} has {len(secret)} characters; it must be 64 "
                "hexadecimal digits, such as `openssl rand -hex 32` prints."
            )
        if any(key.key_id == key_id for key in keys):
            raise InputError(f"The key ID {key_id!r} stands twice in {where}; name each key once.")
        keys.append(SigningKey(key_id=key_id, secret=bytes.fromhex(secret)))
    return tuple(keys)


def configured_keys(store: "Store") -> tuple[SigningKey, ...]:
    """Return the keys that this process was given for a store; the first signs."""
    texts = _texts_of_blocks(store) if _blocks_count.get() else []
    of_blocks = (key for text in texts for key in parse_keys(text, "the block"))
    found: dict[str, SigningKey] = {}
    for key in (*parse_keys(os.environ.get(KEYS_VARIABLE, ""), KEYS_VARIABLE), *of_blocks):
        found.setdefault(key.key_id, key)
    return tuple(found.values())


def _texts_of_blocks(store: "Store") -> list[str]:
    """Return the keys of the blocks of a store.

    An endpoint that is not named may be any: a variable or a profile names it.
    """
    with _lock:
        found = [
            (endpoint, text)
            for wanted in (store.url, place_of(store.url))
            for (endpoint, place), text in _of_blocks.items()
            if place == wanted
        ]
    ours = store.endpoint_url or ""
    same = [text for endpoint, text in found if endpoint == ours]
    return same or [text for endpoint, text in found if not (ours and endpoint)]


@contextlib.contextmanager
def keys_of_blocks(*, count: bool) -> Iterator[None]:
    """Have the keys of blocks count in this thread, or not: those of an earlier run of a worker."""
    token = _blocks_count.set(count)
    try:
        yield
    finally:
        _blocks_count.reset(token)


def signing_keys_text(store: "Store") -> str:
    """Return the keys that this process was given for a store as one text; "": none."""
    return ", ".join(key.to_text() for key in configured_keys(store))


def given_key(store: "Store") -> SigningKey:
    """Return the key that signs; SignatureError where the caller of this process was given none."""
    keys = configured_keys(store)
    if not keys:
        raise SignatureError(
            "This process was not given the signing keys of its run; resume the run when the "
            "driver reaches all workers."
        )
    return keys[0]


def is_configured(store: "Store") -> bool:
    """Whether keys were given for a store, so that its unsigned documents are refused."""
    return bool(configured_keys(store))


def sign(content: bytes, purpose: str, by: "Store | SigningKey") -> str | None:
    """Return a signature of a content, with the ID of its key.

    `purpose` says which document it is: a content that is valid for one is not valid for another.
    `by` is the key, or the store: then its first that is configured, else this user's own.

    Returns:
        "hmac-sha256:ID:DIGEST"; None where no key is configured and this user has no folder to keep
        one in.
    """
    key: SigningKey | None
    if isinstance(by, SigningKey):
        key = by
    else:
        keys = configured_keys(by)
        key = keys[0] if keys else own_key()
    return None if key is None else f"hmac-sha256:{key.key_id}:{key.digest(content, purpose)}"


def verify(
    content: bytes, purpose: str, signature: str | None, store: "Store", scope: str = ""
) -> str | None:
    """Return the ID of the key that signed a content; None: no key that counts in the store did.

    `scope` is that of the key; "": it was not a derived one.
    """
    match = _SIGNATURE.fullmatch(signature or "")
    if match is None:
        return None
    keys = configured_keys(store)
    # Beside configured keys it does not count: a function of a partition runs as this user, and
    # can read it or put its own there.
    if not keys and (own := own_key(make=False)) is not None:
        keys = (own,)
    for key in keys:
        if key.key_id != match[1]:
            continue
        if hmac.compare_digest(key.derived(scope).digest(content, purpose), match[2]):
            return key.key_id
    return None


def seal(document: bytes, purpose: str = "", by: "Store | SigningKey | None" = None) -> bytes:
    """Return a JSON document with its checksum, and its signature, as its last members.

    `purpose` and `by` are as `sign` has them; `by` None: the document gets no signature.
    """
    body = document.removesuffix(_END)
    members = [f'"sha256": "{hashlib.sha256(body).hexdigest()}"']
    if by is not None and (signature := sign(body, purpose, by)):
        members.append(f'"signature": "{signature}"')
    return body + "".join(f",\n  {member}" for member in members).encode() + _END


def unseal(document: bytes) -> bytes | None:
    """Return what `seal` was given; None: it was changed since, or never sealed."""
    match = _SEAL.fullmatch(document)
    if match is None or hashlib.sha256(match[1]).hexdigest().encode() != match[2]:
        return None
    return match[1] + _END


def signer(document: bytes, purpose: str, store: "Store") -> str | None:
    """Return the ID of the key that signed a sealed document; None: none that counts there."""
    match = _SEAL.fullmatch(document)
    return None if match is None else verify(match[1], purpose, _text(match[3]), store)


def check_signed(
    document: bytes, purpose: str, where: str, store: "Store", scope: str = ""
) -> None:
    """Refuse a document that no key of its store signed, where keys are configured.

    It is unsigned, was altered, is another document, or of an unknown key: SignatureError. `scope`
    is as `verify` has it.
    """
    match = _SEAL.fullmatch(document)
    if match is None:
        check_signature(document, purpose, None, where, store)
    else:
        check_signature(match[1], purpose, _text(match[3]), where, store, scope)


def check_signature(
    content: bytes, purpose: str, text: str | None, where: str, store: "Store", scope: str = ""
) -> None:
    """Refuse a content that no key of its store signed, where keys are configured.

    It is unsigned, was altered, is another one, or of an unknown key: SignatureError. `scope` is as
    `verify` has it.
    """
    keys = configured_keys(store)
    if not keys or verify(content, purpose, text, store, scope) is not None:
        return
    signature = _SIGNATURE.fullmatch(text or "")
    if signature is None:
        raise SignatureError(
            f"{where} is not signed, and this process was given signing keys; restore it from a "
            f"backup, or read it without {KEYS_VARIABLE} if it is older than the keys and you "
            "trust the store."
        )
    if signature[1] in {key.key_id for key in keys}:
        raise SignatureError(
            f"{where} was changed after it was signed with the key {signature[1]!r}, or belongs "
            "elsewhere; restore it from a backup, and find out who can write to the store."
        )
    if signature[1].startswith(_OWN):
        raise SignatureError(
            f"{where} is signed with the key of one user on one machine, {signature[1]!r}, and "
            "this process was given signing keys, beside which that does not count; read it "
            f"without {KEYS_VARIABLE} if it is older than the keys and you trust the store."
        )
    raise SignatureError(
        f"{where} is signed with the key {signature[1]!r}, which this process does not have for "
        f"this store (it has {', '.join(repr(key.key_id) for key in keys)}); add it to "
        f"{KEYS_VARIABLE}, or to the store's block."
    )


def _text(signature: bytes | None) -> str:
    return (signature or b"").decode(errors="replace")


def state_folder() -> Path | None:
    """Return the folder of what this user's processes remember on this machine.

    It is `$PARTWISE_STATE`, else `$XDG_STATE_HOME/partwise`, else `~/.local/state/partwise`. None:
    it cannot be made.
    """
    named = os.environ.get(STATE_VARIABLE)
    base = os.environ.get("XDG_STATE_HOME")
    try:
        if named:
            folder = Path(named)
        else:
            folder = Path(base) if base else Path.home() / ".local" / "state"
            folder /= "partwise"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder


def own_key(*, make: bool = True) -> SigningKey | None:
    """Return the key of this user on this machine.

    None: there is none, or no folder to keep it in. It is made where it is missing, if `make` says
    so, and refused where others can read or write it.
    """
    folder = state_folder()
    if folder is None:
        return None
    path = folder / OWN_KEY_FILE
    try:
        if make and not path.exists():
            _make_key(path)
        return _read_key(str(path))
    except OSError:
        return None


@functools.lru_cache(maxsize=8)
def _read_key(path: str) -> SigningKey:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), encoding="ascii", errors="replace") as file:
        about = os.fstat(file.fileno())
        # What others can read, others can sign with; what they can write may be theirs.
        if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
            raise InputError(
                f"{path} holds this user's signing key, and others may have read or written it; "
                "delete it, and a new one is made (runs that it signed then count as made "
                "elsewhere)."
            )
        keys = parse_keys(file.read(), path)
    if len(keys) != 1:
        raise InputError(f"{path} does not hold one signing key; delete it, and one is made.")
    return keys[0]


def _make_key(path: Path) -> None:
    """Make a key; of several processes that do so at once all get that of the first."""
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    content = f"{_OWN}{secrets.token_hex(4)}:{secrets.token_hex(32)}\n".encode()
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        # A link is made only where there is none, and shows the file whole.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
