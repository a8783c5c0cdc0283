"""python -m muster run ...: the program muster, whose workers run under this Python unless PYTHON_EXEC names another."""

import os
import shutil
import sys
import sysconfig


def main():
    schemes = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")]
    program = next((path for path in (os.path.join(folder, "muster") for folder in schemes) if os.access(path, os.X_OK)), shutil.which("muster"))
    if not program:
        sys.exit(f"muster: error: the program muster is neither in {' nor in '.join(schemes)} nor in PATH")
    os.environ["PYTHON_EXEC"] = os.environ.get("PYTHON_EXEC") or sys.executable
    os.execv(program, ["muster", *sys.argv[1:]])


if __name__ == "__main__":
    main()
