/* nvml_library.c - see nvml_library.h. */
#include "runtime/nccl/nvml_library.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"

/* POSIX lets a symbol's address be a function's; ISO C has no cast for it. */
#define LOAD(member, name)                                                                                   \
    do {                                                                                                     \
        void *symbol = dlsym(nvml->loaded, name);                                                            \
        memcpy(&nvml->member, &symbol, sizeof symbol);                                                       \
    } while (0)

static int load(struct nvml_library *nvml, struct muster_error *err)
{
#define NVML_LOAD(member, name, parameters)                                                                  \
    LOAD(member, name);                                                                                      \
    if (!nvml->member)                                                                                       \
        return error_set(err, MUSTER_E_NOT_FOUND, "this NVML has no %s: the driver is too old", name);
    NVML_FUNCTIONS(NVML_LOAD)
#undef NVML_LOAD
#define NVML_LOAD(member, name, parameters) LOAD(member, name);
    NVML_OPTIONAL_FUNCTIONS(NVML_LOAD)
#undef NVML_LOAD
    LOAD(error_string, "nvmlErrorString");
    return 0;
}

int nvml_open(const char *file, struct nvml_library *nvml, struct muster_error *err)
{
    char words[128];
    *nvml = (struct nvml_library){0};
    nvml->loaded = dlopen(file ? file : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml->loaded)
        return error_set(err, MUSTER_E_NOT_FOUND, "NVML cannot be loaded: %s", dlerror());
    int result = load(nvml, err);
    int code = result == 0 ? nvml->init() : NVML_SUCCESS;
    if (code != NVML_SUCCESS)
        result = error_set(err, MUSTER_E_IO, "NVML: it does not start: %s",
                           nvml_words(nvml, code, words, sizeof words));
    if (result < 0)
        (void)dlclose(nvml->loaded); /* a library that stays costs nothing */
    return result;
}

void nvml_close(struct nvml_library *nvml)
{
    (void)nvml->shutdown(); /* what was read is read */
    (void)dlclose(nvml->loaded);
}

const char *nvml_words(const struct nvml_library *nvml, int code, char *out, unsigned size)
{
    (void)snprintf(out, size, "%s (%d)", nvml->error_string ? nvml->error_string(code) : "error", code);
    return out;
}

void nvml_spell_bus(const char *text, char *out, unsigned size)
{
    size_t domain = strcspn(text, ":");
    if (domain == 8 && !strncmp(text, "0000", 4))
        text += 4;
    (void)snprintf(out, size, "%s", text);
    for (char *at = out; *at; at++)
        *at = (char)tolower((unsigned char)*at);
}
