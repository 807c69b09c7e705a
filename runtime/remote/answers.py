"""Errors of obstore as errors of a store, in one line for people: the store's own code and message, and no credentials.

obstore tells three kinds of errors apart and puts the answer of the store, often XML of several lines, into the text of the error. An answer of S3 to a
wrong signature repeats the key's id and what was signed, so only its code and message are taken.
"""

from __future__ import annotations

import re

from flowql.runtime.remote.errors import RemoteError, RemoteRefused

_STATUS = re.compile(r"status code: (\d{3})(?: ([A-Za-z ]+))?")
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>|\"status\": ?\"([^\"]{1,100})\"")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})</Message>|\"message\": ?\"([^\"]{1,300})\"")
_REFUSED = ("PermissionDeniedError", "UnauthenticatedError", "UnknownConfigurationKeyError")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")
_EXPIRED = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired", "ExpiredAuthenticationToken")
_FULL = ("InsufficientStorage", "StorageFull", "QuotaExceeded", "quotaExceeded", "XMinioAdminBucketQuotaExceeded")
_REGION = "incorrectly configured region"
_TEXT_MAX = 300


def failure(what: str, error: Exception) -> RemoteError:
    """what: the store and what was asked for."""
    text = str(error).strip()
    status, code, message = (_found(pattern, text) for pattern in (_STATUS, _CODE, _MESSAGE))
    answer = " ".join(w for w in (status, code) if w)
    said = (
        f"{answer}: {message}"
        if answer and message
        else answer or text.partition("\n")[0][:_TEXT_MAX] or type(error).__name__
    )
    if names_no_bucket(error):
        return RemoteRefused(f"{what}: there is no such bucket ({said})")
    if _REGION in text:
        return RemoteRefused(f"{what}: the bucket is in another region: set AWS_REGION, or AWS_ENDPOINT_URL")
    if any(word in code for word in _EXPIRED):
        return RemoteRefused(f"{what}: the credentials have expired ({said})")
    if status == "507" or any(word in code for word in _FULL):
        return RemoteError(f"{what}: the store has no space left ({said})")
    refused = type(error).__name__ in _REFUSED or status in ("401", "403")
    return (RemoteRefused if refused else RemoteError)(f"{what}: {said}")


def names_no_bucket(error: Exception) -> bool:
    """Whether the bucket itself is missing: then nobody knows whether an object is there."""
    return any(word in str(error) for word in _NO_BUCKET)


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return "" if match is None else next(g for g in match.groups() if g).strip()
