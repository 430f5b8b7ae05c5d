"""Words that name the action of a subject schedule."""

from __future__ import annotations

import pytest

from toban.definition.timing.phrases import english_tokens, japanese_tokens
from toband.domain.schedule_actions import ACTIONS, named_by

ANY = {
    *("通知", "連絡", "お知らせ", "知らせて", "確認", "チェック", "実行", "起動", "開始"),
    *("notify", "notify me", "notify us", "check", "run", "run it", "start", "start it"),
}


@pytest.mark.parametrize("said", [*japanese_tokens.ACTIONS, *english_tokens.ACTIONS])
def test_each_word_names_one_action_or_any(said: str) -> None:
    assert named_by(said) in ({""} if said in ANY else set(ACTIONS))


def test_endings_make_no_difference() -> None:
    assert named_by("進捗を確認してください") == "check_progress"
    assert named_by("自動クローズする") == "auto_close"
    assert named_by("") == ""
