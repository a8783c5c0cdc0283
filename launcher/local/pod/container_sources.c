/* container_sources.c - see container_sources.h. */
#include "launcher/local/pod/container_sources.h"

#include <stdlib.h>
#include <string.h>

#include "launcher/local/pod/quantity.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"

static int no_memory(struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM, "no memory");
}

/* A fatal problem; 0, as for "there is no value". */
#define MISSING(place, problems, at, path, ...)                                                              \
    (problems_add(problems, PROBLEM_INVALID, (place)->file, at, path, __VA_ARGS__),                          \
     problems_fatal(problems), 0)

static int give(char **value, char *text, struct muster_error *err)
{
    *value = text;
    return text ? 1 : no_memory(err);
}

static bool is_optional(const struct tree_node *ref)
{
    const struct tree_node *node = tree_get(ref, "optional");
    return node && node->kind == TREE_BOOL && node->boolean;
}

/* --- ConfigMaps and Secrets --- */

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

bool container_base64(const char *text, bool zeros, struct buffer *out)
{
    uint32_t bits = 0;
    int count = 0;
    buffer_text(out, "");
    for (; *text && *text != '='; text++) {
        if (strchr("\r\n \t", *text))
            continue;
        int digit = base64_digit(*text);
        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        count += 6;
        if (count >= 8) {
            count -= 8;
            char byte = (char)(bits >> count & 0xff);
            if ((!byte && !zeros) || buffer_append(out, &byte, 1) < 0)
                return false;
        }
    }
    return count < 6 && text[strspn(text, "=\r\n \t")] == 0;
}

void container_values_find(const struct container_place *place, const char *kind, const struct tree_node *ref,
                           const struct path *path, struct container_values *values,
                           struct problems *problems)
{
    const char *name = tree_text(tree_get(ref, "name")), *namespace_ = place->source->namespace_;
    *values = (struct container_values){
        .object = documents_find(place->documents, kind, namespace_, name ? name : "")};
    if (!values->object && !is_optional(ref)) {
        /* A cluster would not start the container. Values that --env gives are enough for a whole object,
         * whose keys are not known here; --validate=warn runs without the variable. */
        bool given = !tree_get(ref, "key") && place->extra && *place->extra;
        problems_add(problems, given ? PROBLEM_WARNING : PROBLEM_INVALID, place->file, ref, path,
                     "no %s %.100s of the namespace %.100s was given; %s", kind,
                     name ? name : "(without a name)", place->source->namespace_,
                     given ? "the pods have only its variables that --env sets"
                           : "put it into the same file, name its file by another -f, or give the value by "
                             "--env NAME=value");
    }
    if (!values->object)
        return;
    values->data = tree_get(values->object->node, "data");
    values->plain = tree_get(values->object->node, "stringData");
    if (values->data && values->data->kind != TREE_MAP)
        values->data = NULL;
    if (values->plain && values->plain->kind != TREE_MAP)
        values->plain = NULL;
}

size_t container_values_count(const struct container_values *values)
{
    return (values->data ? values->data->count : 0) + (values->plain ? values->plain->count : 0);
}

int container_values_at(const struct container_values *values, size_t at, const char **key, char **value,
                        struct problems *problems, struct muster_error *err)
{
    const struct document_object *object = values->object;
    size_t data = values->data ? values->data->count : 0;
    const struct tree_entry *entry =
        at < data ? &values->data->entries[at] : &values->plain->entries[at - data];
    const char *text = tree_text(entry->value);
    *key = entry->key;
    if (!text) {
        problems_add(problems, PROBLEM_INVALID, object->file, entry->value, PATH_KEY(NULL, entry->key),
                     "the data of a %s is text, not %s; quote it", object->kind,
                     tree_kind_name(entry->value->kind));
        problems_fatal(problems);
        return 0;
    }
    if (at >= data || strcmp(object->kind, "Secret"))
        return give(value, mem_strdup(text), err);
    scope_buffer decoded = {.limit = ENV_TEXT_LIMIT};
    if (!container_base64(text, false, &decoded)) {
        problems_add(problems, PROBLEM_INVALID, object->file, entry->value, PATH_KEY(NULL, entry->key),
                     "the data of a Secret is base64 of at most %d bytes without a zero byte; plain text "
                     "goes under stringData",
                     ENV_TEXT_LIMIT);
        problems_fatal(problems);
        return 0;
    }
    return give(value, buffer_take(&decoded), err);
}

static int from_key(const struct container_place *place, const char *kind, const struct tree_node *ref,
                    const struct path *path, char **value, struct problems *problems,
                    struct muster_error *err)
{
    const char *key = tree_text(tree_get(ref, "key")), *found;
    struct container_values values;
    container_values_find(place, kind, ref, path, &values, problems);
    if (!values.object)
        return 0;
    /* stringData comes last and takes precedence */
    for (size_t i = container_values_count(&values); key && i > 0; i--) {
        const struct tree_node *map = values.data && i <= values.data->count ? values.data : values.plain;
        size_t at = map == values.data ? i - 1 : i - 1 - (values.data ? values.data->count : 0);
        if (!strcmp(map->entries[at].key, key))
            return container_values_at(&values, i - 1, &found, value, problems, err);
    }
    if (!is_optional(ref))
        problems_add(problems, PROBLEM_INVALID, place->file, ref, path,
                     "%s %.100s has no key %.100s; add it, or give the value by --env NAME=value", kind,
                     values.object->name, key ? key : "");
    return 0;
}

/* --- the pod's own fields --- */

/* KEY of "metadata.labels['KEY']", the caller's; NULL where field is nothing like it. */
static char *subscript(const char *field, const char *map)
{
    size_t length = strlen(map), all = strlen(field);
    if (strncmp(field, map, length) || all < length + 5 || strncmp(field + length, "['", 2) ||
        strcmp(field + all - 2, "']"))
        return NULL;
    return mem_strndup(field + length + 2, all - length - 4);
}

/* The controller's value goes before the template's own; NULL: the pod has none of this name. */
static const char *find_in_map(const struct container_place *place, const char *map,
                               const struct facts *facts, const char *key)
{
    const struct tree_node *own = tree_get(tree_get(place->source->template_, "metadata"), map);
    const char *text = facts_find(facts, key);
    return text ? text : tree_text(tree_get(own, key));
}

static int compare_facts(const void *a, const void *b)
{
    return strcmp(((const struct fact *)a)->name, ((const struct fact *)b)->name);
}

/* A value in double quotes; unprintable bytes are escaped as Go does. */
static void quote_value(const char *text, struct buffer *out)
{
    buffer_text(out, "\"");
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            buffer_printf(out, "\\%c", *text);
        else if (*text == '\n' || *text == '\t' || *text == '\r')
            buffer_printf(out, "\\%c", *text == '\n' ? 'n' : *text == '\t' ? 't' : 'r');
        else
            buffer_append(out, text, 1);
    }
    buffer_text(out, "\"");
}

int container_field_map(const struct container_place *place, const struct tree_node *from, struct buffer *out)
{
    const char *field = tree_text(tree_get(tree_get(from, "fieldRef"), "fieldPath"));
    bool labels = field && !strcmp(field, "metadata.labels");
    if (!labels && !(field && !strcmp(field, "metadata.annotations")))
        return 0;
    const struct facts *facts = labels ? &place->source->labels : &place->source->annotations;
    const struct tree_node *own =
        tree_get(tree_get(place->source->template_, "metadata"), labels ? "labels" : "annotations");
    size_t own_count = own && own->kind == TREE_MAP ? own->count : 0, count = 0;
    scope_free struct fact *all = mem_calloc(own_count + (size_t)facts->count + 1, sizeof *all);
    if (!all)
        return -1;
    for (int i = 0; i < facts->count; i++)
        if (facts_find(facts, facts->list[i].name) == facts->list[i].value)
            all[count++] = facts->list[i];
    for (size_t i = 0; i < own_count; i++)
        if (!facts_find(facts, own->entries[i].key) && tree_text(own->entries[i].value))
            all[count++] = (struct fact){own->entries[i].key, (char *)tree_text(own->entries[i].value)};
    qsort(all, count, sizeof *all, compare_facts);
    buffer_text(out, "");
    for (size_t i = 0; i < count; i++) {
        buffer_printf(out, "%s%s=", i ? "\n" : "", all[i].name);
        quote_value(all[i].value, out);
    }
    return out->failed ? -1 : 1;
}

/* Empty in a cluster, too, without a word: the pods of a Job that is not Indexed then have no rank. */
static void warn_of_absence(const struct container_place *place, const struct tree_node *ref,
                            const struct path *path, const char *key, struct problems *problems)
{
    const bool index = !strcmp(key, "batch.kubernetes.io/job-completion-index");
    problems_add(problems, PROBLEM_WARNING, place->file, ref, PATH_FIELD(path, "fieldPath"),
                 "the pod has no %.100s, so that the value is empty%s", key,
                 index ? "; only pods of a Job with completionMode: Indexed have it" : "");
}

/* An id that looks like one and is the same in every run. */
static char *pod_uid(const struct container_place *place)
{
    uint64_t a = text_hash(TEXT_HASH_START, place->source->namespace_, strlen(place->source->namespace_));
    a = text_hash(a, place->source->name, strlen(place->source->name));
    uint64_t b = text_hash(a, "uid", 3);
    return mem_printf("%08x-%04x-4%03x-8%03x-%012llx", (unsigned)(a >> 32), (unsigned)(a >> 16 & 0xffff),
                      (unsigned)(a & 0xfff), (unsigned)(b >> 52), (unsigned long long)(b & 0xffffffffffff));
}

static int from_field(const struct container_place *place, const struct tree_node *ref,
                      const struct path *path, char **value, struct problems *problems,
                      struct muster_error *err)
{
    const struct tree_node *pod = tree_get(place->source->template_, "spec");
    const char *account = tree_text(tree_get(pod, "serviceAccountName"));
    const char *field = tree_text(tree_get(ref, "fieldPath"));
    const struct {
        const char *name, *value;
    } fields[] = {
        {"metadata.name", place->source->name},
        {"metadata.namespace", place->source->namespace_},
        {"spec.nodeName", place->machine->node_name},
        {"spec.serviceAccountName", account ? account : "default"},
        {"status.podIP", place->source->address},
        {"status.podIPs", place->source->address},
        {"status.hostIP", "127.0.0.1"},
        {"status.hostIPs", "127.0.0.1"},
    };
    for (size_t i = 0; field && i < sizeof fields / sizeof *fields; i++)
        if (!strcmp(field, fields[i].name))
            return give(value, mem_strdup(fields[i].value), err);
    if (field && !strcmp(field, "metadata.uid"))
        return give(value, pod_uid(place), err);
    scope_free char *label = field ? subscript(field, "metadata.labels") : NULL;
    scope_free char *annotation = field ? subscript(field, "metadata.annotations") : NULL;
    const char *key = label ? label : annotation;
    if (key) {
        const char *text = label ? find_in_map(place, "labels", &place->source->labels, key)
                                 : find_in_map(place, "annotations", &place->source->annotations, key);
        if (!text)
            warn_of_absence(place, ref, path, key, problems);
        return give(value, mem_strdup(text ? text : ""), err);
    }
    return MISSING(
        place, problems, ref, PATH_FIELD(path, "fieldPath"),
        "'%.100s' is none of metadata.name, metadata.namespace, metadata.uid, metadata.labels['<KEY>'], "
        "metadata.annotations['<KEY>'], spec.nodeName, spec.serviceAccountName, status.hostIP, status.podIP",
        field ? field : "");
}

/* --- resources --- */

/* A container's limits or requests; for the container that is run, a TrainJob's go first. */
static const struct tree_node *amounts(const struct container_place *place, const struct tree_node *container,
                                       const char *kind)
{
    if (container == pod_source_container(place->source))
        return pod_source_resources(place->source, kind);
    return tree_get(tree_get(container, "resources"), kind);
}

/* A container's limit of a resource: the manifest's, else all of the machine. */
static bool resource_amount(const struct container_place *place, const struct tree_node *container,
                            const char *kind, const char *name, quantity_thousandths *out)
{
    const struct tree_node *node = tree_get(amounts(place, container, kind), name);
    if (!node)
        node = tree_get(amounts(place, container, "limits"), name); /* requests default to limits */
    if (node && node->text)
        return quantity_parse(node->text, out);
    *out = 0;
    if (!strcmp(name, "cpu"))
        *out = (quantity_thousandths)place->machine->cores * 1000;
    else if (!strcmp(name, "memory"))
        *out = (quantity_thousandths)place->machine->memory_bytes * 1000;
    if (!strcmp(kind, "requests")) /* nothing is requested */
        *out = 0;
    return true;
}

static const struct tree_node *named_container(const struct container_place *place, const char *name)
{
    int at = pod_source_find(place->source->template_, name);
    return at < 0 ? NULL : tree_get(pod_source_spec(place->source), "containers")->items[at];
}

static int from_resource(const struct container_place *place, const struct tree_node *ref,
                         const struct path *path, char **value, struct problems *problems,
                         struct muster_error *err)
{
    const char *resource = tree_text(tree_get(ref, "resource")),
               *other = tree_text(tree_get(ref, "containerName"));
    const struct tree_node *divisor = tree_get(ref, "divisor");
    const struct tree_node *container = other && *other ? named_container(place, other) : place->container;
    quantity_thousandths amount, unit = 1000;
    const char *dot = resource ? strchr(resource, '.') : NULL;
    scope_free char *kind = dot ? mem_strndup(resource, (size_t)(dot - resource)) : NULL;
    if (dot && !kind)
        return no_memory(err);
    if (!dot || (strcmp(kind, "limits") && strcmp(kind, "requests")))
        return MISSING(place, problems, ref, PATH_FIELD(path, "resource"),
                       "'%.100s' is neither limits.<resource> nor requests.<resource>",
                       resource ? resource : "");
    if (!container)
        return MISSING(place, problems, ref, PATH_FIELD(path, "containerName"),
                       "there is no container %.100s", other);
    if (divisor && divisor->text && (!quantity_parse(divisor->text, &unit) || unit < 0))
        return MISSING(place, problems, divisor, PATH_FIELD(path, "divisor"),
                       "'%.100s' is no quantity above 0", divisor->text);
    if (unit == 0)
        unit = 1000; /* Kubernetes' word for "not given" */
    if (!resource_amount(place, container, kind, dot + 1, &amount))
        return 0; /* the schema has reported it */
    return give(value, mem_printf("%lld", (long long)quantity_in(amount, unit)), err);
}

int container_source(const struct container_place *place, const struct tree_node *from,
                     const struct path *path, char **value, struct problems *problems,
                     struct muster_error *err)
{
    const struct tree_node *ref;
    *value = NULL;
    if ((ref = tree_get(from, "fieldRef")))
        return from_field(place, ref, PATH_FIELD(path, "fieldRef"), value, problems, err);
    if ((ref = tree_get(from, "resourceFieldRef")))
        return from_resource(place, ref, PATH_FIELD(path, "resourceFieldRef"), value, problems, err);
    if ((ref = tree_get(from, "configMapKeyRef")))
        return from_key(place, "ConfigMap", ref, PATH_FIELD(path, "configMapKeyRef"), value, problems, err);
    if ((ref = tree_get(from, "secretKeyRef")))
        return from_key(place, "Secret", ref, PATH_FIELD(path, "secretKeyRef"), value, problems, err);
    return MISSING(place, problems, from, path,
                   "none of fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef is given");
}
