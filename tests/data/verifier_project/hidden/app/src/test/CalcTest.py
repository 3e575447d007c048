def keeps():
    assert add(4, 0) == 4


def adds():
    assert add(1, 2) == 3


TESTS = [
    ("keeps", keeps),
    ("adds two numbers", adds),
]
