/* interpreter.c - see interpreter.h: the decision (pure), and its facts from this machine. */
#include "launcher/process/interpreter.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/process/find_program.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

/* An environment's own folder. That of the system is one where conda was installed into it. */
static bool interpreter_is_home(const struct interpreter_folder *folder)
{
    return folder->path && folder->python &&
           (folder->is_environment || (folder->has_library && !folder->is_system));
}

/* For a wheel in the system's or the user's folders, whose scripts lie next to the machine's programs. */
static char *interpreter_of_wheel(const struct interpreter_folder *folder)
{
    if (!folder->path || !folder->wheel)
        return NULL;
    if (folder->has_wheel_python)
        return mem_printf("%s/python3.%d", folder->path, folder->wheel);
    return folder->has_path_wheel ? mem_printf("python3.%d", folder->wheel) : NULL;
}

char *interpreter_choose(const struct interpreter_facts *facts, bool *of_called)
{
    const struct interpreter_folder *end = facts->folders + facts->count, *file = end - 1;
    *of_called = false;
    for (const struct interpreter_folder *folder = facts->folders; folder < end; folder++)
        if (interpreter_is_home(folder)) {
            *of_called = folder != file && !(file->path && !strcmp(folder->path, file->path));
            return mem_printf("%s/%s", folder->path, folder->python);
        }
    char *found = NULL;
    for (const struct interpreter_folder *folder = facts->folders;
         folder < end && !found && !facts->is_activated; folder++)
        found = interpreter_of_wheel(folder);
    for (const struct interpreter_folder *folder = facts->folders; folder < end && !found && !facts->has_path;
         folder++)
        if (folder->path && folder->python) /* cron's PATH is short */
            found = mem_printf("%s/%s", folder->path, folder->python);
    return found;
}

/* --- finding it on this machine --- */

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

/* The target of a link, as a path that can be used here; NULL: it is none. */
static char *link_target(const char *path)
{
    char target[PATH_MAX];
    const ssize_t length = readlink(path, target, sizeof target - 1);
    if (length <= 0)
        return NULL;
    target[length] = '\0';
    const char *slash = strrchr(path, '/');
    return *target == '/' || !slash ? mem_strdup(target)
                                    : mem_printf("%.*s/%s", (int)(slash - path), path, target);
}

/* The folders of this program as it was called, of the links that lead from there to its file, and of that;
 * each once in a row. */
static int program_folders(const char *called, char *folders[INTERPRETER_FOLDERS])
{
    int count = 0;
    scope_free char *path = mem_strdup(called);
    while (path && *path && count < INTERPRETER_FOLDERS - 1) {
        folders[count] = folder_of(path);
        count += folders[count] != NULL;
        char *target = link_target(path);
        mem_free(path);
        path = target;
    }
    scope_free char *file = link_target(own_file);
    folders[count] = file ? folder_of(file) : NULL;
    if (folders[count] && count && !strcmp(folders[count], folders[count - 1]))
        mem_free(folders[count]);
    else
        count += folders[count] != NULL;
    return count;
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
    char *folders[INTERPRETER_FOLDERS];
    struct interpreter_facts facts = {.is_activated = variable_is_set(get(context, "VIRTUAL_ENV")) ||
                                                      variable_is_set(get(context, "CONDA_PREFIX"))};
    scope_free char *in_path = find_program("python3", path, NULL);
    facts.has_path = in_path != NULL;
    facts.count = program_folders(called ? called : "", folders);
    for (int i = 0; i < facts.count; i++) {
        look_into_folder(folders[i], &facts.folders[i]);
        facts.folders[i].has_path_wheel = path_has_version(facts.folders[i].wheel, path);
    }
    scope_free char *chosen = interpreter_choose(&facts, of_called);
    for (int i = 0; i < facts.count; i++)
        mem_free(folders[i]);
    return chosen && in_path && !strcmp(chosen, in_path) ? NULL : take_pointer(&chosen);
}
