/* device_module.c - see device_module.h. */
#include "runtime/device/device_module.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/library.h"

#define PATH_VARIABLE "MUSTER_CUDA_MODULE"
static const char feature[] = "device cuda";

struct module_calls {
    muster_cuda_module_function *module;
};
static const struct library_function functions[] = {
    {"muster_cuda_module", offsetof(struct module_calls, module), false, NULL}};

/* Loaded once: found and failure are kept. */
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static const struct muster_cuda_module *loaded;

/* The folder of the program or library that has this code, without its last name; "" where it is not known.
 */
static void find_folder(char path[PATH_MAX])
{
    Dl_info info;
    void *here;
    int (*function)(enum device_choice, struct device_chosen *, struct muster_error *) = device_choose;
    memcpy(&here, &function, sizeof here); /* POSIX: a function's address fits */
    if (!dladdr(here, &info) || !info.dli_fname || !strchr(info.dli_fname, '/') ||
        !realpath(info.dli_fname, path)) {
        const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
        path[length > 0 ? length : 0] = '\0';
    }
    char *last = strrchr(path, '/');
    if (last)
        *last = '\0';
}

static int load_from(const char *path, struct module_calls *calls, struct muster_error *err)
{
    const struct library library = {.file = path, .needs = feature, .functions = functions, .count = 1};
    return library_load(&library, calls, NULL, err);
}

/* *path: the file to open, the caller's; MUSTER_CUDA_FILE alone where the loader has to find it. */
static char *find_path(struct muster_error *err)
{
    const char *given = getenv(PATH_VARIABLE);

    char folder[PATH_MAX];
    if (given && *given) {
        if (!access(given, R_OK))
            return mem_strdup(given);
        (void)error_errno(err, "%s: " PATH_VARIABLE " names %s", feature, given);
        return NULL;
    }
    find_folder(folder);
    for (int i = 0; *folder && i < 2; i++) {
        scope_free char *path = i ? mem_printf("%s/../lib/" MUSTER_CUDA_FILE, folder)
                                  : mem_printf("%s/" MUSTER_CUDA_FILE, folder);
        if (path && !access(path, R_OK))
            return take_pointer(&path);
    }
    return mem_strdup(MUSTER_CUDA_FILE);
}

/* dlopen's text for a missing file differs from its text for a file that lacks a library. */
static void module_explain(const char *path, struct muster_error *err)
{
    if (!err || err->code != MUSTER_E_NOT_FOUND)
        return;
    if (!strcmp(path, MUSTER_CUDA_FILE) && strstr(err->text, MUSTER_CUDA_FILE ": cannot open"))
        (void)error_set(
            err, MUSTER_E_NOT_FOUND,
            "%s: the module %s is not installed; build it with ./dev build cuda, or name it in %s", feature,
            MUSTER_CUDA_FILE, PATH_VARIABLE);
    else
        err->code = MUSTER_E_UNSUPPORTED; /* the module is there: a library that it needs is not */
}

static int check_module(const struct muster_cuda_module *module, const char *path, struct muster_error *err)
{
    if (module && module->abi == MUSTER_CUDA_ABI && module->size == sizeof *module && module->device &&
        module->device->abi == DEVICE_ABI && module->device->size == sizeof *module->device)
        return 0;
    return error_set(err, MUSTER_E_UNSUPPORTED,
                     "%s: %s is of another version (%u.%u of %u bytes, where this program has %u.%u of %zu "
                     "bytes): install both from one build",
                     feature, path, module ? module->abi : 0,
                     module && module->device ? module->device->abi : 0, module ? module->size : 0,
                     (unsigned)MUSTER_CUDA_ABI, (unsigned)DEVICE_ABI, sizeof *module);
}

static const struct muster_cuda_module *load_module(struct muster_error *err)
{
    struct module_calls calls = {0};
    scope_free char *path = find_path(err);
    if (!path)
        return NULL;
    if (load_from(path, &calls, err) < 0) {
        module_explain(path, err);
        return NULL;
    }
    const struct muster_cuda_module *module = calls.module();
    return check_module(module, path, err) < 0 ? NULL : module;
}

const struct muster_cuda_module *device_module_load(struct muster_error *err)
{
    struct muster_error local = {0};
    (void)pthread_mutex_lock(&one_at_a_time); /* cannot fail: our own, never locked twice */
    if (!loaded)
        loaded = load_module(err ? err : &local);
    const struct muster_cuda_module *module = loaded; /* another thread may be about to look for it */
    (void)pthread_mutex_unlock(&one_at_a_time);
    return module;
}

int device_choose(enum device_choice choice, struct device_chosen *chosen, struct muster_error *err)
{
    struct muster_error found = {0};
    *chosen = (struct device_chosen){.ops = device_cpu()};
    if (choice == DEVICE_CPU)
        return 0;
    const struct muster_cuda_module *module = device_module_load(&found);
    if (module && !module->probe(&found)) {
        chosen->ops = module->device;
        chosen->module = module;
        return 0;
    }
    if (choice == DEVICE_AUTO) {
        if (found.code != MUSTER_E_NOT_FOUND) /* a machine without the module has no part in this */
            chosen->passed_over = found;
        return 0;
    }
    if (err)
        *err = found;
    return -1;
}
