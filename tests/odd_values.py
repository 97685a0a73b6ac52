"""Values of environment variables that a scheduler's own export changes, rejects or breaks on."""

import re
import zlib

ODD = {
    "ODD_BACKSLASH": "pa\\ss\\",
    "ODD_SINGLE": "a'b'c",
    "ODD_LONE_SINGLE": "'",
    "ODD_DOUBLE": 'a"b"c',
    "ODD_NEWLINE": "one\ntwo\n",
    "ODD_TAB": "a\tb",
    "ODD_DOLLAR": "$HOME$(id)${X}",
    "ODD_BACKTICK": "`id`",
    "ODD_BLANKS": "  a  b  ",
    "ODD_EMPTY": "",
    "ODD_NON_ASCII": "grün ƒ 漢",
    "ODD_BYTES": "\udcff\udcfe",
    "ODD_EQUALS": "=a=b=",
    "ODD_COMMA": ",a,b,",
    "ODD_SEMICOLON": ";a;b;",
    "ODD_JSON": '{"type": "service", "key": "-----BEGIN-----\\nabc=\\n", "n": [1, 2]}',
    "ODD_PERCENT": "%s%n%%",
    "ODD_LONG": "x" * 100_000,
}

#: A program that writes, for each of them, its bytes compressed and in hexadecimal digits: longer lines of
#: several nodes would mix.
SHOW = (
    "import os, sys, zlib; "
    "sys.stdout.write(''.join(name.decode() + ' ' + zlib.compress(value).hex() + chr(10) "
    "for name, value in sorted(os.environb.items()) if name.startswith(b'ODD_')))"
)


def shown(output: str) -> dict[str, str]:
    """The values that `SHOW` printed; a rank's lines may begin with its number."""
    return {
        name: zlib.decompress(bytes.fromhex(digits)).decode(errors="surrogateescape")
        for name, digits in re.findall(r"\b(ODD_\w+) ([0-9a-f]+)", output)
    }
