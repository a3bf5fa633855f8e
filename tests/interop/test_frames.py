#!/usr/bin/env python3
"""Frames that Python makes and reads, with struct, json and base64, on the other side of weir's codecs.

    test_frames.py FRAMES_PIPE
"""
import base64
import json
import random
import struct
import subprocess
import sys
import unittest

CHUNKS = (1, 2, 7, 100, 65536)
STRUCTS = (">B", ">H", "<H", ">I", "<I", ">Q", "<Q")
program = None


def run(arguments, stream):
    done = subprocess.run([program, *arguments], input=stream, capture_output=True, timeout=120, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{arguments}: {done.stderr.decode()}")
    return done.stdout


def decode(kind, stream):
    """The frames in a stream, which must not depend on how it is read."""
    outputs = {run(["decode", kind, str(chunk)], stream) for chunk in CHUNKS}
    assert len(outputs) == 1, f"{kind}: reads of {CHUNKS} bytes give different frames"
    return [bytes.fromhex(line) for line in outputs.pop().decode().splitlines()]


def encode(kind, frames):
    return run(["encode", kind], "".join(frame.hex() + "\n" for frame in frames).encode())


def some_frames(chance, most):
    lengths = [0, 1, 2, 127, 128, 200] + [chance.randint(0, most) for _ in range(20)]
    return [chance.randbytes(min(length, most)) for length in lengths]


def varint(number):
    text = bytearray()
    while number > 0x7F:
        text.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(text) + bytes([number])


class Frames(unittest.TestCase):
    def setUp(self):
        self.chance = random.Random(9)

    def test_struct(self):
        for kind in STRUCTS:
            frames = some_frames(self.chance, 255 if kind == ">B" else 5000)
            stream = b"".join(struct.pack(kind, len(frame)) + frame for frame in frames)
            with self.subTest(kind=kind):
                self.assertEqual(decode(kind, stream), frames)
                self.assertEqual(encode(kind, frames), stream)

    def test_varint(self):
        frames = some_frames(self.chance, 20000)
        stream = b"".join(varint(len(frame)) + frame for frame in frames)
        self.assertEqual(decode("varint", stream), frames)
        self.assertEqual(encode("varint", frames), stream)

    def test_lines(self):
        lines = [bytes(self.chance.choices(b"abc \r\t\xff\0", k=self.chance.randint(0, 300))).rstrip(b"\r")
                 for _ in range(100)]
        stream = b"".join(line + self.chance.choice((b"\n", b"\r\n")) for line in lines)
        self.assertEqual(decode("line", stream), lines)

    def test_fixed_length(self):
        stream = self.chance.randbytes(7 * 50)
        self.assertEqual(decode("fixed", stream), [part for (part,) in struct.iter_unpack("7s", stream)])

    def something(self, depth):
        if depth == 0:
            return self.chance.choice(['}{]["\\', "\u20ac\x00\ud83d\ude00", 1.5e300, None, True, -7])
        many = range(self.chance.randint(0, 4))
        if self.chance.random() < 0.5:
            return [self.something(depth - 1) for _ in many]
        return {f"{i}\"]}}": self.something(depth - 1) for i in many}

    def test_json(self):
        for is_ascii in (True, False):
            things = [self.something(self.chance.randint(1, 5)) for _ in range(60)]
            things = json.loads(json.dumps(things))
            stream = b"".join(
                json.dumps(thing, ensure_ascii=is_ascii, indent=self.chance.choice((None, 1)))
                .encode("utf-8", "surrogatepass") + self.chance.choice((b"", b" ", b"\r\n"))
                for thing in things)
            found = [json.loads(frame.decode("utf-8", "surrogatepass")) for frame in decode("json", stream)]
            self.assertEqual(found, things)

    def test_base64(self):
        for length in range(100):
            some = self.chance.randbytes(length)
            encoded = base64.b64encode(some)
            self.assertEqual(encode("base64", [some]), encoded)
            self.assertEqual(bytes.fromhex(run(["decode", "base64", "65536"], encoded).decode()), some)


if __name__ == "__main__":
    program = sys.argv.pop(1)
    unittest.main()
