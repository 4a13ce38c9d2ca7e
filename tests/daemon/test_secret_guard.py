"""The secret guard: what it finds, what it lets pass, and what it says.

Every secret here is made up when the test runs, from parts, so that no scanner of repositories trips over this file.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import string
import time
from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.daemon.desk import call, kept, listed, refused, remember

from amnesiad.secretscan import SecretScan
from amnesiad.service import Service

UPPER32: Final = string.ascii_uppercase + "234567"
ALNUM: Final = string.ascii_letters + string.digits
HEX: Final = "0123456789abcdef"
GUARD: Final = "secret_guard"

_dice = random.Random(20260701)


def some(count: int, alphabet: str = ALNUM) -> str:
    """Random characters, the same in every run."""
    return "".join(_dice.choice(alphabet) for _ in range(count))


def some_bytes(count: int) -> bytes:
    return bytes(_dice.randrange(256) for _ in range(count))


def pem(kind: str) -> str:
    return f"-----BEGIN {kind}-----\n{base64.encodebytes(some_bytes(1190)).decode()}-----END {kind}-----"


def jwt() -> str:
    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    head, body = json.dumps({"alg": "HS256", "typ": "JWT"}), json.dumps({"sub": "12345", "name": "Jo"})
    signed = f"{part(head.encode())}.{part(body.encode())}"
    return f"{signed}.{part(hmac.digest(some_bytes(32), signed.encode(), 'sha256'))}"


SECRETS: Final[dict[str, tuple[str, str]]] = {
    "aws pair": ("AK" + "IA" + some(16, UPPER32) + " with aws_secret_access_key=" + some(40), "aws-access-token"),
    "aws secret": ("AWS_SECRET_ACCESS_KEY=" + some(40), "aws-secret-access-key"),
    "github classic": ("gh" + "p_" + some(36), "github-pat"),
    "github oauth": ("gh" + "o_" + some(36), "github-oauth"),
    "github app": ("gh" + "s_" + some(36), "github-app-token"),
    "github fine-grained": ("github" + "_pat_" + some(22) + "_" + some(59), "github-fine-grained-pat"),
    "gitlab": ("gl" + "pat-" + some(20), "gitlab-pat"),
    "slack bot": (f"xo{''}xb-{some(12, '123456789')}-{some(12, '123456789')}-{some(24)}", "slack-bot-token"),
    "slack hook": (
        "https://hooks.slack" + f".com/services/T{some(8, UPPER32)}/B{some(8, UPPER32)}/{some(24)}",
        "slack-webhook-url",
    ),
    "rsa key": (pem("RSA PRI" + "VATE KEY"), "private-key"),
    "openssh key": (pem("OPENSSH PRI" + "VATE KEY"), "private-key"),
    "pkcs8 key": (pem("PRI" + "VATE KEY"), "private-key"),
    "jwt": ("Authorization: Bearer " + jwt(), "jwt"),
    "anthropic": ("sk-" + "ant-api03-" + some(93) + "AA", "anthropic-api-key"),
    "openai": ("sk-" + "proj-" + some(74) + "T3Blbk" + "FJ" + some(74), "openai-api-key"),
    "google": ("AI" + "za" + some(35), "gcp-api-key"),
    "stripe": ("sk" + "_live_" + some(24), "stripe-access-token"),
    "npm": ("np" + "m_" + some(36), "npmjsaccesstoken"),
    "pypi": ("pypi" + "-AgEIcHlwaS5vcmc" + some(150), "pypi-upload-token"),
    "hugging face": ("h" + "f_" + some(34, string.ascii_letters), "huggingface-access-token"),
    "digital ocean": ("do" + "p_v1_" + some(64, HEX), "digitaloceanapikey"),
    "azure storage": (
        "DefaultEndpointsProtocol=https;AccountName=abc;AccountKey=" + base64.b64encode(some_bytes(64)).decode(),
        "azure-storage-account-key",
    ),
    "database url": (f"postgres://admin:{some(16)}@db.prod.internal:5432/app", "generic-credential-uri"),
}

ORDINARY: Final = [
    f"See commit {hashlib.sha1(b'a').hexdigest()} for the fix",  # noqa: S324
    f"The image digest is sha256:{hashlib.sha256(b'a').hexdigest()}",
    f"sha512 {hashlib.sha512(b'a').hexdigest()}",
    f"etag {hashlib.md5(b'a').hexdigest()}",  # noqa: S324
    "Request 7d444840-9dc0-11d1-b245-5ffdce74fad2 failed twice",
    "Note 7xk2m9q4vt supersedes 3fj8w0zzcd",
    "/home/user/projects/amnesiad/daemon/amnesiad/service/Transfer2.py is where the export lives",
    f"The fixture is {base64.b64encode(b'Hello world, this is a test of base64').decode()}",
    f"integrity sha512-{base64.b64encode(hashlib.sha512(b'q').digest()).decode()}",
    f"golang.org/x/text v0.14.0 h1:{base64.b64encode(hashlib.sha256(b'z').digest()).decode()}",
    "The password is kept in 1Password, never in the repository",
    "Set AWS_SECRET_ACCESS_KEY from the vault before make deploy; AKIA marks a long-term key id",
    "export GITHUB_TOKEN=$(gh auth token) works; ghp_ tokens are refused by the proxy",
    "api_key=YOUR_API_KEY in the example must be replaced",
    "password: changeme is the default of the demo container",
    "DATABASE_URL=postgres://user:password@localhost/db in compose, amqp://guest:guest@127.0.0.1//",
    f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{some(43)} deploy@host",
    f"-----BEGIN CERTIFICATE-----\nMIIB{some(600)}\n-----END CERTIFICATE-----",
    "kubectl get secret db-creds -o jsonpath='{.data.password}'",
    "const secretKey = process.env.SECRET_KEY // never inline",
    "trace 4bf92f3577b34da6a3ce929d0e0e4736, span 00f067aa0ba902b7",
    f"cache key: {hashlib.sha1(b'b').hexdigest()}, token: {some(40, HEX)}",  # noqa: S324
    "CamelCaseIdentifierThatIsRatherLongAndHasDigits123AndMore456",
    "用户服务器部署在腾讯云国内节点2024,密码在保险库里",
    "arn:aws:iam::123456789012:role/deploy may read s3://bucket/key",
    "version 1.2.3-alpha.20240101T000000Z+build.abcdef0123456789",
]


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> SecretScan:
    return SecretScan(tmp_path_factory.mktemp("rules"))


async def test_no_rule_knows_a_key_by_hexadecimal_digits_alone(scan: SecretScan) -> None:
    """Ids of sessions and children are passed without the engine, because it would pass them."""
    engine = await scan.load()
    for count in (16, 17, 24, 32, 36, 40, 48, 64):
        for alphabet in (HEX, HEX + "-"):
            assert not any(engine.scan(some(count, alphabet)) for _ in range(200))


class TestScan:
    """The detector by itself."""

    @pytest.mark.parametrize("name", SECRETS)
    async def test_it_knows_a_secret(self, scan: SecretScan, name: str) -> None:
        """Keys and tokens of the kinds that agents meet are found in the middle of a sentence, and named by type."""
        secret, kind = SECRETS[name]
        assert kind in await scan.types([f"for the deploy use {secret}\nand nothing else"])

    @pytest.mark.parametrize("text", ORDINARY)
    async def test_it_lets_an_ordinary_note_pass(self, scan: SecretScan, text: str) -> None:
        """Hashes, ids, paths, digests, public keys, placeholders and talk about secrets are none."""
        assert await scan.types([text]) == ()

    async def test_it_looks_quickly(self, scan: SecretScan) -> None:
        """A note of two hundred bytes costs far less than writing it does, once the engine is ready."""
        text = f"{ORDINARY[0]} and /usr/lib/python3.11/site-packages " * 2
        assert len(text) > 180
        await scan.load()
        count = 500
        begun = time.process_time()
        for _ in range(count):
            await scan.types([text])
        assert (time.process_time() - begun) / count < 0.003

    async def test_long_text_without_a_candidate_costs_nothing(self) -> None:
        """Text that can hold no key is passed without making the engine ready, whatever its length."""
        lazy = SecretScan(None)
        assert (
            await lazy.types(["a plain sentence " * 5000, "x" * 100_000, "://" * 5000, "no-digits-in-this-long-slug"])
            == ()
        )
        assert lazy._scanner is None


async def by_remember(service: Service, words: dict[str, Any]) -> Any:
    return await call(service, "remember", **{"content": "of no interest", **words})


async def by_supersede(service: Service, words: dict[str, Any]) -> Any:
    return await call(service, "supersede", id=(await listed(service))[0], **{"content": "better", **words})


async def by_edit(service: Service, words: dict[str, Any]) -> Any:
    return await call(service, "edit", id=(await listed(service))[0], **words)


Ask = Callable[[Service, dict[str, Any]], Any]
SECRET: Final = SECRETS["github classic"][0]
PLACES: Final[list[tuple[Ask, dict[str, Any]]]] = [
    (by_remember, {"content": f"the token is {SECRET}"}),
    (by_remember, {"tags": [SECRET]}),
    (by_remember, {"key": SECRET}),
    (by_remember, {"triggers": [{"command": f"curl -H {SECRET}"}]}),
    (by_supersede, {"content": f"the token is {SECRET}"}),
    (by_supersede, {"reason": f"it became {SECRET}"}),
    (by_edit, {"tags": [SECRET]}),
    (by_edit, {"triggers": [{"words": [SECRET]}]}),
]


class TestGuard:
    """The door."""

    @pytest.mark.parametrize(("ask", "words"), PLACES)
    async def test_warn_tells_the_type(self, service: Service, ask: Ask, words: dict[str, Any]) -> None:
        """By default a secret is taken, and the answer says what it looks like, never what it is."""
        await remember(service, "there before")
        answer = await ask(service, words)
        assert len(answer.notices) == 1
        assert "github-pat" in answer.notices[0]
        assert SECRET not in answer.notices[0]

    @pytest.mark.parametrize(("ask", "words"), PLACES)
    async def test_refuse_keeps_it_out(self, service: Service, ask: Ask, words: dict[str, Any]) -> None:
        """Where the policy refuses, nothing is written, the rule and type are named, and the secret is nowhere."""
        await remember(service, "there before")
        await call(service, "policy", set={GUARD: "refuse"})
        before = await kept(service)
        error = await refused(ask(service, words))
        assert await kept(service) == before
        assert (error.code, error.rule, error.field) == ("refused", "secret-guard", "content")
        assert "github-pat" in error.message
        assert SECRET not in repr((error.message, error.hint, error.choices))
        assert SECRET not in repr(await kept(service))
        assert (await call(service, "status")).refusals["secret-guard"] == 1

    async def test_off_says_nothing(self, service: Service) -> None:
        """Switched off, it does not even look."""
        await call(service, "policy", set={GUARD: "off"})
        assert (await by_remember(service, {"content": SECRET})).notices == ()

    async def test_each_type_once(self, service: Service) -> None:
        """Two kinds of secret are two notices, two of one kind are one."""
        text = " ".join([SECRET, SECRETS["stripe"][0], "gh" + "p_" + some(36)])
        answer = await call(service, "remember", content=text)
        assert sorted(notice.rpartition(" ")[2] for notice in answer.notices) == ["github-pat", "stripe-access-token"]

    async def test_a_repeated_request_is_told_again(self, service: Service) -> None:
        """The answer to a repeated request_id carries the notice too."""
        asked = {"content": SECRET, "request_id": "r1"}
        first = await call(service, "remember", **asked)
        again = await call(service, "remember", **asked)
        assert first.notices == again.notices != ()
        assert first.id == again.id

    async def test_an_ordinary_note_has_no_notice(self, service: Service) -> None:
        """Nothing to say, nothing said, also where the policy refuses."""
        await call(service, "policy", set={GUARD: "refuse"})
        for text in ORDINARY:
            assert (await call(service, "remember", content=text)).notices == ()

    async def test_a_restored_note_is_its_own(self, service: Service) -> None:
        """Restoring brings no new words in, so nothing is refused that was taken before."""
        await call(service, "policy", set={"restorable": True})
        note = await remember(service, f"kept: {SECRET}")
        await call(service, "forget", id=note)
        await call(service, "policy", set={GUARD: "refuse"})
        assert (await call(service, "restore", id=note)).restored_from == note
        assert (await refused(call(service, "remember", content=SECRET))).rule == "secret-guard"
