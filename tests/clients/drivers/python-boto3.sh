# Python boto3
family=Python
install() { pypi boto3; }
version() { pypi_version boto3; }
recipe fetch.py <<'END'
import sys
from urllib.parse import unquote, urlsplit
import boto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

config = Config(signature_version=UNSIGNED, read_timeout=660, s3={"addressing_style": "virtual"}, retries={"total_max_attempts": 1})
for url in sys.argv[1:]:
    bucket, _, endpoint = urlsplit(url).netloc.partition(".")
    s3 = boto3.client("s3", "us-east-1", endpoint_url=f"{urlsplit(url).scheme}://{endpoint}", config=config)
    try:
        print(url, s3.get_object(Bucket=bucket, Key=unquote(urlsplit(url).path[1:]))["Body"].read())
    except (BotoCoreError, ClientError) as refused:
        print(url, refused)
END
fetch() {
    politely run python fetch.py "$@"
}
