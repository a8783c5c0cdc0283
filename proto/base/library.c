/* library.c - see library.h. */
#include "proto/base/library.h"

#include <dlfcn.h>
#include <string.h>

#include "proto/base/error.h"

/* POSIX has it that a function's address fits into a pointer to data; ISO C has no cast for it. */
static void put(void *calls, const struct library_function *function, void *address)
{
    memcpy((char *)calls + function->slot, &address, sizeof address);
}

static bool is_filled(const struct library *library, const void *calls)
{
    void *first;
    memcpy(&first, (const char *)calls + library->functions[0].slot, sizeof first);
    return first != NULL;
}

/* The function that is missing, NULL where all are there. loaded NULL: all are inside the program. */
static const char *fill(const struct library *library, void *loaded, void *calls)
{
    for (size_t i = 0; i < library->count; i++) {
        const struct library_function *function = &library->functions[i];
        void *address;
        if (loaded)
            address = dlsym(loaded, function->name);
        else
            memcpy(&address, &function->linked, sizeof address);
        if (!address && !function->optional)
            return function->name;
        put(calls, function, address);
    }
    return NULL;
}

int library_load(const struct library *library, void *calls, void **handle, struct muster_error *err)
{
    if (is_filled(library, calls))
        return 0;
    if (library->functions[0].linked) {
        (void)fill(library, NULL, calls); /* the linker saw to it that none is missing */
        return 0;
    }
    void *loaded = dlopen(library->file, RTLD_NOW | RTLD_LOCAL);
    if (!loaded) {
        const char *reason = dlerror();
        return error_set(err, MUSTER_E_NOT_FOUND, "%s: %s", library->needs, reason ? reason : library->file);
    }
    const char *missing = fill(library, loaded, calls);
    if (missing) {
        for (size_t i = 0; i < library->count; i++)
            put(calls, &library->functions[i], NULL);
        (void)dlclose(loaded); /* keeping a library loaded costs nothing */
        return error_set(err, MUSTER_E_NOT_FOUND, "%s: %s has no function %s, another version is needed",
                         library->needs, library->file, missing);
    }
    if (handle)
        *handle = loaded;
    return 0;
}
