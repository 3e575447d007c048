"""Write the golden lock of the tests anew, when its format or a digest changes on purpose."""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.release_kit import make_kit  # noqa: E402 - the tests aren't installed


def main() -> None:
    """Release the tests' small dataset and keep its lock."""
    golden = ROOT / "tests" / "data" / "release" / "lock.json"
    with tempfile.TemporaryDirectory() as folder:
        golden.write_bytes((make_kit(Path(folder) / "set").released() / "lock.json").read_bytes())
    print(golden)


if __name__ == "__main__":
    main()
