"""The one line a user reads."""

from vcrl.core.errors import UserError, unknown


def test_near_names_are_suggested_nearest_first():
    error = unknown("method", "vrc", ["vcr", "spr", "rainbow"])
    assert isinstance(error, UserError)
    assert str(error) == "unknown method 'vrc': did you mean vcr?"


def test_all_names_are_listed_where_none_is_near():
    assert str(unknown("method", "zzz", ["vcr", "spr"])) == "unknown method 'zzz': known: spr, vcr."


def test_a_hint_comes_last():
    assert str(unknown("game", "zzz", ["a"], "See `vcrl envs`.")).endswith("known: a. See `vcrl envs`.")


def test_at_most_three_are_suggested():
    assert str(unknown("x", "abc", ["abc1", "abc2", "abc3", "abc4"])).count(" or ") == 2


def test_an_error_is_one_line_whatever_is_in_it():
    """A name in it may be a stranger's, with lines of its own and words for the terminal."""
    assert str(UserError("a\nb\tc\x1b[31md\ud800é")) == "a b c [31md é"
