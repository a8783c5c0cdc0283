/* accelerate_sections.c - the sections of accelerate's configuration file: fsdp_config, deepspeed_config,
 * ...; see accelerate_reader.h. */
#include <string.h>

#include "launcher/accelerate/accelerate_keys.h"
#include "launcher/accelerate/accelerate_reader.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

static int check_section(const struct accelerate_reader *r, const struct accelerate_section *section,
                         const struct tree_node *map)
{
    if (map->kind != TREE_MAP)
        return error_set(r->err, MUSTER_E_INVALID, "%s:%d: %s: %s where keys are expected", r->file,
                         map->line, section->name, tree_kind_name(map->kind));
    for (size_t i = 0; i < map->count; i++) {
        const struct tree_entry *entry = &map->entries[i];
        const char *hint = accelerate_nearest_key(section, entry->key);
        if (!accelerate_key(section, entry->key))
            buffer_printf(&r->out->warnings, "%s:%d: '%s' is not a key of %s and has no effect; %s%s%s\n",
                          r->file, entry->line, ACCELERATE_SHOWN(entry->key), section->name,
                          hint ? "did you mean " : "remove it", hint ? hint : "", hint ? "?" : "");
    }
    return r->out->warnings.failed ? accelerate_no_memory(r) : 0;
}

/* The value of a key of a section, with its prefix or without; NULL where it is missing or null. */
static const struct tree_node *section_value(const struct accelerate_section *section,
                                             const struct tree_node *map, const struct accelerate_key *key)
{
    for (size_t i = 0; map && i < map->count; i++)
        if (map->entries[i].value->kind != TREE_NULL && accelerate_key(section, map->entries[i].key) == key)
            return map->entries[i].value;
    return NULL;
}

static const struct tree_node *section_value_named(const struct accelerate_section *section,
                                                   const struct tree_node *map, const char *name)
{
    return section_value(section, map, accelerate_key(section, name));
}

static int read_key(struct accelerate_reader *r, const struct accelerate_section *section,
                    const struct tree_node *map, const struct accelerate_key *key)
{
    int64_t above = 0;
    const struct tree_node *node = section_value(section, map, key);
    const struct tree_node *when = key->when ? section_value_named(section, map, key->when) : NULL;
    if (!key->variable || (key->when && (!when || !accelerate_int(when, &above) || above <= 1)))
        return 0;
    if (!node)
        return key->initial ? accelerate_add_variable(r, key->variable, key->initial, 0) : 0;
    if (!accelerate_is_value(node))
        return accelerate_not_one_value(r, key->name, node);
    return accelerate_take_variable(r, key->variable, accelerate_print(node, key->form), node->line);
}

static int read_rows(struct accelerate_reader *r, const struct accelerate_section *section,
                     const struct tree_node *map)
{
    for (size_t i = 0; i < section->count; i++)
        if (read_key(r, section, map, &section->keys[i]) < 0)
            return -1;
    return 0;
}

/* Only rank 0 loads the weights, so that the others need them from it. */
static int check_fsdp(const struct accelerate_reader *r, const struct accelerate_section *section,
                      const struct tree_node *map)
{
    const struct tree_node *efficient = section_value_named(section, map, "fsdp_cpu_ram_efficient_loading");
    const struct tree_node *sync = section_value_named(section, map, "fsdp_sync_module_states");
    bool loads = true, sends = true;
    if ((efficient && !accelerate_bool(efficient, &loads)) || (sync && !accelerate_bool(sync, &sends)))
        return 0; /* the workers' accelerate reads them */
    if (!loads || sends)
        return 0;
    return error_set(r->err, MUSTER_E_INVALID,
                     "%s:%d: fsdp_sync_module_states is false, but fsdp_cpu_ram_efficient_loading needs it; "
                     "set one of them",
                     r->file, sync->line);
}

static int read_fp8(struct accelerate_reader *r, const struct accelerate_section *section,
                    const struct tree_node *map)
{
    static const char *const names[] = {"ACCELERATE_FP8_OVERRIDE_FPROP", "ACCELERATE_FP8_OVERRIDE_DGRAD",
                                        "ACCELERATE_FP8_OVERRIDE_WGRAD"};
    const struct tree_node *list = section_value_named(section, map, "fp8_override_linear_precision");
    bool value[3] = {false, false, false};
    bool fits = !list || (list->kind == TREE_LIST && list->count == 3);
    for (size_t i = 0; list && fits && i < 3; i++)
        fits = accelerate_bool(list->items[i], &value[i]);
    if (!fits)
        return error_set(
            r->err, MUSTER_E_INVALID,
            "%s:%d: fp8_override_linear_precision is not a list of three booleans (fprop, dgrad, "
            "wgrad)",
            r->file, list->line);
    for (size_t i = 0; i < 3; i++)
        if (accelerate_add_variable(r, names[i], value[i] ? "True" : "False", list ? list->line : 0) < 0)
            return -1;
    return 0;
}

/* A host file starts the agents over ssh, as mpirun and DeepSpeed's launchers do by it. */
static int read_hostfile(struct accelerate_reader *r, const char *key, const struct tree_node *node)
{
    if (!node || accelerate_is_empty(node))
        return 0;
    if (!accelerate_is_value(node))
        return accelerate_not_one_value(r, key, node);
    return accelerate_add_setting(r, "hostfile", node->text, node->line);
}

/* Keys of the file in which they are the launcher's, for the workers' accelerate. */
static int name_deepspeed_fields(struct accelerate_reader *r, const struct tree_node *map)
{
    scope_buffer fields = {0};
    for (size_t i = 0; map && i < map->count; i++)
        buffer_printf(&fields, "%s%s", i ? "," : "", map->entries[i].key);
    if (r->precision_given)
        buffer_printf(&fields, "%smixed_precision", fields.length ? "," : "");
    return fields.failed ? accelerate_no_memory(r)
                         : accelerate_add_variable(r, "ACCELERATE_CONFIG_DS_FIELDS",
                                                   fields.data ? fields.data : "", map ? map->line : 0);
}

static int read_deepspeed_hosts(struct accelerate_reader *r, const struct accelerate_section *section,
                                const struct tree_node *map)
{
    static const char *const filters[] = {"deepspeed_inclusion_filter", "deepspeed_exclusion_filter"};
    const struct tree_node *launcher = section_value_named(section, map, "deepspeed_multinode_launcher");
    const struct tree_node *hosts = section_value_named(section, map, "deepspeed_hostfile");
    const char *name = tree_text(launcher);
    const bool by_hand = name && (!strcmp(name, "standard") || !strcmp(name, "nossh"));
    if (r->machines > 1 && !by_hand && hosts) {
        for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
            const struct tree_node *filter = section_value_named(section, map, filters[i]);
            if (filter && !accelerate_is_empty(filter))
                return error_set(
                    r->err, MUSTER_E_UNSUPPORTED,
                    "%s:%d: %s: parts of a host file are not chosen; name the hosts with --hosts", r->file,
                    filter->line, filters[i]);
        }
        return read_hostfile(r, "deepspeed_hostfile", hosts);
    }
    if (hosts && !accelerate_is_empty(hosts) &&
        accelerate_set_aside(r, "deepspeed_hostfile",
                             r->machines > 1 ? "each machine is started by hand" : "one machine") < 0)
        return -1;
    return launcher && !by_hand && r->machines > 1
               ? accelerate_set_aside(r, "deepspeed_multinode_launcher",
                                      "no host file: start muster run on each machine")
               : 0;
}

static int read_deepspeed(struct accelerate_reader *r, const struct accelerate_section *section,
                          const struct tree_node *map)
{
    if (name_deepspeed_fields(r, map) < 0 || read_deepspeed_hosts(r, section, map) < 0 ||
        accelerate_add_variable(r, "PYTHONPATH", r->directory, 0) < 0)
        return -1;
    for (int i = 0; i < r->out->variable_count; i++)
        if (!strcmp(r->out->variables[i].name, "PYTHONPATH"))
            r->out->variables[i].path = true;
    return 0;
}

static bool has_effect(const struct accelerate_reader *r, const struct accelerate_section *section)
{
    switch (section->reads) {
    case ACCELERATE_READ_BY_TYPE:
        return r->type->section && !strcmp(r->type->section, section->name);
    case ACCELERATE_READ_FOR_FP8:
        return !strcmp(r->precision, "fp8");
    case ACCELERATE_READ_NOT_SIMPLE:
        return r->type->launcher != ACCELERATE_SIMPLE;
    case ACCELERATE_READ_NOT_DEEPSPEED:
        return r->type->launcher != ACCELERATE_DEEPSPEED;
    }
    return false;
}

/* Rules of sections besides the rows of the table; a section without effect has none. */
static int read_rest(struct accelerate_reader *r, const struct accelerate_section *section,
                     const struct tree_node *map)
{
    if (!strcmp(section->name, "fsdp_config"))
        return check_fsdp(r, section, map);
    if (!strcmp(section->name, "fp8_config"))
        return read_fp8(r, section, map);
    if (!strcmp(section->name, "deepspeed_config"))
        return read_deepspeed(r, section, map);
    if (!strcmp(section->name, "mpirun_config"))
        return read_hostfile(r, "mpirun_hostfile", section_value_named(section, map, "mpirun_hostfile"));
    return 0;
}

/* Its defaults alone are not set. */
static int read_parallelism(struct accelerate_reader *r, const struct accelerate_section *section,
                            const struct tree_node *map)
{
    if (!map)
        return 0;
    return accelerate_add_variable(r, "ACCELERATE_USE_PARALLELISM_CONFIG", "true", map->line) < 0
               ? -1
               : read_rows(r, section, map);
}

static int read_section(struct accelerate_reader *r, const struct accelerate_section *section)
{
    const struct tree_node *map = tree_get(r->root, section->name);
    if (map && check_section(r, section, map) < 0)
        return -1;
    if (map && !map->count)
        map = NULL;
    if (!has_effect(r, section))
        return map ? accelerate_set_aside(r, section->name, section->otherwise) : 0;
    if (section->reads == ACCELERATE_READ_NOT_SIMPLE)
        return read_parallelism(r, section, map);
    return read_rows(r, section, map) < 0 || read_rest(r, section, map) < 0 ? -1 : 0;
}

int accelerate_read_sections(struct accelerate_reader *r)
{
    size_t count;
    const struct accelerate_section *sections = accelerate_sections(&count);
    for (size_t i = 0; i < count; i++)
        if (read_section(r, &sections[i]) < 0)
            return -1;
    return 0;
}
