/* python_shim.c - see python_shim.h. */
#include "launcher/local/job/python_shim.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"
#include "proto/base/text_list.h"
#include "proto/env_names.h"
#include "proto/exit_code.h"

static const char own_link[] = "/proc/self/exe";

bool python_shim_is_name(const char *called)
{
    static const char name[] = "python";
    size_t length = sizeof name - 1;
    return !strncmp(called, name, length) &&
           strspn(called + length, "0123456789.") == strlen(called + length);
}

/* --- the interpreter's command line --- */

/* One argument of short options, "-um". Returns how many more arguments it takes (0 or 1), or -1 where
 * options end here: *module is what -m names, or NULL for -c or an unknown option. */
static int read_options(const char *argument, const char *next, const char **module, int *taken)
{
    for (const char *option = argument + 1; *option; option++) {
        const char *value = option[1] ? option + 1 : next;
        *taken = option[1] ? 0 : 1;
        if (*option == 'm')
            *module = value;
        if (*option == 'm' || *option == 'c')
            return -1;
        if (*option == 'W' || *option == 'X')
            return *taken;
    }
    return *taken = 0;
}

const char *python_shim_module(int argc, char *const argv[], int *rest)
{
    const char *module = NULL;
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        int taken = 0;
        if (argument[0] != '-' || !argument[1] || !strcmp(argument, "--"))
            return NULL; /* a script, or standard input */
        if (!strcmp(argument, "--check-hash-based-pycs")) {
            i++;
            continue;
        }
        if (argument[1] == '-')
            continue;
        if (read_options(argument, next, &module, &taken) < 0) {
            *rest = i + 1 + taken;
            return module;
        }
        i += taken;
    }
    return NULL;
}

const char *python_shim_subcommand(const char *module)
{
    if (!strcmp(module, "torch.distributed.run"))
        return "run";
    return strcmp(module, "torch.distributed.launch") ? NULL : "launch";
}

/* --- the interpreter itself --- */

static bool is_own(const char *path)
{
    struct stat there, here;
    return stat(path, &there) == 0 && stat(own_link, &here) == 0 && there.st_dev == here.st_dev &&
           there.st_ino == here.st_ino;
}

static bool is_executable(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* An interpreter after our own link in PATH precedes one before it: another muster's link there would call
 * us again. */
char *python_shim_find(const char *name, const char *path)
{
    scope_free char *found = NULL;
    bool behind = false;
    for (const char *at = path ? path : "/usr/local/bin:/usr/bin:/bin";; at++) {
        size_t length = strcspn(at, ":");
        scope_free char *candidate = mem_printf("%.*s/%s", length ? (int)length : 1, length ? at : ".", name);
        bool usable = candidate && is_executable(candidate), own = usable && is_own(candidate);
        if (usable && !own && behind)
            return take_pointer(&candidate);
        behind |= own;
        if (usable && !own && !found)
            found = take_pointer(&candidate);
        at += length;
        if (!*at)
            return take_pointer(&found);
    }
}

static int shim_fail(const char *name, const char *why, int exit_code)
{
    scope_buffer line = {0};
    buffer_printf(&line, "muster: error: %s: %s\n", name, why);
    if (!line.failed)
        (void)io_write_all(STDERR_FILENO, line.data, line.length, "standard error", NULL);
    return exit_code;
}

/* `muster run` in place of the interpreter. Its workers get the requested interpreter. */
static int become_muster(const char *subcommand, const char *python, char *rest[])
{
    char own[PATH_MAX];
    ssize_t length = readlink(own_link, own, sizeof own - 1);
    scope_text_list argv = {0};
    bool complete = length > 0 && text_list_take(&argv, mem_strdup("muster")) == 0 &&
                    text_list_take(&argv, mem_strdup(subcommand)) == 0;
    for (char **argument = rest; complete && *argument; argument++)
        complete = text_list_take(&argv, mem_strdup(*argument)) == 0;
    if (!complete || (python && setenv(ENV_PYTHON_EXEC, python, 0) < 0))
        return shim_fail("muster", "no memory, or no /proc", EXIT_CODE_FAILURE);
    own[length] = '\0';
    (void)execv(own, argv.items);
    return shim_fail(own, strerror(errno), EXIT_CODE_CANNOT_EXECUTE);
}

int python_shim_main(int argc, char *argv[])
{
    const char *slash = strrchr(argv[0], '/'), *called = slash ? slash + 1 : argv[0];
    int rest = argc;
    const char *module = python_shim_module(argc, argv, &rest);
    const char *subcommand = module ? python_shim_subcommand(module) : NULL;
    scope_free char *python = python_shim_find(called, getenv("PATH"));
    if (subcommand)
        return become_muster(subcommand, python, argv + (rest < argc ? rest : argc));
    if (!python)
        return shim_fail(called, "no interpreter of this name was found in PATH", EXIT_CODE_NOT_FOUND);
    argv[0] = python; /* by its path an interpreter finds its virtual environment */
    (void)execv(python, argv);
    return shim_fail(python, strerror(errno), EXIT_CODE_CANNOT_EXECUTE);
}
