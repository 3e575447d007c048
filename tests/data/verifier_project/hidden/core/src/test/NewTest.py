def appears():
    assert split("a b") == ["a", "b"]


TESTS = [("appears[1]", appears)]
