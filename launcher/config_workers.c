/* config_workers.c - what the settings about this node's workers mean: how many (pure); see
 * config_internal.h. */
#include "launcher/config_internal.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"

static const char *const nproc_words[] = {"cpu", "gpu", "auto"};

/* A number (out is it), a word of nproc_words (out is 0) or an error. */
int config_parse_nproc(const struct run_config *config, int *out, struct muster_error *err)
{
    const char *where = CONFIG_SETTING(config, "nproc-per-node"), *text = config->nproc;
    int64_t number;
    *out = 0;
    for (size_t i = 0; i < sizeof nproc_words / sizeof *nproc_words; i++)
        if (!strcmp(text, nproc_words[i]))
            return 0;
    if (!strcmp(text, "xpu"))
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "%s: xpu devices are not counted; give the number of workers", where);
    if (!text_int64(text, &number))
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is not a number of workers, cpu, gpu or auto",
                         where, text);
    if (number < 1 || number > CONFIG_WORKERS_LIMIT)
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is outside 1 to %d workers", where, text,
                         CONFIG_WORKERS_LIMIT);
    *out = (int)number;
    return 0;
}

int config_resolve_workers(struct run_config *config, const struct machine *machine, struct muster_error *err)
{
    if (config->nproc_per_node > 0)
        return 0;
    bool gpu = !strcmp(config->nproc, "gpu");
    if (gpu && machine->gpus < 1)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: gpu, but no NVIDIA GPU is visible here; give a number, cpu or auto",
                         CONFIG_SETTING(config, "nproc-per-node"));
    config->nproc_per_node =
        strcmp(config->nproc, "cpu") && machine->gpus > 0 ? machine->gpus : machine->cores;
    return 0;
}
