"""The compressor of release tarballs, as a program: standard input, compressed, to standard output.

It is a process of its own because its window and tables take 200 MB, which is then none of the
caller's. Runs as a file with the standard library and zstandard alone. Its one argument is the
number of threads: at least 1, since the call without threads compresses otherwise; from there up
the output is the same for every number, as the jobs have a fixed size.
"""

import shutil
import sys

import zstandard

DESCRIPTION = "zstd level 10, window_log 27, hash_log 21, long-distance matching, 8 MiB jobs"
WINDOW_LOG = 27

_LEVEL = 10
# Half the level's own size: 20 MB and a fifth of the time less, for 0.4 % more output.
_HASH_LOG = 21
_JOB_BYTES = 8 << 20
# A job begins without reading what came before it: a quarter of the time less, for 0.7 % more
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
