/* reader_settings.c - the user's settings: the environment, then NCCL's files in NCCL's order.
 *
 * NCCL (param.cc, 2.23 and later) reads NCCL_CONF_FILE if it is set, else ~/.nccl.conf, and then
 * /etc/nccl.conf; a line is NAME=value without any trimming, # begins a comment in column 0 only; the
 * environment wins over the files, and the first line wins. */
#include <stdio.h>
#include <string.h>

#include "proto/base/guard.h"
#include "runtime/nccl/read/reader_internal.h"

static bool setting_is_relevant(const char *name)
{
    static const char *const prefixes[] = {"NCCL_",     "GLOO_", "TP_SOCKET_", "TORCH_NCCL_",
                                           "TORCH_FR_", "CUDA_", "FI_",        "RDMAV_"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
            return true;
    return false;
}

static void setting_add(struct reader *r, const char *name, size_t length, const char *value,
                        const char *source)
{
    if (length == 0 || length >= DESCRIPTION_NAME)
        return;
    struct description_setting *setting =
        reader_grow(r, &r->out->settings, &r->out->setting_count, sizeof *setting);
    if (!setting)
        return;
    (void)snprintf(setting->name, sizeof setting->name, "%.*s", (int)length, name);
    READER_SET(setting->value, value);
    READER_SET(setting->source, source);
}

static void read_environment(struct reader *r)
{
    for (char *const *entry = r->options->environment; entry && *entry; entry++) {
        const char *equals = strchr(*entry, '=');
        if (!equals)
            continue;
        if (setting_is_relevant(*entry))
            setting_add(r, *entry, (size_t)(equals - *entry), equals + 1, "environment");
        if (!strncmp(*entry, "CUDA_VISIBLE_DEVICES=", 21))
            READER_SET(r->out->visible_devices, equals + 1);
        else if (!strncmp(*entry, "MUSTER_NODE_POOL=", 17))
            READER_SET(r->out->node_pool, equals + 1);
        else if (!strncmp(*entry, "KUBERNETES_SERVICE_HOST=", 24))
            r->out->kubernetes = r->out->container = true;
    }
}

static void read_file(struct reader *r, const char *path, const char *shown)
{
    char line[1200], source[DESCRIPTION_TEXT];
    scope_fclose FILE *file = fopen(path, "re");
    for (int number = 1; file && fgets(line, sizeof line, file); number++) {
        char *equals = strchr(line, '=');
        if (line[0] == '#' || !equals)
            continue;
        line[strcspn(line, "\n")] = 0;
        (void)snprintf(source, sizeof source, "%.200s:%d", shown, number);
        setting_add(r, line, (size_t)(equals - line), equals + 1, source);
    }
}

static const char *variable(const struct reader *r, const char *name)
{
    size_t length = strlen(name);
    for (char *const *entry = r->options->environment; entry && *entry; entry++)
        if (!strncmp(*entry, name, length) && (*entry)[length] == '=')
            return *entry + length + 1;
    return NULL;
}

void reader_settings(struct reader *r)
{
    char path[READER_PATH];
    const char *chosen = variable(r, "NCCL_CONF_FILE");
    read_environment(r);
    if (chosen && *chosen)
        read_file(r, chosen, chosen);
    else if (r->options->home &&
             snprintf(path, sizeof path, "%s/.nccl.conf", r->options->home) < (int)sizeof path)
        read_file(r, path, "~/.nccl.conf");
    if (reader_path(r, path, "/etc/nccl.conf"))
        read_file(r, path, "/etc/nccl.conf");
}
