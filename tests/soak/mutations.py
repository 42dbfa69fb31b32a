"""Damage of bytes, as disks, editors and strangers do it."""

KINDS = ("flip", "flips", "cut", "zeros", "noise", "more", "empty", "swap", "deleted", "folder")


def mutated(content, draw, kinds=KINDS[:8]):
    """What damage makes of some bytes, and its name."""
    kind = draw.choice(kinds)
    data, size = bytearray(content), max(1, len(content))
    place = draw.randrange(size)
    length = min(size - place, draw.randint(1, max(1, size // 4)))
    if kind in ("flip", "flips"):
        for _ in range(1 if kind == "flip" else 8):
            if data:
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif kind == "cut":
        data = data[:place]
    elif kind == "zeros":
        data[place : place + length] = bytes(length)
    elif kind == "noise":
        data[place : place + length] = draw.randbytes(length)
    elif kind == "more":
        data += draw.randbytes(draw.randint(1, 40))
    elif kind == "empty":
        data = bytearray()
    elif kind == "swap" and len(data) > 1:
        other = draw.randrange(len(data))
        data[place % len(data)], data[other] = data[other], data[place % len(data)]
    return bytes(data), kind


def damage(path, draw):
    """Damage a file where it lies; its kind of damage, or None where that left it as it was."""
    before = path.read_bytes()
    kind = draw.choice(KINDS)
    if kind in ("deleted", "folder"):
        path.unlink()
        if kind == "folder":
            path.mkdir()
        return kind
    content, kind = mutated(before, draw, (kind,))
    path.write_bytes(content)
    return kind if content != before else None
