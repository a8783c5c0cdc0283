"""The manual pages and the shells' completions: made of the tables, accepted by man and the shells, and complete.

    MUSTER_BUILD=build python3 tests/e2e/packages/pages_test.py
"""

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import BUILD, MUSTER

TRAIN = str(BUILD / "bin" / "muster-train")


def output(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
    if done.returncode:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stderr}")
    return done.stdout


def subcommands():
    return re.findall(r"^  ([a-z][a-z-]*) ", output(MUSTER, "--help").partition("Exit codes")[0], re.M)


def flags_of_help(*command):
    return set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", output(*command, "--help"), re.M))


class Manual(unittest.TestCase):
    def test_every_subcommand_has_a_page_that_man_accepts(self):
        pages = {(): "MUSTER(1)"} | {(name,): f"MUSTER-{name.upper()}(1)" for name in subcommands()}
        self.assertGreater(len(pages), 9)
        for name, title in pages.items():
            with self.subTest(page=name):
                self.check(output(MUSTER, "man", *name), title)
        self.check(output(TRAIN, "--man"), "MUSTER-TRAIN(1)")

    def check(self, source, title):
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"):
            self.assertIn(f".SH {section}\n", source)
        if not shutil.which("groff"):
            self.skipTest("groff is not installed")
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-P-c"], input=source, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(title, re.sub("\x1b.*?m|.\b", "", done.stdout))

    def test_a_page_has_every_flag_of_help(self):
        without = {"man", "completion"}  # which have no flags
        self.assertLess(without, set(subcommands()))
        for name in set(subcommands()) - without:
            source = output(MUSTER, "man", name).replace("\\-", "-")
            with self.subTest(page=name):
                page = set(re.findall(r"^\.B (?:-\w\S* )?(--[a-z-]+)", source, re.M))
                self.assertEqual(page, flags_of_help(MUSTER, name))
                self.assertTrue(page)

    def test_bad_usage_is_told(self):
        for arguments, told in (
            (["man", "rum"], "muster man: error: there is no page 'rum'; did you mean 'run'?\n"),
            (["man", "run", "local"], "muster man: error: one page at a time: muster man [SUBCOMMAND]\n"),
            (["completion", "fish"], "muster completion: error: name one shell, bash or zsh: source <(muster completion bash)\n"),
            (["completion"], "muster completion: error: name one shell, bash or zsh: source <(muster completion bash)\n"),
        ):
            done = subprocess.run([MUSTER, *arguments], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr, done.stdout), (2, told, ""))


class Bash(unittest.TestCase):
    def completed(self, program, script, *words):
        """What bash offers after these words, the last of which is being written."""
        cut = [part for word in words for part in re.split("(=)", word) if part or word == ""]
        done = subprocess.run(
            ["bash", "-c", script + '\nCOMP_WORDS=("$@") COMP_CWORD=$(($# - 1))\n'
             + f"compopt() {{ :; }}\n_{program.replace('-', '_')}; printf '%s\\n' \"${{COMPREPLY[@]}}\"", "bash", program, *cut],
            capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_flags_and_their_values(self):
        script = output(MUSTER, "completion", "bash")
        self.assertEqual(set(self.completed("muster", script, "")), {*subcommands(), "--help", "--version"})
        self.assertEqual(self.completed("muster", script, "sta"), ["status"])
        self.assertEqual(self.completed("muster", script, "run", "--nproc"), ["--nproc-per-node="])
        self.assertEqual(self.completed("muster", script, "run", "--log-format", "t"), ["text", "timed"])
        self.assertEqual(self.completed("muster", script, "run", "--log-format=j"), ["json"])
        self.assertEqual(self.completed("muster", script, "run", "train"), [])  # a file: the shell's own
        self.assertEqual(self.completed("muster", script, "secret", "--out"), ["--output="])
        script = output(TRAIN, "--completion=bash")
        self.assertEqual(self.completed("muster-train", script, "--pr"), ["--predict", "--print-config", "--prompt=", "--prune="])


class Zsh(unittest.TestCase):
    def test_the_functions_are_accepted(self):
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed")
        for script in output(MUSTER, "completion", "zsh"), output(TRAIN, "--completion=zsh"):
            self.assertTrue(script.startswith("#compdef "))
            output("zsh", "-fn", "/dev/stdin", input=script)

    def test_flags_are_offered(self):
        """In a terminal of zsh's own, as a user presses TAB."""
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed")
        driver = """
zmodload zsh/zpty
zpty -b shell zsh -f -i
zpty -w shell 'PS1=READY; autoload -Uz compinit; compinit -u -D; zstyle ":completion:*" list-prompt ""; LISTMAX=1000'
zpty -w shell "source $1; compdef _muster muster"
zpty -w -n shell $'muster run --nproc\\t'
zpty -r shell all '*--nproc-per-node*'
print -r -- $all
zpty -d shell
"""
        with tempfile.NamedTemporaryFile("w", suffix=".zsh") as file:
            # sourced, not autoloaded: the call at its end belongs to a completion only
            file.write(output(MUSTER, "completion", "zsh").rsplit("_muster ", 1)[0])
            file.flush()
            shown = output("zsh", "-f", "-c", driver, "zsh", file.name)
        self.assertIn("--nproc-per-node", shown)


if __name__ == "__main__":
    unittest.main(verbosity=2)
