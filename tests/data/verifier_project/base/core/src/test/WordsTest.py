def joins():
    assert join(["a", "b"]) == "a b"


def was_skipped():
    raise Skip


TESTS = [
    ("joins \u201cquotes\u201d & spaces", joins),
    ("was skipped", was_skipped),
]
