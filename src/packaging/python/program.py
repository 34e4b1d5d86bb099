"""What both packages ask about the program before they pack it."""

import struct
from pathlib import Path

# The numbers of processors in ELF files.
MACHINES = {"x86_64-unknown-linux-gnu": 62, "aarch64-unknown-linux-gnu": 183}

# The kind of program header that names the dynamic linker.
PT_INTERP = 3


class Refused(Exception):
    """The package cannot be built. The text says why."""


def read_program(path: str, target: str) -> bytes:
    """The program, if it is one for this target that runs with any C library or none."""
    if target not in MACHINES:
        raise Refused(f"there is no package for the target {target!r}, only for {' and '.join(MACHINES)}")
    try:
        program = Path(path).read_bytes()
    except OSError as error:
        raise Refused(f"the program cannot be read: {error}") from None
    if len(program) < 64 or program[:6] != b"\x7fELF\x02\x01":
        raise Refused(f"{path} is no program for 64-bit Linux")
    (machine,) = struct.unpack_from("<H", program, 18)
    if machine != MACHINES[target]:
        raise Refused(
            f"{path} is for another processor than {target}: number {machine}, not {MACHINES[target]}"
        )
    (first,) = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    kinds = (struct.unpack_from("<I", program, first + size * place)[0] for place in range(count))
    if PT_INTERP in kinds:
        raise Refused(
            f"{path} is not static: it needs a C library as new as the one it was built with"
        )
    return program


def licences(repository: Path, folder: str) -> "dict[str, bytes]":
    """Our licence, and the texts of the licences of what is built in, by their names."""
    texts = {"LICENSE": (repository / "LICENSE").read_bytes()}
    if folder:
        root = Path(folder)
        if not root.is_dir():
            raise Refused(f"LICENCES names {folder}, which is no folder")
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            name, text = path.relative_to(root).as_posix(), path.read_bytes()
            if texts.setdefault(name, text) != text:
                raise Refused(f"the folder of LICENCES has another {name} than ours")
    return texts
