/* nvml_library.c - see nvml_library.h. */
#include "proto/nvml/nvml_library.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/library.h"

#define NVML_NEEDED(member, name, parameters)   {name, offsetof(struct nvml_library, member), false, NULL},
#define NVML_OPTIONAL(member, name, parameters) {name, offsetof(struct nvml_library, member), true, NULL},
static const struct library_function functions[] = {NVML_FUNCTIONS(NVML_NEEDED) NVML_OPTIONAL_FUNCTIONS(
    NVML_OPTIONAL) NVML_USAGE_FUNCTIONS(NVML_OPTIONAL) NVML_OPTIONAL(error_string, "nvmlErrorString", (int))};
#undef NVML_NEEDED
#undef NVML_OPTIONAL

int nvml_open(const char *file, struct nvml_library *nvml, struct muster_error *err)
{
    char words[128];
    const struct library library = {
        .file = file ? file : "libnvidia-ml.so.1",
        .needs = "NVML cannot be loaded",
        .functions = functions,
        .count = sizeof functions / sizeof *functions,
    };
    *nvml = (struct nvml_library){0};
    if (library_load(&library, nvml, &nvml->loaded, err) < 0)
        return -1;
    int code = nvml->init();
    if (code == NVML_SUCCESS)
        return 0;
    (void)error_set(err, MUSTER_E_IO, "NVML does not start: %s", nvml_words(nvml, code, words, sizeof words));
    (void)dlclose(nvml->loaded); /* keeping the library loaded costs nothing */
    return -1;
}

void nvml_close(struct nvml_library *nvml)
{
    (void)nvml->shutdown(); /* a failing shutdown does not invalidate the results */
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
