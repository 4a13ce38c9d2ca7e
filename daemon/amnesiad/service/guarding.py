"""The secret guard at the door: whether words that are about to be written hold a key or a token.

By ``secret_guard`` it stays silent, tells the type of what it found, or refuses. It never repeats the secret, and it
never changes a word: what is to become of it is for the writer to decide.
"""

from __future__ import annotations

from collections.abc import Sequence

from amnesiad.core.errors import Refused
from amnesiad.core.notes import Words
from amnesiad.core.policy import Policy
from amnesiad.service.base import Base


class Guarding(Base):
    """What every verb that writes words asks first."""

    async def guard(self, policy: Policy, words: Words, reason: str | None = None) -> tuple[str, ...]:
        """Notices about these words, one for each type of secret in them.

        Raises ``Refused`` (rule ``secret-guard``) instead where the policy says so.
        """
        mode = policy.secret_guard
        if mode == "off":
            return ()
        types = await self.secrets.types(_texts(words, reason))
        if types and mode == "refuse":
            error = Refused(
                f"this holds what looks like a secret: {', '.join(types)}",
                rule="secret-guard",
                field="content",
                hint="say where the secret is kept, not what it is; secret_guard is the policy that says so",
            )
            self.refused(error)
            raise error
        return tuple(f"this holds what looks like a secret: {name}" for name in types)

    async def guard_of(self, name: str, words: Words, reason: str | None = None) -> tuple[str, ...]:
        """``guard`` by the policy of a workspace, which may not exist yet."""
        workspace = await self.open(name, create=False)
        return await self.guard(self.settings.policy if workspace is None else workspace.policy, words, reason)


def _texts(words: Words, reason: str | None) -> Sequence[str]:
    texts = [words.content, *words.tags]
    texts += [text for text in (words.key, reason) if text is not None]
    texts += [anchor.path for anchor in words.anchors]
    for trigger in words.triggers:
        texts += [text for text in (trigger.path, trigger.command, *trigger.words) if text is not None]
    return [*texts, *words.reasons.values()]
