/* find_program.c - see find_program.h. Not pure: it reads files. */
#include "launcher/process/find_program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/pmi/mpi_library.h"
#include "launcher/process/interpreter.h"
#include "launcher/process/worker_command.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "proto/env_names.h"
#include "proto/exit_code.h"

enum { FIRST_BYTES = 128 }; /* limit of a #! line */

static bool is_regular(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

static bool is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* The first bytes of a file; 0 if it cannot be read (a program may be executable but not readable). */
static size_t first_bytes_of(const char *path, char bytes[FIRST_BYTES])
{
    scope_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return 0;
    ssize_t got;
    do
        got = read(fd, bytes, FIRST_BYTES);
    while (got < 0 && errno == EINTR);
    return got > 0 ? (size_t)got : 0;
}

/* The file of the same folder whose name is nearest to a missing one, with its folder; NULL: none is near. */
static char *nearest_file(const char *path)
{
    enum { FILES_LIMIT = 4096 }; /* a folder of data is not worth more */
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const int folder_length = slash ? (int)(slash - path) + 1 : 0;
    scope_free char *folder = slash ? mem_printf("%.*s", folder_length, path) : mem_strdup(".");
    scope_free char *nearest = NULL;
    DIR *directory = folder ? opendir(folder) : NULL;
    if (!directory)
        return NULL;
    struct dirent *entry;
    for (int i = 0; i < FILES_LIMIT && (entry = readdir(directory)); i++) {
        /* the nearer of two stays: a name is near or far by its distance from the wanted one alone */
        const char *two[] = {nearest, entry->d_name};
        const char *near = nearest ? text_nearest(name, two, 2) : text_nearest(name, two + 1, 1);
        if (!near || near == nearest || entry->d_name[0] == '.')
            continue;
        mem_free(nearest);
        nearest = mem_strdup(near);
    }
    (void)closedir(directory); /* it was only read */
    return nearest ? mem_printf("%.*s%s", folder_length, path, nearest) : NULL;
}

/* "the script 'trian.py' does not exist; did you mean 'train.py'?", or the folder in which it was looked for.
 */
static int missing_file(const char *kind, const char *path, struct muster_error *err)
{
    char here[PATH_MAX];
    scope_free char *nearest = nearest_file(path);
    const bool relative = *path != '/' && getcwd(here, sizeof here);
    if (nearest)
        return error_set(err, MUSTER_E_NOT_FOUND, "%s'%s' does not exist; did you mean '%s'?", kind, path,
                         nearest);
    return error_set(err, MUSTER_E_NOT_FOUND, "%s'%s' does not exist%s%s", kind, path,
                     relative ? " below " : "", relative ? here : "");
}

/* A program of this name in the folder of this one (muster-train of a virtual environment), NULL: none. */
static char *next_to_this_program(const char *name)
{
    char own[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = '\0';
    const char *slash = strrchr(own, '/');
    scope_free char *path = slash ? mem_printf("%.*s/%s", (int)(slash - own), own, name) : NULL;
    return path && is_regular(path) && access(path, X_OK) == 0 ? take_pointer(&path) : NULL;
}

static void not_in_path(const char *name, struct muster_error *err)
{
    scope_free char *next = next_to_this_program(name);
    if (next) {
        (void)error_set(err, MUSTER_E_NOT_FOUND,
                        "'%s' was not found in PATH; for the one next to this program write %s", name, next);
        return;
    }
    scope_free char *nearest = nearest_file(name);
    (void)error_set(err, MUSTER_E_NOT_FOUND, "'%s' was not found in PATH%s%s%s", name,
                    nearest ? "; did you mean './" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

char *find_program(const char *name, const char *path, struct muster_error *err)
{
    bool denied = false;
    for (const char *at = path ? path : "/usr/local/bin:/usr/bin:/bin";; at++) {
        size_t length = strcspn(at, ":");
        /* an empty entry is the current directory */
        scope_free char *candidate = mem_printf("%.*s/%s", length ? (int)length : 1, length ? at : ".", name);
        if (!candidate) {
            (void)error_set(err, MUSTER_E_NOMEM, "no memory");
            return NULL;
        }
        if (is_regular(candidate)) {
            if (access(candidate, X_OK) == 0)
                return take_pointer(&candidate);
            denied = true;
        }
        at += length;
        if (!*at)
            break;
    }
    if (denied)
        (void)error_set(err, MUSTER_E_IO, "'%s' is in PATH but is not executable", name);
    else if (is_folder(name))
        (void)error_set(err, MUSTER_E_INVALID, "'%s' is a folder, not a program", name);
    else if (access(name, F_OK) == 0)
        (void)error_set(err, MUSTER_E_NOT_FOUND,
                        "'%s' was not found in PATH; for the one in this folder write ./%s", name, name);
    else
        not_in_path(name, err);
    return NULL;
}

/* Whether other kinds of executables are registered with the kernel (Java, Wine, another machine's code by
 * qemu). */
static bool has_other_formats(void)
{
    DIR *folder = opendir("/proc/sys/fs/binfmt_misc");
    bool found = false;
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        found |=
            entry->d_name[0] != '.' && strcmp(entry->d_name, "register") && strcmp(entry->d_name, "status");
    if (folder)
        (void)closedir(folder); /* only read */
    return found;
}

/* 0 if the executable at path can be run; the reason is errno of open or stat otherwise. */
static int check_executable(const char *path, int *exit_code, struct muster_error *err)
{
    struct stat status;
    if (stat(path, &status) < 0) {
        bool missing = errno == ENOENT || errno == ENOTDIR;
        *exit_code = missing           ? EXIT_CODE_NOT_FOUND
                     : errno == EACCES ? EXIT_CODE_CANNOT_EXECUTE
                                       : EXIT_CODE_ENVIRONMENT;
        if (missing)
            return missing_file("", path, err);
        return error_errno(err, "'%s' cannot be examined", path);
    }
    *exit_code = EXIT_CODE_CANNOT_EXECUTE;
    if (S_ISDIR(status.st_mode))
        return error_set(err, MUSTER_E_INVALID, "'%s' is a folder, not a program", path);
    char bytes[FIRST_BYTES];
    size_t length = first_bytes_of(path, bytes);
    bool known = (length >= 4 && !memcmp(bytes, "\177ELF", 4)) || (length >= 2 && !memcmp(bytes, "#!", 2));
    if (access(path, X_OK) < 0)
        return error_set(err, MUSTER_E_INVALID, "'%s' is not executable; %s", path,
                         known ? "make it so with chmod +x"
                               : "a Python script's name ends in .py, anything else needs chmod +x");
    if (!known && access(path, R_OK) == 0 && !has_other_formats())
        return error_set(err, MUSTER_E_INVALID,
                         "'%s' cannot be executed: it is neither ELF nor a script whose first line is #! and "
                         "an interpreter",
                         path);
    return 0;
}

/* Whether only torchrun's way can run this: a file that is neither a binary nor a script with an
 * interpreter of its own, a Python script that was not made executable, or a folder with a __main__.py. */
static bool is_for_python(const char *path)
{
    char bytes[FIRST_BYTES + 1] = "";
    struct stat status;
    if (stat(path, &status) < 0)
        return false;
    if (S_ISDIR(status.st_mode)) {
        scope_free char *inside = mem_printf("%s/__main__.py", path);
        return inside && is_regular(inside);
    }
    size_t length = S_ISREG(status.st_mode) ? first_bytes_of(path, bytes) : 0;
    bool executable = access(path, X_OK) == 0;
    if (length >= 4 && !memcmp(bytes, "\177ELF", 4))
        return false;
    if (length >= 2 && !memcmp(bytes, "#!", 2)) {
        bytes[strcspn(bytes, "\n")] = 0;
        return strstr(bytes, "python") && (!executable || !strchr(path, '/'));
    }
    return length > 0 && !(executable && has_other_formats());
}

/* A script for the interpreter: it must exist and be readable. A folder with a __main__.py is one too. */
static int check_script(const char *path, int *exit_code, struct muster_error *err)
{
    *exit_code = EXIT_CODE_NOT_FOUND;
    struct stat status;
    if (stat(path, &status) < 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            return missing_file("the script ", path, err);
        *exit_code = errno == EACCES ? EXIT_CODE_CANNOT_EXECUTE : EXIT_CODE_ENVIRONMENT;
        return error_errno(err, "the script '%s' cannot be examined", path);
    }
    *exit_code = EXIT_CODE_CANNOT_EXECUTE;
    if (S_ISDIR(status.st_mode) && !is_for_python(path))
        return error_set(err, MUSTER_E_INVALID, "'%s' is a folder without a __main__.py, not a script", path);
    if (access(path, R_OK) < 0)
        return error_errno(err, "the script '%s' cannot be read", path);
    return 0;
}

/* Kinds that the name alone does not show. A program in PATH precedes a file of this folder. */
static enum program_kind find_kind(const struct run_config *config, const char *path)
{
    enum program_kind kind = program_kind_of(config);
    if (kind != PROGRAM_EXECUTABLE || config->no_python)
        return kind;
    scope_free char *found = strchr(config->program, '/') ? NULL : find_program(config->program, path, NULL);
    return !found && is_for_python(config->program) ? PROGRAM_PYTHON : kind;
}

static int check_command(const char *name, const char *path, int *exit_code, struct muster_error *err)
{
    if (strchr(name, '/'))
        return check_executable(name, exit_code, err);
    struct muster_error why = {0};
    scope_free char *found = find_program(name, path, &why);
    if (found)
        return check_executable(found, exit_code, err);
    *exit_code = why.code == MUSTER_E_NOT_FOUND ? EXIT_CODE_NOT_FOUND
                 : why.code == MUSTER_E_NOMEM   ? EXIT_CODE_ENVIRONMENT
                                                : EXIT_CODE_CANNOT_EXECUTE;
    return error_set(err, (enum muster_error_code)why.code, "%s", why.text);
}

/* Whether the workers get PMI-1: --mpi, or the library with which the program is linked. */
static int choose_mpi(struct run_config *config, const char *path, int *exit_code, struct muster_error *err)
{
    char soname[64] = "";
    scope_free char *found = config->kind != PROGRAM_EXECUTABLE ? NULL
                             : strchr(config->program, '/')     ? mem_strdup(config->program)
                                                                : find_program(config->program, path, NULL);
    const enum mpi_library library =
        found ? mpi_library_of_file(found, soname, sizeof soname) : MPI_LIBRARY_NONE;
    const bool may =
        config->mpi_choice == MPI_CHOICE_ON || (library && config->mpi_choice == MPI_CHOICE_AUTO);
    const bool alone = config->worker_store == WORKER_STORE_WORKER && strcmp(config->nnodes, "1") != 0;
    *exit_code = EXIT_CODE_USAGE;
    if (config->mpi_choice == MPI_CHOICE_ON && library == MPI_LIBRARY_PMIX)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "--mpi: '%s' is linked with %s (Open MPI), whose processes find each other by PMIx; muster "
            "serves PMI-1: build it with MPICH, Intel MPI or MVAPICH, or start it with mpirun",
            config->program, soname);
    if (config->mpi_choice == MPI_CHOICE_ON && alone)
        return error_set(
            err, MUSTER_E_INVALID,
            "--mpi keeps its keys in the agent's store, and --worker-store=worker has none: leave "
            "one of the two out");
    config->mpi = may && library != MPI_LIBRARY_PMIX && !alone;
    if (may && library == MPI_LIBRARY_PMIX)
        return config_warn(
            config, err,
            "'%s' is linked with %s (Open MPI), which needs PMIx: without mpirun each worker is an MPI "
            "world of its own",
            config->program, soname);
    return 0;
}

static int find_program_of(struct run_config *config, const char *(*get)(void *context, const char *name),
                           void *context, int *exit_code, struct muster_error *err)
{
    config->kind = find_kind(config, get(context, "PATH"));
    if (config->kind == PROGRAM_EXECUTABLE)
        return check_command(config->program, get(context, "PATH"), exit_code, err);
    const char *asked = get(context, ENV_PYTHON_EXEC);
    bool of_called;
    if (!config->interpreter && !(asked && *asked))
        config->interpreter = interpreter_find(get, context, &of_called);
    const char *python = worker_command_interpreter(config, asked);
    if (check_command(python, get(context, "PATH"), exit_code, err) < 0)
        return error_wrap(err,
                          python == config->interpreter
                              ? "the interpreter of this program's environment (PYTHON_EXEC names another)"
                              : "the interpreter");
    return config->kind == PROGRAM_MODULE ? 0 : check_script(config->program, exit_code, err);
}

int find_program_check(struct run_config *config, const char *(*get)(void *context, const char *name),
                       void *context, int *exit_code, struct muster_error *err)
{
    return find_program_of(config, get, context, exit_code, err) < 0 ||
                   choose_mpi(config, get(context, "PATH"), exit_code, err) < 0
               ? -1
               : 0;
}
