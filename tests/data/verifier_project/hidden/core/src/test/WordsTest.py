from pathlib import Path


def joins():
    assert join(["a", "b"]) == "a b"


def was_skipped():
    assert Path("core/src/test/bytes.bin").read_bytes()[:3] == b"\0\1\2"
    assert not Path("core/src/test/old.txt").exists()
    if "split" not in globals():
        raise Skip


TESTS = [
    ("joins \u201cquotes\u201d & spaces", joins),
    ("was skipped", was_skipped),
]
