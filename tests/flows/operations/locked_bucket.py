"""A bucket that opens with one pair of keys, and that keeps every object it ever had."""

import io
import json
import urllib.request
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow.parquet as pq

ALL_OF_S3 = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}


@dataclass(frozen=True, kw_only=True)
class LockedBucket:
    """The bucket, its S3 server's address, and the keys, which nobody could guess."""

    endpoint_url: str
    name: str
    key_id: str
    secret: str

    @property
    def url(self) -> str:
        return f"s3://{self.name}/models"

    @classmethod
    @contextmanager
    def of(cls, endpoint_url: str) -> Iterator["LockedBucket"]:
        """Make one, and have the server look at keys for the time of the block."""
        import boto3

        name = f"locked-{uuid.uuid4().hex}"
        s3 = boto3.client("s3", endpoint_url=endpoint_url)
        s3.create_bucket(Bucket=name)
        s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        s3.close()
        iam = boto3.client("iam", endpoint_url=endpoint_url)
        iam.create_user(UserName=name)
        policy = json.dumps({"Version": "2012-10-17", "Statement": [ALL_OF_S3]})
        iam.put_user_policy(UserName=name, PolicyName="all", PolicyDocument=policy)
        keys = iam.create_access_key(UserName=name)["AccessKey"]
        iam.close()
        _demand_keys_after(endpoint_url, "0")
        try:
            yield cls(
                endpoint_url=endpoint_url,
                name=name,
                key_id=keys["AccessKeyId"],
                secret=keys["SecretAccessKey"],
            )
        finally:
            _demand_keys_after(endpoint_url, "inf")

    def contents(self) -> dict[str, bytes]:
        """All that was ever written, also what was deleted; archives and tables unpacked."""
        import boto3

        keys = {"aws_access_key_id": self.key_id, "aws_secret_access_key": self.secret}
        s3 = boto3.client("s3", endpoint_url=self.endpoint_url, **keys)
        found: dict[str, bytes] = {}
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=self.name):
            for entry in page.get("Versions", []):
                chosen = {"Key": entry["Key"], "VersionId": entry["VersionId"]}
                content = s3.get_object(Bucket=self.name, **chosen)["Body"].read()
                name = f"{entry['Key']}@{entry['VersionId']}"
                found[name] = content
                found |= {f"{name}:{part}": inner for part, inner in unpacked(name, content)}
        s3.close()
        return found


def unpacked(name: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    """What a compressed file holds."""
    path = name.rpartition("@")[0]
    if path.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            yield from ((part, archive.read(part)) for part in archive.namelist())
    elif path.endswith(".parquet"):
        yield "rows", repr(pq.read_table(io.BytesIO(content)).to_pylist()).encode()


def _demand_keys_after(endpoint_url: str, requests: str) -> None:
    asked = urllib.request.Request(
        f"{endpoint_url}/moto-api/reset-auth",
        data=requests.encode(),
        headers={"Content-Type": "text/plain"},
    )
    with urllib.request.urlopen(asked, timeout=10) as answer:
        assert answer.status == 200
