"""library_alone.py [--configure] --source DIR --build DIR - libmuster builds with a C compiler, OpenBLAS and jansson alone.

Configures with MUSTER_LIBRARY_ONLY=ON where neither pkg-config nor protoc-c is to be found, in a folder below the build that is removed
afterwards. --configure ends here. Else it builds, and holds against the list of other libraries every header that the compiler read,
and every library that libmuster.so is linked with; then it compiles examples/regression.c against the installed library and runs it.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# libraries of the launcher, of muster-train and of the tests: no header, no archive and no shared object of them
OTHERS = r"\b(?:lib)?(?:zmq|sodium|protobuf|yaml|microhttpd|ncurses\w*|tinfo|cmocka|z|zlib|zstd|xxhash|sentencepiece\w*|png\w*)(?:_utils|-c)?(?:\.h|\.a|\.so|/)"
TRAINED = "regression.safetensors"


def run(*command, cwd, env=None):
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def breaches_of(what, lines):
    return [f"{what}: {line.strip()}" for line in lines if re.search(OTHERS, line)]


def configure(source, folder):
    """Programs of the search path are the compiler's and the build's."""
    programs = folder / "programs"
    programs.mkdir()
    for name in ("cc", "gcc", "ld", "as", "ar", "ranlib", "nm", "strip", "objcopy", "objdump", "readelf", "ninja", "cmake", "sh", "ld.gold", "ccache"):
        found = next((path for path in (pathlib.Path(d) / name for d in os.get_exec_path()) if path.exists()), None)
        if found:
            (programs / name).symlink_to(found)
    env = {**os.environ, "PATH": str(programs), "PKG_CONFIG_LIBDIR": str(programs)}
    run("cmake", "-S", source, "-B", folder / "build", "-G", "Ninja", "-DMUSTER_LIBRARY_ONLY=ON", f"-DCMAKE_INSTALL_PREFIX={folder / 'prefix'}",
        cwd=folder, env=env)
    cache = (folder / "build/CMakeCache.txt").read_text().splitlines()
    found = [line for line in cache if re.match(r"\w+:(?:FILEPATH|PATH|STRING)=/", line)]
    return env, breaches_of("found at configuration", found), len(found)


def build(folder, env):
    run("ninja", "--quiet", "-C", "build", "install", cwd=folder, env=env)
    headers = sorted(set(re.findall(r"^ +(/\S+)", run("ninja", "-C", "build", "-t", "deps", cwd=folder, env=env), re.M)))
    if not any(header.endswith("/jansson.h") for header in headers):
        sys.exit(f"the list of {len(headers)} headers that were read is not complete: it has no jansson.h")
    linked = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", "build/lib/libmuster.so", cwd=folder))
    print(f"{len(headers)} headers were read; libmuster.so is linked with {', '.join(linked)}")
    return breaches_of("header", headers) + breaches_of("linked with libmuster.so", linked)


def train(source, folder):
    library = next((folder / "prefix").rglob("libmuster.so")).parent
    run("cc", source / "examples/regression.c", "-o", "regression", f"-I{folder / 'prefix/include'}", f"-L{library}", "-lmuster",
        f"-Wl,-rpath,{library}", cwd=folder)
    print(run("./regression", TRAINED, cwd=folder).splitlines()[-1])
    return [] if (folder / TRAINED).stat().st_size > 1000 else [f"{TRAINED} is empty"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configure", action="store_true", help="configure only")
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    options = parser.parse_args()
    source = options.source.resolve()
    with tempfile.TemporaryDirectory(prefix="library-", dir=options.build.resolve()) as name:
        folder = pathlib.Path(name)
        env, breaches, count = configure(source, folder)
        print(f"configured without pkg-config; {count} paths were found")
        if not options.configure:
            breaches += build(folder, env) + train(source, folder)
    for breach in breaches:
        print(breach)
    print(f"lint library_alone: {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
