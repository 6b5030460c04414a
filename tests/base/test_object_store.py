"""What errors of S3 say, in a few words."""

import pytest

from headgate.base.object_store import is_s3, s3_problem

ARROW = "When reading 'a' in bucket 'b': AWS Error "
UNSAID = "the store refuses these credentials"
OBSTORE = "Generic S3 error: Error performing PUT http://host/b/a in 2 ms - "


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            f"{ARROW}NO_SUCH_BUCKET during PutObject operation: Gone.",
            "there is no such bucket",
        ),
        (f"{ARROW}ACCESS_DENIED during HeadObject operation: No response body.", UNSAID),
        (
            f"{ARROW}ACCESS_DENIED during HeadObject operation: None.",
            "access is denied",
        ),
        (
            f"{ARROW}SLOW_DOWN during UploadPart operation (after 7 retries): Please.",
            "the store throttles requests (SlowDown)",
        ),
        (
            f"{ARROW}UNKNOWN (HTTP status 400) during CompleteMultipartUpload operation: Unable to "
            "parse ExceptionName: EntityTooSmall Message: Too small.",
            "EntityTooSmall: Too small",
        ),
        (
            f"{OBSTORE}Server returned non-2xx status code: 403 Forbidden: <Error><Code>Invalid"
            "AccessKeyId</Code><Message>Who?</Message></Error>",
            "the access key is unknown to the store",
        ),
        (f"{OBSTORE}Server returned non-2xx status code: 403 Forbidden:", UNSAID),
        (f"{OBSTORE}HTTP error: error sending request", ""),
        ("[Errno 28] No space left on device", ""),
    ],
)
def test_an_error_is_told_in_a_few_words(text: str, problem: str) -> None:
    found, advice = s3_problem(text)
    assert found == problem
    assert bool(advice) == bool(problem)


def test_an_address_of_s3_is_known_by_its_scheme() -> None:
    assert is_s3("s3://bucket/path") and is_s3("S3://bucket")
    assert not is_s3("/s3://bucket") and not is_s3("gs://bucket")
