/* interpreter.h - which Python runs the workers' program, where PYTHON_EXEC does not name one.
 *
 * A torchrun that pip installs begins with #! and the interpreter of its environment, which need not be
 * activated. This program is no script: it belongs to the environment in whose folder it is called, else to
 * that of the link's target, and so on to that in which its file lies, else to none; PATH has the say then.
 */
#ifndef MUSTER_LAUNCHER_PROCESS_INTERPRETER_H
#define MUSTER_LAUNCHER_PROCESS_INTERPRETER_H

#include <stdbool.h>

/* A folder with programs, and what shows whether it is that of a Python environment. */
struct interpreter_folder {
    const char *path;    /* NULL: unknown */
    const char *python;  /* "python3" or "python": a file or a link there, and not this program; NULL: none */
    bool is_environment; /* by venv or conda: pyvenv.cfg, conda-meta above it */
    bool has_library;    /* lib/python3.X/os.py above it: an installation of Python, or a view of one */
    bool is_system;      /* /usr/bin, /usr/local/bin, /bin: the machine's, and of no environment */
    int wheel;           /* the X of lib/python3.X/site-packages/muster above it; 0: the wheel is not there */
    bool has_wheel_python, has_path_wheel; /* python3.X of that X lies in the folder; in PATH */
};

enum { INTERPRETER_FOLDERS = 8 }; /* a chain of links may be longer: its middle is left out then */

struct interpreter_facts {
    /* folders of this program as it was called, of each link's target, and, last, of its file */
    struct interpreter_folder folders[INTERPRETER_FOLDERS];
    int count;
    bool is_activated; /* VIRTUAL_ENV or CONDA_PREFIX names an environment */
    bool has_path;     /* python3 is in PATH */
};

/* Pure. The interpreter's path, or its name for PATH, in fresh memory; NULL: python3 of PATH (or no memory).
 * *of_called: it is known by the way this program was called alone. */
char *interpreter_choose(const struct interpreter_facts *facts, bool *of_called);

/* The same with the facts of this machine. get reads PATH, VIRTUAL_ENV and CONDA_PREFIX. NULL also where PATH
 * has the same. */
char *interpreter_find(const char *(*get)(void *context, const char *name), void *context, bool *of_called);

#endif
