"""The actions of a subject schedule, and the words that name them."""

from __future__ import annotations

ACTIONS = ("reminder", "escalate", "auto_close", "follow_up", "check_progress")
WORKFLOW = "workflow"
"""The action of a schedule that only starts a workflow."""

# Actions in time phrases start with these words, see docs/times-in-words.md. Any other text, such as 通知 or "check",
# names no particular action.
_NAMES = {
    "リマインド": "reminder",
    "リマインダー": "reminder",
    "remind": "reminder",
    "エスカレート": "escalate",
    "エスカレーション": "escalate",
    "escalate": "escalate",
    "自動クローズ": "auto_close",
    "クローズ": "auto_close",
    "close": "auto_close",
    "フォローアップ": "follow_up",
    "follow up": "follow_up",
    "進捗": "check_progress",
    "check progress": "check_progress",
    "check the progress": "check_progress",
}


def named_by(said: str) -> str:
    """The action that these words name; empty if they name no particular one."""
    return next((action for words, action in _NAMES.items() if said.startswith(words)), "")
