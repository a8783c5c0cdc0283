/* python_shim.h - the program called through a link named python, python3 or the like: runs the next
 * interpreter of that name in PATH, except for `-m torch.distributed.run` and `-m
 * torch.distributed.launch`, which are ours. muster local puts such links first in a pod's PATH. */
#ifndef MUSTER_LAUNCHER_LOCAL_JOB_PYTHON_SHIM_H
#define MUSTER_LAUNCHER_LOCAL_JOB_PYTHON_SHIM_H

#include <stdbool.h>

/* Whether a program of this name (without folders) is to be a shim: python, python3, python3.11. */
bool python_shim_is_name(const char *called);

/* Reads a Python command line as the interpreter does, up to -m. Returns the module that it runs, or NULL
 * for anything else; *rest is the index of the first argument after it. */
const char *python_shim_module(int argc, char *const argv[], int *rest);

/* The muster subcommand for a module ("run", "launch"), or NULL. */
const char *python_shim_subcommand(const char *module);

/* The executable called name along path that comes next after this program itself (by device and inode, so
 * that links are resolved), else the first, in fresh memory; NULL if there is none. */
char *python_shim_find(const char *name, const char *path);

/* Becomes the interpreter, or muster. Returns only on failure, with the exit code. */
int python_shim_main(int argc, char *argv[]);

#endif
