def keeps():
    assert add(4, 0) == 4


TESTS = [
    ("keeps", keeps),
]
