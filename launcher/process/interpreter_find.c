/* interpreter_find.c - see interpreter.h: the facts. Not pure: it looks at files. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/process/find_program.h"
#include "launcher/process/interpreter.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

static const char own_file[] = "/proc/self/exe";

/* Follows no link: an interpreter that is gone is an environment's all the same, and its absence an error. */
static bool is_there(const char *folder, const char *name)
{
    struct stat status;
    scope_free char *path = mem_printf("%s/%s", folder, name);
    return path && lstat(path, &status) == 0;
}

/* muster local puts links of interpreters' names to this program into a folder. */
static bool is_this_program(const char *folder, const char *name)
{
    struct stat there, here;
    scope_free char *path = mem_printf("%s/%s", folder, name);
    return path && stat(path, &there) == 0 && stat(own_file, &here) == 0 && there.st_dev == here.st_dev &&
           there.st_ino == here.st_ino;
}

/* What lib or lib64 has of Python: the library itself, and the newest Python in whose packages the wheel
 * lies. */
static void look_into_library(const char *folder, const char *name, struct interpreter_folder *found)
{
    static const char begin[] = "python3.";
    scope_free char *library = mem_printf("%s/../%s", folder, name);
    DIR *entries = library ? opendir(library) : NULL;
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        char *end = NULL;
        if (strncmp(entry->d_name, begin, sizeof begin - 1))
            continue;
        const long minor = strtol(entry->d_name + sizeof begin - 1, &end, 10);
        if (*end || minor < 1 || minor > 999)
            continue;
        scope_free char *packages = mem_printf("%s/%s", library, entry->d_name);
        if (!packages)
            continue;
        found->has_library |= is_there(packages, "os.py");
        if (minor > found->wheel && (is_there(packages, "site-packages/muster/libs") ||
                                     is_there(packages, "dist-packages/muster/libs")))
            found->wheel = (int)minor;
    }
    if (entries)
        (void)closedir(entries); /* only read */
}

static bool is_system_folder(const char *path)
{
    static const char *const folders[] = {"/usr/bin",  "/usr/local/bin",  "/bin",
                                          "/usr/sbin", "/usr/local/sbin", "/sbin"};
    char real[PATH_MAX];
    const char *known = realpath(path, real) ? real : path;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (!strcmp(known, folders[i]))
            return true;
    return false;
}

static void look_into_folder(const char *path, struct interpreter_folder *found)
{
    static const char *const names[] = {"python3", "python"};
    *found = (struct interpreter_folder){.path = path, .is_system = is_system_folder(path)};
    for (size_t i = 0; i < sizeof names / sizeof *names && !found->python; i++)
        if (is_there(path, names[i]) && !is_this_program(path, names[i]))
            found->python = names[i];
    found->is_environment = is_there(path, "../pyvenv.cfg") || is_there(path, "../conda-meta");
    if (found->is_environment && found->python)
        return; /* that settles it */
    look_into_library(path, "lib", found);
    look_into_library(path, "lib64", found); /* Fedora's */
    char versioned[32];
    (void)snprintf(versioned, sizeof versioned, "python3.%d", found->wheel);
    found->has_wheel_python = found->wheel && is_there(path, versioned);
}

/* The folder of a program's path, absolute; NULL without one. */
static char *folder_of(const char *program)
{
    char here[PATH_MAX];
    while (program[0] == '.' && program[1] == '/')
        program += 2;
    const char *slash = strrchr(program, '/');
    const int length = slash ? (int)(slash - program) : 0;
    if (*program == '/')
        return length ? mem_strndup(program, (size_t)length) : mem_strdup("/");
    if (!*program || !getcwd(here, sizeof here))
        return NULL;
    return length ? mem_printf("%s/%.*s", here, length, program) : mem_strdup(here);
}

static char *real_folder(void)
{
    char program[PATH_MAX];
    const ssize_t length = readlink(own_file, program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    return folder_of(program);
}

static bool path_has(const char *name, const char *path)
{
    scope_free char *found = find_program(name, path, NULL);
    return found != NULL;
}

static bool path_has_version(int minor, const char *path)
{
    char name[32];
    (void)snprintf(name, sizeof name, "python3.%d", minor);
    return minor && path_has(name, path);
}

static bool variable_is_set(const char *value)
{
    return value && *value;
}

char *interpreter_find(const char *(*get)(void *context, const char *name), void *context, bool *of_called)
{
    const char *path = get(context, "PATH"),
               *called = (const char *)getauxval(AT_EXECFN); // NOLINT(performance-no-int-to-ptr)
    scope_free char *called_folder = folder_of(called ? called : ""), *file_folder = real_folder();
    struct interpreter_facts facts = {.is_activated = variable_is_set(get(context, "VIRTUAL_ENV")) ||
                                                      variable_is_set(get(context, "CONDA_PREFIX"))};
    if (called_folder)
        look_into_folder(called_folder, &facts.called);
    if (file_folder)
        look_into_folder(file_folder, &facts.real);
    scope_free char *in_path = find_program("python3", path, NULL);
    facts.has_path = in_path != NULL;
    facts.has_path_wheel_called = path_has_version(facts.called.wheel, path);
    facts.has_path_wheel_real = path_has_version(facts.real.wheel, path);
    scope_free char *chosen = interpreter_choose(&facts, of_called);
    return chosen && in_path && !strcmp(chosen, in_path) ? NULL : take_pointer(&chosen);
}
