"""A guest's files with the additions of a scenario."""
import os
import subprocess

from initramfs import LIBRARIES, Tree


def image(rig, base, out, files=(), programs=(), folders=()):
    """Writes `out`: the archive `base` of the rig, then the additions of a scenario.

    `files`: path in the guest -> program or file of this machine; `programs`: names of programs of the rig's packages;
    `folders`: path in the guest -> folder of this machine, added with its contents.
    """
    tree = Tree(rig)
    for name in programs:
        tree.program(name)
    for path, folder in dict(folders).items():
        for name in os.listdir(folder):
            tree.add(f"{path}/{name}", os.path.join(folder, name), 0o755)
    for path, source in dict(files).items():
        tree.add(path, source, 0o755)
        with open(source, "rb") as file:
            elf = file.read(4) == b"\x7fELF"
        if elf:
            need(tree, source)
    tree.write(out + ".own")
    with open(out, "wb") as whole:
        for part in (os.path.join(rig, base), out + ".own"):
            with open(part, "rb") as file:
                while chunk := file.read(1 << 20):
                    whole.write(chunk)
    os.remove(out + ".own")
    return out


def need(tree, program):
    """The libraries that a program of this machine names, from the guest's own packages."""
    listed = subprocess.run(["readelf", "-d", program], capture_output=True, text=True)
    for line in listed.stdout.splitlines():
        if "(NEEDED)" not in line:
            continue
        name = line.split("[")[1].split("]")[0]
        source = os.path.join(tree.root, LIBRARIES, name)
        if os.path.exists(source):
            tree.add(f"{LIBRARIES}/{name}", source)
