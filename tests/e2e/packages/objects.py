"""Objects that two build folders have in common: most of the bundle's sources are compiled as in the build that is tested."""

import json
import re
import subprocess


def commands(build):
    """object -> its compiler's command line, which names the build folder as @."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        command = entry["command"].replace(str(build), "@")
        found[re.search(r" -o (\S+) ", command)[1]] = command
    return found


def dependencies(build):
    """object -> the files that it was compiled of."""
    text = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True, check=True).stdout
    found = {}
    for block in text.split("\n\n"):
        head, *files = [line.strip() for line in block.splitlines() if not line.startswith("ninja: ")] or [""]
        if head.endswith("(VALID)"):
            found[head.split(": #deps ")[0]] = files
    return found


def same_objects(ours, theirs, macro):
    """The objects that the folder ours would compile as theirs has, but for -D<macro> in files that do not ask for it."""
    asks, files_of, known = {}, dependencies(theirs), commands(theirs)

    def is_free_of(name):
        path = theirs / name
        if path not in asks:
            asks[path] = macro in path.read_text(errors="replace")
        return not asks[path]

    return sorted(
        name for name, command in commands(ours).items()
        if known.get(name) == command.replace(f"-D{macro} ", "") and name in files_of and (theirs / name).exists()
        and all(is_free_of(file) for file in files_of[name]))
