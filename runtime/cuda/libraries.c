/* libraries.c - see libraries.h. proto/base/library.h loads; this file adds the versions of functions. */
#include "runtime/cuda/libraries.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/library.h"

/* The functions that every accepted version has must be there; the others are looked at when the version is
 * known. */
static int library_open_file(const struct cuda_library *library, void *calls, struct muster_error *err)
{
    struct library_function rows[CUDA_LIBRARY_FUNCTIONS];
    if (library->count > CUDA_LIBRARY_FUNCTIONS)
        return error_set(err, MUSTER_E_LIMIT, "the table of %s has %zu rows; %d fit", library->name,
                         library->count, CUDA_LIBRARY_FUNCTIONS);
    for (size_t i = 0; i < library->count; i++) {
        const struct cuda_library_function *from = &library->functions[i];
        rows[i] = (struct library_function){
            .name = from->name, .slot = from->slot, .optional = from->since > library->oldest};
    }
    const struct library table = {
        .file = library->file, .needs = library->from, .functions = rows, .count = library->count};
    return library_load(&table, calls, NULL, err);
}

static void *function_in(const void *calls, size_t slot)
{
    void *function;
    memcpy(&function, (const char *)calls + slot, sizeof function);
    return function;
}

/* A library states its version, and its functions must fit that version. A function of a later version that
 * is present by accident is taken out: its behaviour is not the later version's. */
static int check_functions(const struct cuda_library *library, int version, void *calls,
                           struct muster_error *err)
{
    char text[32];
    for (size_t i = 0; i < library->count; i++) {
        const struct cuda_library_function *row = &library->functions[i];
        if (row->since > version) {
            memset((char *)calls + row->slot, 0, sizeof(void *));
        } else if (!function_in(calls, row->slot)) {
            library->version_text(version, text, sizeof text);
            return error_set(err, MUSTER_E_NOT_FOUND,
                             "%s: %s claims to be %s %s, but has no function %s: install it anew",
                             library->from, library->file, library->name, text, row->name);
        }
    }
    return 0;
}

static int check_version(const struct cuda_library *library, void *calls, int *version,
                         struct muster_error *err)
{
    char has[32], wants[32];
    if (library->version(calls, version, err) != 0)
        return error_wrap(err, "%s: the version of %s", library->from, library->file);
    if (*version >= library->oldest)
        return 0;
    library->version_text(*version, has, sizeof has);
    library->version_text(library->oldest, wants, sizeof wants);
    return error_set(err, MUSTER_E_UNSUPPORTED, "%s: %s is %s %s, and %s or later is needed", library->from,
                     library->file, library->name, has, wants);
}

int cuda_library_open(const struct cuda_library *library, void *calls, size_t calls_size, int *version,
                      struct muster_error *err)
{
    int found = 0;
    if (library_open_file(library, calls, err) != 0)
        return -1; /* nothing was filled */
    if (check_version(library, calls, &found, err) != 0 || check_functions(library, found, calls, err) != 0) {
        memset(calls, 0, calls_size);
        return -1;
    }
    if (version)
        *version = found;
    return 0;
}
