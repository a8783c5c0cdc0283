/* pod_source.c - see pod_source.h. */
#include "launcher/local/pod/pod_source.h"

#include <string.h>

#include "launcher/local/pod/quantity.h"
#include "proto/base/mem.h"

const struct tree_node *pod_source_spec(const struct pod_source *source)
{
    return tree_get(source->template_, "spec");
}

static const struct tree_node *containers_of(const struct tree_node *template_)
{
    const struct tree_node *list = tree_get(tree_get(template_, "spec"), "containers");
    return list && list->kind == TREE_LIST ? list : NULL;
}

const struct tree_node *pod_source_container(const struct pod_source *source)
{
    const struct tree_node *list = containers_of(source->template_);
    return list && source->container < list->count ? list->items[source->container] : NULL;
}

int pod_source_find(const struct tree_node *template_, const char *name)
{
    const struct tree_node *list = containers_of(template_);
    for (size_t i = 0; list && i < list->count; i++) {
        const char *own = tree_text(tree_get(list->items[i], "name"));
        if (own && !strcmp(own, name))
            return (int)i;
    }
    return -1;
}

const struct tree_node *pod_source_words(const struct pod_source *source, const char *field)
{
    const struct tree_node *words = tree_get(source->over.node, field);
    if (!words)
        words = tree_get(pod_source_container(source), field);
    return words && words->kind == TREE_LIST && words->count ? words : NULL;
}

const struct tree_node *pod_source_resources(const struct pod_source *source, const char *kind)
{
    const struct tree_node *map = tree_get(tree_get(source->over.node, "resourcesPerNode"), kind);
    if (!map)
        map = tree_get(tree_get(pod_source_container(source), "resources"), kind);
    return map && map->kind == TREE_MAP ? map : NULL;
}

static bool is_gpu(const char *resource)
{
    return !strncmp(resource, "nvidia.com/gpu", 14) || !strncmp(resource, "nvidia.com/mig-", 15);
}

int pod_source_gpus(const struct pod_source *source)
{
    const struct tree_node *map = pod_source_resources(source, "limits");
    int64_t count = 0;
    if (!map)
        map = pod_source_resources(source, "requests");
    for (size_t i = 0; map && i < map->count; i++) {
        quantity_thousandths amount;
        const struct tree_entry *entry = &map->entries[i];
        if (is_gpu(entry->key) && entry->value->text && quantity_parse(entry->value->text, &amount) &&
            amount > 0)
            count += quantity_in(amount, 1000);
        if (count > 1000000)
            return 1000000;
    }
    return (int)count;
}

const struct tree_node *pod_source_claim(const struct pod_source *source, const char *name)
{
    const struct tree_node *policies = source->claims;
    for (size_t i = 0; policies && policies->kind == TREE_LIST && i < policies->count; i++) {
        const struct tree_node *list = tree_get(policies->items[i], "templates");
        for (size_t k = 0; list && list->kind == TREE_LIST && k < list->count; k++) {
            const char *own = tree_text(tree_get(tree_get(list->items[k], "metadata"), "name"));
            if (own && !strcmp(own, name))
                return list->items[k];
        }
    }
    return NULL;
}

void pod_source_free(struct pod_source *source)
{
    mem_free(source->name);
    mem_free(source->hostname);
    mem_free(source->subdomain);
    mem_free(source->address);
    facts_free(&source->labels);
    facts_free(&source->annotations);
    facts_free(&source->variables);
    *source = (struct pod_source){0};
}
