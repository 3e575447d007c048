"""The compressor of release tarballs, as a program: standard input, compressed, to standard output.

It is a process of its own because its window and tables take 180 MB, which is then none of the
caller's. Runs as a file with the standard library and zstandard alone. Its one argument is the
number of threads: at least 1, since the call without threads compresses otherwise; from there up
the output is the same for every number, as the jobs have a fixed size.
"""

import shutil
import sys

import zstandard

DESCRIPTION = "zstd level 10, window_log 27, hash_log 20, long-distance matching, 4 MiB jobs"
WINDOW_LOG = 27

_LEVEL = 10
# A quarter of the level's own size: 30 MB and a quarter of the time less, for 0.6 % more output.
_HASH_LOG = 20
_JOB_BYTES = 4 << 20
# A job begins without reading what came before it: a quarter of the time less, for 2 % more
# output, since long-distance matching looks back over the whole window all the same.
_NO_OVERLAP = 1
_CHUNK = 1 << 20


def compressor(threads: int) -> zstandard.ZstdCompressor:
    """The compressor with the parameters of every release."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL,
        window_log=WINDOW_LOG,
        hash_log=_HASH_LOG,
        enable_ldm=True,
        job_size=_JOB_BYTES,
        overlap_log=_NO_OVERLAP,
        threads=max(1, threads),
        write_checksum=True,
    )
    return zstandard.ZstdCompressor(compression_params=parameters)


def main() -> int:
    """Compress. Exit code 1 with one line on standard error where the output can't be written."""
    try:
        out = compressor(int(sys.argv[1])).stream_writer(sys.stdout.buffer, closefd=False)
        shutil.copyfileobj(sys.stdin.buffer, out, _CHUNK)
        out.close()  # type: ignore[no-untyped-call]
        sys.stdout.buffer.flush()
    except OSError as error:
        sys.stderr.write(f"{error.strerror or error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
