"""Writes a Windows DLL that holds one function, which is another DLL's.

Programs in Rust, pydantic's and cryptography's among them, take random bytes from `ProcessPrng` of
bcryptprimitives.dll. Windows has it since Windows 7, wine 8 does not; `SystemFunction036` of advapi32.dll is the same.
"""

import struct

_SECTION = 0x1000  # where the only section is in memory
_IN_FILE = 0x200


def make_forwarding_dll(name: str, function: str, target: str) -> bytes:
    """The bytes of a 64-bit DLL with one exported function, forwarded to `target`: "advapi32.SystemFunction036"."""
    texts = [one.encode() + b"\0" for one in (name, function, target)]
    at = [_SECTION + 40 + 4 + 4 + 2]
    for text in texts:
        at.append(at[-1] + len(text))
    functions, names, ordinals = _SECTION + 40, _SECTION + 44, _SECTION + 48
    exports = struct.pack("<IIHHIIIIIII", 0, 0, 0, 0, at[0], 1, 1, 1, functions, names, ordinals)
    # A function's address inside of the exports is the address of its target's name.
    section = exports + struct.pack("<IIH", at[2], at[1], 0) + b"".join(texts)
    dos = b"MZ" + bytes(58) + struct.pack("<I", 64)
    coff = b"PE\0\0" + struct.pack("<HHIIIHH", 0x8664, 1, 0, 0, 0, 240, 0x2022)
    optional = struct.pack("<HBBIIIII", 0x20B, 14, 0, 0, 0x200, 0, 0, _SECTION)
    optional += struct.pack("<QIIHHHHHHIIIIHH", 0x7A000000, 0x1000, 0x200, 6, 0, 0, 0, 6, 0, 0, 0x2000, 0x200, 0, 3, 0)
    optional += struct.pack("<QQQQII", 0x100000, 0x1000, 0x100000, 0x1000, 0, 16)
    optional += struct.pack("<II", _SECTION, len(section)) + bytes(15 * 8)
    entry = b".rdata\0\0" + struct.pack("<IIIIIIHHI", len(section), _SECTION, 0x200, _IN_FILE, 0, 0, 0, 0, 0x40000040)
    return (dos + coff + optional + entry).ljust(_IN_FILE, b"\0") + section.ljust(0x200, b"\0")
