from pytest_cgins.text import nearest


def test_nearest_names_the_most_similar_word() -> None:
    """A typing error leads to the known word."""
    assert nearest("sorce", ["source", "target"]) == 'did you mean "source"?'


def test_nearest_says_nothing_when_nothing_is_similar() -> None:
    """No guess is better than a wild one."""
    assert nearest("zebra", ["source", "target"]) == ""
