"""Made-up secrets in sentences as libraries say them, sent through each way that text is kept.

`try_canaries` needs neither Dask nor Prefect's server, so that any number can be tried.
"""

import logging
import os
import random
import string
from pathlib import Path
from unittest import mock

from partwise.engine.child.log import read_log
from partwise.engine.failures import describe_error, storable
from partwise.errors import StoreError
from partwise.flows.orchestration.endings import Masking
from partwise.redaction import masked

SENTENCES = [
    "FATAL: password={}",
    "connect(host='db', password='{}', user='app')",
    '{{"aws_secret_access_key": "{}", "region": "eu"}}',
    "aws_secret_access_key={}",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={}==;EndpointSuffix=core",
    "Endpoint=sb://x/;SharedAccessKeyName=root;SharedAccessKey={}=",
    "curl -H 'Authorization: Bearer {}' failed",
    "Authorization: Basic {}",
    "GET https://b.s3.amazonaws.com/k?X-Amz-Credential=AK%2F1&X-Amz-Signature={}&x=1",
    "https://a.blob.core.windows.net/c?sv=2024&sig={}",
    "git clone https://bot:{}@git.example.org/x.git",
    "redis://:{}@cache:6379/0 does not answer",
    "api_key: {}",
    "client_secret = '{}'",
    "session_token={}",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
]
KNOWN = "the value {} of the environment"
"""Has neither a name nor a form: only its value is known."""


def try_canaries(seed: int, number: int, folder: Path) -> tuple[int, list[str]]:
    """Send so many secrets through every way; return how often one was tried, and where it leaked.

    Args:
        seed: Of the secrets and of the sentences around them.
        number: How many secrets.
        folder: For a log, which has to be a file.
    """
    chance = random.Random(seed)
    tried, leaked = 0, []
    for _ in range(number):
        secret = "".join(chance.choices(string.ascii_letters + string.digits, k=20))
        sentence = chance.choice([*SENTENCES, KNOWN])
        known = {"SHOP_DB_PASSWORD": secret} if sentence == KNOWN else {}
        with mock.patch.dict(os.environ, known):
            kept = _kept(sentence.format(secret))
        with mock.patch.dict(os.environ, {"SHOP_DB_PASSWORD": secret}):
            kept["log"] = _logged(f"mine: {secret}", folder)
        tried += len(kept)
        leaked += [f"{way}: {sentence}" for way, text in kept.items() if secret in text]
    return tried, leaked


def _kept(text: str) -> dict[str, str]:
    try:
        try:
            raise ConnectionError(text)
        except ConnectionError as error:
            raise ValueError(f"cannot train: {text}") from error
    except ValueError as error:
        failure = describe_error(error)
    record = logging.makeLogRecord({"msg": "it said %s", "args": (text,)})
    Masking().filter(record)
    return {
        "message": failure.message,
        "traceback": failure.traceback,
        "error": str(StoreError(text)),
        "reason": storable(text),
        "parameter": repr(masked({"deep": [text]})),
        "line": record.getMessage(),
    }


def _logged(text: str, folder: Path) -> str:
    path = folder / "log"
    path.write_text(text)
    with path.open("rb") as file:
        return read_log(file.fileno(), path.stat().st_size).decode()
