/* labels.c - see labels.h. */
#include "runtime/pages/labels.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_LABELS = 2 };

int labels_count(const json_t *config)
{
    const json_t *names = json_object_get(config, "id2label"),
                 *number = json_object_get(config, "num_labels");
    if (json_is_object(names))
        return (int)json_object_size(names);
    return json_is_integer(number) ? (int)json_integer_value(number) : DEFAULT_LABELS;
}

static const char *default_name(int i, char text[32])
{
    (void)snprintf(text, 32, "LABEL_%d", i); /* fits */
    return text;
}

static const char *any_name(const json_t *config, int i)
{
    char key[16];
    (void)snprintf(key, sizeof key, "%d", i); /* fits */
    return json_string_value(json_object_get(json_object_get(config, "id2label"), key));
}

const char *labels_name(const json_t *config, int i)
{
    char text[32];
    const char *name = any_name(config, i);
    return name && strcmp(name, default_name(i, text)) != 0 ? name : NULL;
}

/* Whether these are the labels that it has, by their names or without any. */
static bool has(const json_t *config, const char *const *names, int count)
{
    char text[32];
    if (labels_count(config) != count)
        return false;
    for (int i = 0; i < count; i++) {
        const char *own = any_name(config, i);
        if (strcmp(own ? own : default_name(i, text), names ? names[i] : default_name(i, (char[32]){0})) != 0)
            return false;
    }
    return true;
}

int labels_set(json_t *config, const char *const *names, int count)
{
    json_t *by_number = json_object(), *by_name = json_object();
    int result = has(config, names, count) || !by_number || !by_name;
    for (int i = 0; i < count && !result; i++) {
        char key[16], text[32];
        const char *name = names ? names[i] : default_name(i, text);
        (void)snprintf(key, sizeof key, "%d", i); /* fits */
        if (json_object_set_new(by_number, key, json_string(name)) ||
            json_object_set_new(by_name, name, json_integer(i)))
            result = -1;
    }
    if (!result &&
        (json_object_set(config, "id2label", by_number) || json_object_set(config, "label2id", by_name)))
        result = -1;
    if (!result)
        (void)json_object_del(config, "num_labels"); /* it may not be there */
    json_decref(by_number);
    json_decref(by_name);
    return !by_number || !by_name ? -1 : result;
}

int labels_set_class(json_t *config, const char *name)
{
    const json_t *classes = json_object_get(config, "architectures");
    const char *now = json_string_value(json_array_get(classes, 0));
    if (json_array_size(classes) == 1 && now && !strcmp(now, name))
        return 1;
    return json_object_set_new(config, "architectures", json_pack("[s]", name));
}
