"""What is shown of settings and texts: no secret, however it is spelled, and everything else."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.redaction import (
    HIDDEN,
    is_secret,
    plain_url,
    redacted,
    shown_setting,
    without_secrets,
)

PW = "hUnter2"
"""The secret in all of these."""

SECRET_KEYS = [
    *("password", "db.password", "db_passwd", "DB_PASSWORD", "spark.ssl.keyPassword"),
    *("ssl.key.password", "sslpassword", "sasl.password", "sasl.jaas.config", "db.pwd", "pwd"),
    *("dbPwd", "PWD", "smtp.pass", "passphrase", "ssl.keystore.passphrase"),
    *("rest.token", "access_token", "accessToken", "authtoken", "spark.hadoop.oauth.token"),
    *("aws.session.token", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "fs.s3a.secret.key"),
    *("spark.hadoop.fs.s3a.access.key", "fs.s3a.session.token", "client_secret", "clientSecret"),
    *("fs.azure.account.key.shop.dfs.core.windows.net", "fs.azure.sas.logs.shop", "api_key"),
    *("apiKey", "api-key", "x-api-key", "apikey", "http.authorization", "headers.Authorization"),
    *("http.cookie", "basic.auth.user.info", "schema.registry.basic.auth.user.info"),
    *("google.private.key", "private_key", "credentials", "fs.gs.credential", "sig"),
    *("execution.checkpointing.hmac.secret", "spark.authenticate.secret", "azure.shared.key"),
    *("encryption.key", "signing-key", "secrets.database", "pw", "mqtt.pw", "dbpass", "userpass"),
    *("jwt", "auth.jwt", "aws.creds", "passkey", "privkey", "hmac_key", "master.key", "ssh_key"),
    *("OPENAI_KEY", "fernet.key", "Ocp-Apim-Subscription-Key", "x-functions-key", "auth_key"),
    *("authkey", "DD_APP_KEY", "license.key", "ANTHROPIC_KEY", "storage_key", "consumer.key"),
    *("psk", "nkey.seed", "basic.auth", "basicAuth", "http.auth", "auth-header"),
]

OPEN_KEYS = [
    *("tokenizer", "tokenizer.name", "key_by", "pipeline.keys", "monkey", "passenger", "bypass"),
    *("pipeline.name", "key", "keys", "primary.key", "partition-key", "keyspace", "turnkey"),
    *("state.backend.rocksdb.bloom-filter.bits-per-key", "pass.through", "compass"),
    *("secretary", "secret-file", "execution.checkpointing.hmac.secret-file", "token.endpoint.url"),
    *("ssl.key.location", "security.ssl.internal.key", "spark.authenticate", "author"),
    *("security.delegation.tokens.enabled", "token.lifetime", "fs.s3a.aws.credentials.provider"),
    *("max_tokens", "maxTokens", "prompt.tokens", "total-tokens", "client.auth", "oauth.enabled"),
    *("seed", "random.seed", "auth.scopes", "app.keyspace", "storage.keys.count"),
    *(
        "signature.method",
        "signal",
        "design",
        "assassin",
        "authorization.policy",
        "cookies.allowed",
    ),
    *(
        "parallelism.default",
        "broadcast",
        "keyboard",
        "passive",
        "password.length",
        "session_key",
        "jwt.issuer",
    ),
]

SECRET_VALUES = [
    f"redis://:{PW}@h",
    f"redis://user:{PW}@h:6379/0",
    f"redis://:{PW}/x@h:6379/0",
    f"redis://:x?{PW}@h",
    f"redis://:x#{PW}@h",
    f"rediss://u:x@{PW}@h",
    f"redis://:x/y@{PW}@h",
    f"redis://:12/{PW}@h",
    f"nats://{PW}@h:4222",
    f"nats://x/{PW}@h:4222",
    f"nats://a:{PW}@h1,nats://b:x@h2",
    f"nats://h1:4222,nats://{PW}@h2:4222",
    f"tls://{PW}@h",
    f"postgresql://me:{PW}@database/orders",
    f"postgresql+psycopg://me:{PW}@database/orders",
    f"jdbc:postgresql://h/db?user=me&password={PW}",
    f"jdbc:sqlserver://h;user=me;password={PW};encrypt=true",
    f"jdbc:oracle:thin:scott/{PW}@//h:1521/x",
    f"mongodb://me:{PW}@h1,h2/db",
    f"amqp://me:{PW}@h",
    f"https://{PW}@git.example/x",
    f"https://me:{PW}@git.example/@x",
    f"s3://AKIAX:{PW}@bucket/path",
    f"s3://AKIAX:a/{PW}/b@bucket/path?region=eu",
    f"https://h/x?sig={PW}&sv=1",
    f"https://h/x?se=1&sig={PW}",
    f"https://h/x?X-Amz-Signature={PW}",
    f"https://h/x?X-Amz-Credential={PW}%2F2024",
    f"https://h/x?X-Amz-Security-Token={PW}",
    f"https://h/x?X-Goog-Signature={PW}",
    f"https://h/x?AWSAccessKeyId=A&Signature={PW}",
    f"https://h/x?token={PW}",
    f"https://h/x?access_token={PW}#y",
    f"https://h/x?api_key={PW}",
    f"https://h/x?key={PW}",
    f"https://h/x?code={PW}",
    f"https://h/x?client_secret={PW}&grant=1",
    f"host=h password={PW} dbname=x",
    f"host=h password='a {PW} b' dbname=x",
    f"host=h password = {PW} dbname=x",
    rf"host=h password='a\' {PW}' dbname=x",
    f"password=a&{PW} host=h",
    f"sslpassword={PW}",
    f"Driver=x;Server=h;UID=me;PWD={PW};",
    f"Driver=x;Server=h;Pwd={{a;{PW}}};",
    f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={PW}==;EndpointSuffix=y",
    f"Endpoint=sb://h/;SharedAccessKeyName=x;SharedAccessKey={PW}=",
    f"-Xmx1g -Djavax.net.ssl.keyStorePassword={PW} -Dx=y",
    f'org.apache.kafka.PlainLoginModule required username="me" password="{PW}";',
    f"--user me --password {PW}",
    f"--conf spark.hadoop.fs.s3a.secret.key={PW}",
    f"AWS_SECRET_ACCESS_KEY={PW}",
    f'{{"password": "{PW}", "user": "me"}}',
    f'{{"password":"{PW}","user":"me"}}',
    f"{{'sasl.password': '{PW}', 'x': 1}}",
    f"{{'headers': {{'Authorization': 'Bearer {PW}'}}}}",
    f"[('spark.hadoop.fs.s3a.secret.key', '{PW}')]",
    f"Client(host='h', password='{PW}')",
    f"Client(host='h', api_key=b'{PW}', port=1)",
    f"Authorization: Bearer {PW}",
    f"Proxy-Authorization: Basic {PW}",
    f"authorization={PW}",
    f"Cookie: session={PW}; x=y",
    f"curl -H 'X-Api-Key: {PW}' http://h",
    f"it was sent with Bearer {PW}xyz1",
    f"password: {PW}",
    f'    password = "{PW}"',
    f'    token = "{PW}"',
    f"redis:/:{PW}@h",
    f"//:{PW}@h:6379",
    f"-----BEGIN RSA PRIVATE KEY-----\n{PW}\n-----END RSA PRIVATE KEY-----",
    f"eyJhbGciOiJIUzI1.eyJzdWIiOiIx{PW}.x_{PW}",
    f"https://h/x?user=me&pw={PW}",
    f"<password>{PW}</password>",
    f"<db:Token kind='x'>{PW}</db:Token>",
    f"ghp_{PW}{PW}{PW}",
    f"github_pat_{PW}{PW}{PW}",
    f"glpat-{PW}{PW}{PW}",
    f"xoxb-123-{PW}{PW}",
    f"sk-proj-{PW}{PW}{PW}",
    f"sk_live_{PW}{PW}{PW}",
    f"xapp-1-{PW}{PW}",
    f"hf_{PW}{PW}{PW}{PW}",
    f"npm_{PW}{PW}{PW}{PW}",
    f"SG.{PW}{PW}{PW}.{PW}{PW}{PW}",
    f"X-Auth-Token: {PW}",
    f"curl -H 'X-Vault-Token: s.{PW}' http://h",
    f"[('x-api-key', '{PW}')]",
    f"(('X-Auth-Token', b'{PW}'),)",
    f"[('Authorization', 'ApiKey {PW}')]",
    f'{{\\"password\\": \\"{PW}\\", \\"user\\": \\"me\\"}}',
    f'{{\\"token\\":\\"{PW}\\"}}',
    f"password : {PW}",
    f"ALTER ROLE me WITH PASSWORD '{PW}'",
    f"CREATE USER me IDENTIFIED BY '{PW}'",
    f"redirect=/x%3Fpassword%3D{PW}",
    f"https://hooks.slack.com/services/T0/B0/{PW}",
]

OPEN_TEXTS = [
    "s3://bucket/checkpoints",
    "s3://bucket/mail/me@example.org/x",
    "hdfs://ada@namenode:9000/path",
    "abfss://container@account.dfs.core.windows.net/path",
    "postgresql://me@database/orders",
    "http://localhost:8081/@me/x?page=2&keys=3&sort=key",
    "https://h/x?tokenizer=bert&passenger=3&design=4",
    "nats://h1:4222,nats://h2:4222",
    "jdbc:postgresql://h/db?user=me&ssl=true",
    "write to me@example.org: it is 12:30",
    "git@github.com:org/repo.git",
    "FATAL: password authentication failed for user ada",
    "check user, password, token or credentials, and rights",
    "unexpected token: '}' at line 3",
    "    token = next(tokens)",
    '    if token == "(":',
    "sorted(rows, key=by_name)",
    "words.key_by(lambda word: word)",
    "Client(host='h', password=None)",
    "KeyError: 'token'",
    "select('token', 'password')",
    "monkey=1 passenger=2 tokenizer=x pipeline.keys=a,b",
    "max_tokens_count=5",
    "the secret of the job: see the page",
    "spark.authenticate=true",
    "Basic authentication is off, bearer authentication, too",
    "execution.checkpointing.hmac.secret-file=/etc/headgate/key",
    "docker.io/org/app:1.2@sha256:0123456789abcdef",
    "a ghp_ prefix, sk-learn-contrib-of-2024, task-1234567890123456789012 and <token>",
    "<tokenizer>bert</tokenizer>",
    "SUBSCRIPTION and SUACSSL3 and dapi and hf_hub_download, npm_config_cache, SG.1",
    "[('content-type', 'text/plain'), ('sort-key', 'x')]",
    "the password is stored as 'hash'",
    "unexpected token : '}' at line 3",
    "x%3D3",
    "",
    "plain words",
]


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_the_value_of_a_key_that_names_a_secret_is_hidden(key: str) -> None:
    assert is_secret(key)
    assert redacted({key: PW, "x": "y"}) == {key: HIDDEN, "x": "y"}


@pytest.mark.parametrize("key", OPEN_KEYS)
def test_a_key_that_only_sounds_like_a_secret_is_shown(key: str) -> None:
    assert not is_secret(key)
    assert redacted({key: "some value"}) == {key: "some value"}


@pytest.mark.parametrize("text", SECRET_VALUES)
def test_a_secret_within_a_text_is_hidden_in_settings_and_in_messages(text: str) -> None:
    assert shown_setting("some.key", text) == HIDDEN
    for around in (text, f"it failed with {text} today", f"(['{text}'])", f"one\n{text}\ntwo"):
        shown = without_secrets(around)
        assert PW not in shown
        assert HIDDEN in shown


@pytest.mark.parametrize(
    "secret",
    [
        "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY",
        "dapi0123456789abcdef0123456789abcdef",
        "AIzaSyA0123456789abcdefghijklmnopqrstuv",
    ],
)
def test_secrets_are_known_by_their_form(secret: str) -> None:
    """A seed of NATS, tokens of Databricks and Google."""
    assert shown_setting("some.key", secret) == HIDDEN
    assert without_secrets(f"it failed with {secret!r} today") == f"it failed with '{HIDDEN}' today"


@pytest.mark.parametrize("text", OPEN_TEXTS)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert without_secrets(text) == text
    assert shown_setting("some.key", text) == text


@pytest.mark.parametrize(
    "text", [f"user:{PW}@h/db", f":{PW}@h:6379", f"redis:{PW}@h", f"redis://:a {PW}@h"]
)
def test_a_setting_that_is_no_proper_address_shows_no_password(text: str) -> None:
    assert shown_setting("redis.url", text) == HIDDEN


def test_what_stands_around_a_secret_is_shown() -> None:
    shown = without_secrets(f"redis://me:{PW}@h:6379/0 host=h password={PW} dbname=x")
    assert shown == f"redis://{HIDDEN}@h:6379/0 host=h password={HIDDEN} dbname=x"
    shown = without_secrets(f"https://h/x?page=1&sig={PW}&sv=2 and {{'password': '{PW}', 'x': 1}}")
    assert shown == f"https://h/x?page=1&sig={HIDDEN}&sv=2 and {{'password': '{HIDDEN}', 'x': 1}}"


def test_an_address_for_people_has_neither_login_nor_query() -> None:
    assert plain_url(f"s3://AKIAX:a/{PW}@bucket/x?secret_key={PW}") == "s3://bucket/x"
    assert plain_url("abfs://container@account/x") == "abfs://container@account/x"
    assert plain_url("/some/path") == "/some/path"


@given(st.text(alphabet="abC:/@?&=#.'\" {}[];,-\n%pwdtoken", max_size=200))
def test_any_text_is_taken_and_what_was_hidden_stays_hidden(text: str) -> None:
    shown = without_secrets(text)
    assert without_secrets(shown).count(HIDDEN) >= bool(HIDDEN in shown)


@given(st.text(alphabet=st.characters(codec="ascii", exclude_characters="\n"), min_size=1))
def test_whatever_a_password_is_made_of_the_setting_is_hidden(password: str) -> None:
    assert shown_setting("cache.url", f"redis://:{password}@h:6379/0") == HIDDEN
    assert f":{password}@" not in plain_url(f"redis://:{password}@h:6379/0")


@pytest.mark.parametrize(
    "part",
    ["a", "a=", "a:", "://", "@", "://a@", "'", '"a"', "=a ", "--a ", "?a=", "a.", "eyJ", "\\"],
)
def test_long_texts_take_a_bounded_time(part: str) -> None:
    began = time.process_time()
    without_secrets(part * (50_000 // len(part)))
    assert time.process_time() - began < 2


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "part",
    [
        *("(//a:x", "(//a:x'", "(//a:x@", ":thin:a/", ":thin:aaaa", ":thin:a/b@", "x:/a:", "://a"),
        *("token:", "token=", "password:", "password='", "'token':", "'a.b','", "?a=", "--token "),
        *(
            "eyJaaaaaaaaa-",
            "eyJaaaaaaaa.",
            "Bearer ",
            "cookie: ",
            "<token ",
            "<token>",
            "sk-a",
            "ghp_",
            "SG.aaaaaaaaaaaaaaaaaaaa",
            "hf_",
            "password '",
            "identified by ",
            "password%3D",
            "('x-key', ",
            '\\"token\\":',
            "password ",
        ),
    ],
)
def test_long_texts_take_no_longer_than_they_are(part: str) -> None:
    """A failing record may be long; by the square of its length this would take an hour."""
    assert without_secrets(part * 100_000)
