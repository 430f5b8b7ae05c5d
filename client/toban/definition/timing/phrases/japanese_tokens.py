"""Tokens of Japanese times: words and numbers."""

from __future__ import annotations

from toban.definition.timing.phrases.phrase_parts import Part, PhraseToken, Unclear, number_token
from toban.definition.timing.phrases.phrase_text import JAPANESE_WEEKDAYS

ACTIONS = (
    "リマインド",
    "リマインダー",
    "通知",
    "連絡",
    "お知らせ",
    "知らせて",
    "進捗確認",
    "進捗の確認",
    "進捗を確認",
    "確認",
    "チェック",
    "フォローアップ",
    "エスカレーション",
    "エスカレート",
    "自動クローズ",
    "クローズ",
    "実行",
    "起動",
    "開始",
)
ENDINGS = ("をお願いします", "お願いします", "してください", "ください", "します", "する", "して")

DAYS = {
    "今日": 0,
    "本日": 0,
    "きょう": 0,
    "明日": 1,
    "あした": 1,
    "あす": 1,
    "翌日": 1,
    "明後日": 2,
    "あさって": 2,
    "明々後日": 3,
    "しあさって": 3,
}
PARTS = {
    "朝": Part.MORNING,
    "昼": Part.MIDDAY,
    "お昼": Part.MIDDAY,
    "夕方": Part.DUSK,
    "夜": Part.NIGHT,
    "晩": Part.NIGHT,
    "深夜": Part.SMALL_HOURS,
}
EVERY_PART = {"毎朝": Part.MORNING, "毎晩": Part.NIGHT, "毎夜": Part.NIGHT}
WEEKS = {"今週": 0, "来週": 1, "再来週": 2}
MONTHS = {"今月": 0, "来月": 1, "再来月": 2}
YEARS = {"今年": 0, "来年": 1}
MONTHS_LONG = ("か月", "ヶ月", "ヵ月", "カ月", "ケ月", "箇月")
WEEKDAYS = {name: day for day, name in enumerate(JAPANESE_WEEKDAYS)}
WEEKDAY_ENDS = ("曜日", "曜")
BETWEEN = ("・", "と", "、", ",")
UNTIL = ("から", "~", "〜", "-")
EVERY = ("ごと", "毎", "間隔")
EVERY_OR_GAP = (*EVERY, "おき", "置き")
UNITS = ("年", "週間", "週", "日", "時間", "分", "秒", *MONTHS_LONG)
WEEK_NUMBER = "第"
LAST_NTH = "最終"
BUSINESS_DAY = "営業日"
LAST_DAY = ("月末日", "月末", "末日", "末")

_REFUSED = {
    "隔週": "every other week cannot be expressed as a schedule; 2週間ごと counts from now",
    "隔日": "every other day cannot be expressed as a schedule; 2日ごと counts from now",
    "隔月": "every other month cannot be expressed as a schedule",
    "祝日": "write business_day: never with a crontab expression",
    "週末": "it could be once or every time: write 毎週末, or the day",
    "頃": "it is vague: name the time itself",
    "ごろ": "it is vague: name the time itself",
    "約": "it is vague: name the time itself",
    "以内": "it is vague: name the time itself",
    "くらい": "it is vague: name the time itself",
    "数": "it is vague: name the number",
    "前": "it is before, and only 後 can be counted from now",
    "昨日": "it is in the past",
    "一昨日": "it is in the past",
    "先週": "it is in the past",
    "先月": "it is in the past",
}

WORDS = sorted(
    {
        *DAYS,
        *PARTS,
        *EVERY_PART,
        *WEEKS,
        *MONTHS,
        *YEARS,
        *WEEKDAYS,
        *WEEKDAY_ENDS,
        *BETWEEN,
        *UNTIL,
        *EVERY_OR_GAP,
        *UNITS,
        *LAST_DAY,
        *(WEEK_NUMBER, LAST_NTH, BUSINESS_DAY, "毎営業日", "翌営業日"),
        *_REFUSED,
        *("今夜", "今晩", "毎日", "毎週", "毎週末", "毎月", "毎年", "毎時", "毎分", "平日", "次"),
        *("後", "半年", "時", "半"),
        *("午前", "午後", "正午", "真夜中", "の", "に", "まで", ":", "/", "(", ")", "です"),
    },
    key=len,
    reverse=True,
)
_BLANK = " \t\r\n\u3000。"
_DIGITS = "0123456789"
NUMERALS = {numeral: value for value, numeral in enumerate("〇一二三四五六七八九")} | {"零": 0}
_TENS = {"十": 10, "百": 100, "千": 1000}


def split_action(text: str) -> tuple[str, str]:
    """The time, and the action: 明日の9時, リマインド."""
    action = text.rstrip(_BLANK)
    for ending in ENDINGS:
        if action.endswith(ending):
            action = action.removesuffix(ending)
            break
    for word in sorted(ACTIONS, key=len, reverse=True):
        if action.endswith(word):
            when = action.removesuffix(word)
            return when.rstrip(_BLANK + "、,"), text[len(when) :].rstrip(_BLANK)
    return text, ""


def tokens(text: str) -> list[PhraseToken]:
    """Raises Unclear with the text after the last known word, or for a word that no schedule can express."""
    found: list[PhraseToken] = []
    at = 0
    while at < len(text):
        if text[at] in _BLANK:
            at += 1
            continue
        token, at = _number(text, at) or _word(text, at)
        found.append(token)
    return found


def _word(text: str, at: int) -> tuple[PhraseToken, int]:
    for word in WORDS:
        if text.startswith(word, at):
            if word in _REFUSED:
                raise Unclear(f'"{word}" cannot be used: {_REFUSED[word]}')
            return PhraseToken(text=word, start=at), at + len(word)
    raise Unclear(f'"{text[at:]}" is not understood')


def _number(text: str, at: int) -> tuple[PhraseToken, int] | None:
    """The number that begins there, in digits or in numerals; 一昨日 is none."""
    end = _end_of(text, at, _DIGITS)
    if end > at:
        return number_token(text[at:end], int(text[at:end][:20]), start=at), end
    end = _end_of(text, at, "".join(NUMERALS) + "".join(_TENS))
    if end == at or text.startswith("一昨日", at):
        return None
    return number_token(text[at:end], _numerals(text[at:end]), start=at), end


def _end_of(text: str, at: int, alphabet: str) -> int:
    while at < len(text) and text[at] in alphabet:
        at += 1
    return at


def _numerals(text: str) -> int:
    """二十四 and 二〇二六. 二三日 is two or three days: raises Unclear."""
    if not any(tens in text for tens in _TENS):
        if len(text) in (2, 3):
            raise Unclear(f'"{text}" could be one number or several: use digits')
        return int("".join(str(NUMERALS[numeral]) for numeral in text)[:20])
    total, last, smallest = 0, None, 10_000
    for numeral in text:
        if numeral in _TENS:
            if _TENS[numeral] >= smallest or last == 0:
                raise Unclear(f'"{text}" is not a number')
            smallest = _TENS[numeral]
            total += (1 if last is None else last) * smallest
            last = None
        elif last is not None:
            raise Unclear(f'"{text}" is not a number')
        else:
            last = NUMERALS[numeral]
    return total + (last or 0)
