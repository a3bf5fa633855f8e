#!/usr/bin/env python3
"""The compression handlers and programs that were not written here read each other:
tests/interop/test_compression.py PIPE, where PIPE is compression-pipe.
"""
import hashlib
import subprocess
import sys
import zlib

PIPE = sys.argv[1]
NOT_BUILT_IN = 3

# How others compress and decompress: programs, and for what has none python's zlib.
TOOLS = {
    "gzip": ([["gzip", "-c"], ["gzip", "-c", "-1"], ["gzip", "-c", "-9"]], ["gzip", "-dc"]),
    "zlib": ([lambda data: zlib.compress(data, 9)], zlib.decompress),
    "deflate": ([lambda data: zlib.compress(data, 6, wbits=-15)], lambda data: zlib.decompress(data, wbits=-15)),
    "brotli": ([["brotli", "-c", "-q", "5"], ["brotli", "-c", "-q", "9", "-w", "24"]], ["brotli", "-dc"]),
    "zstd": ([["zstd", "-qc"], ["zstd", "-qc", "-19", "--no-check"], ["zstd", "-qc", "-1", "-T1"]], ["zstd", "-qdc"]),
    "lz4": ([["lz4", "-qc"], ["lz4", "-qc", "-9", "-BD", "-B4"], ["lz4", "-qc", "--no-frame-crc", "-B7"]], ["lz4", "-qdc"]),
}


def make_inputs():
    noise = b"".join(hashlib.sha256(bytes([i & 255, i >> 8])).digest() for i in range(20000))
    text = b"".join(b"line %d of a text that repeats itself\n" % (i * i) for i in range(30000))
    return {"nothing": b"", "a byte": b"x", "text": text, "noise": noise, "zeroes": bytes(3_000_000), "both": text + noise + text}


def through(tool, data):
    if callable(tool):
        return tool(data)
    result = subprocess.run(tool, input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
    if result.returncode != 0:
        raise ValueError(f"{' '.join(tool)}: status {result.returncode}: {result.stderr.decode(errors='replace').strip()}")
    return result.stdout


def expect_refused(name, data, text):
    result = subprocess.run([PIPE, "decode", name], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            timeout=120, check=False)
    if result.returncode != 1 or text not in result.stderr.decode():
        raise ValueError(f"status {result.returncode}, {result.stderr.decode().strip()!r}; expected {text!r}")


def check_format(name, compressors, decompressor):
    """Yields what is being tried."""
    for what, data in make_inputs().items():
        for level in ("0", "1", "9"):
            yield f"{what}: by weir, level {level}, for the others"
            assert through(decompressor, through([PIPE, "encode", name, level], data)) == data
        for compressor in compressors:
            yield f"{what}: by {compressor} for weir"
            small = through(compressor, data)
            assert through([PIPE, "decode", name], small) == data
    yield "cut off"
    small = through(compressors[0], b"some text, some text, some text\n" * 100)
    expect_refused(name, small[:-1], f"the {name} stream is cut off")
    yield "two of them"
    if name in ("gzip", "zstd", "lz4"):
        assert through([PIPE, "decode", name], small + small) == b"some text, some text, some text\n" * 200
    else:
        expect_refused(name, small + small, f"(at byte {len(small)} of the stream)")


def main():
    failures = 0
    for name, (compressors, decompressor) in TOOLS.items():
        if subprocess.run([PIPE, "encode", name], input=b"", stdout=subprocess.PIPE, check=False).returncode == NOT_BUILT_IN:
            print(f"not built in: {name}")
            continue
        trying, count = "", 0
        try:
            for trying in check_format(name, compressors, decompressor):
                count += 1
            print(f"ok: {name}, {count} ways")
        except (AssertionError, ValueError, OSError, zlib.error, subprocess.TimeoutExpired) as error:
            failures += 1
            print(f"FAILED: {name}: {trying}: {error or 'other bytes'}")
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
