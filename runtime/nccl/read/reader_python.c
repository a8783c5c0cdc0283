/* reader_python.c - the NCCL installed by Python packages. nvidia-nccl-cu12 is installed next to torch, and
 * its version is the name of a directory there. No Python code runs.
 *
 * Workers run under PYTHON_EXEC, else the first python3 of PATH; its packages are in lib/python3.<n> of
 * the same prefix, Debian's also in local/. */
#include <stdio.h>
#include <string.h>

#include "runtime/nccl/read/reader_internal.h"

static const char *variable(const struct reader *r, const char *name)
{
    size_t length = strlen(name);
    for (char *const *entry = r->options->environment; entry && *entry; entry++)
        if (!strncmp(*entry, name, length) && (*entry)[length] == '=' && (*entry)[length + 1])
            return *entry + length + 1;
    return NULL;
}

/* "nvidia_nccl_cu12-2.27.5.dist-info" in a directory of packages, which context is. */
static void look_at_package(struct reader *r, const char *name, void *context)
{
    static const char begins[] = "nvidia_nccl_cu", ends[] = ".dist-info";
    char version[DESCRIPTION_NAME];
    const char *dash = strchr(name, '-');
    size_t length = strlen(name);
    if (*r->out->nccl || strncmp(name, begins, sizeof begins - 1) != 0 || !dash || length < sizeof ends ||
        strcmp(name + length - (sizeof ends - 1), ends) != 0)
        return;
    (void)snprintf(version, sizeof version, "%.*s", (int)(name + length - (sizeof ends - 1) - dash - 1),
                   dash + 1);
    if (description_version(version) == 0)
        return;
    READER_SET(r->out->nccl, version);
    (void)snprintf(r->out->nccl_path, sizeof r->out->nccl_path, "%s/nvidia/nccl/lib/libnccl.so.2",
                   (const char *)context);
}

static void look_at_version(struct reader *r, const char *name, void *context)
{
    static const char *const folders[] = {"site-packages", "dist-packages"};
    char path[READER_PATH];
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !strncmp(name, "python3", 7); i++)
        if (snprintf(path, sizeof path, "%s/%s/%s", (const char *)context, name, folders[i]) <
            (int)sizeof path)
            reader_each(r, path, look_at_package, path);
}

/* The directory of the interpreter; false where there is none. */
static bool find_interpreter(const struct reader *r, char *folder, size_t size)
{
    const char *given = variable(r, "PYTHON_EXEC"), *path = variable(r, "PATH");
    if (given && strchr(given, '/')) {
        (void)snprintf(folder, size, "%.*s", (int)(strrchr(given, '/') - given), given);
        return true;
    }
    for (const char *at = path ? path : ""; *at;) {
        size_t length = strcspn(at, ":");
        if (length > 0 && length < size &&
            reader_exists(r, "%.*s/%s", (int)length, at, given ? given : "python3")) {
            (void)snprintf(folder, size, "%.*s", (int)length, at);
            return true;
        }
        at += length + (at[length] == ':');
    }
    return false;
}

void reader_python(struct reader *r)
{
    static const char *const libraries[] = {"lib", "local/lib"};
    char folder[DESCRIPTION_TEXT], path[READER_PATH];
    if (*r->out->nccl || !find_interpreter(r, folder, sizeof folder))
        return;
    char *slash = strrchr(folder, '/');
    if (!slash || strcmp(slash, "/bin") != 0)
        return;
    *slash = 0;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, libraries[i]);
        reader_each(r, path, look_at_version, path);
    }
}
