/* methods.c - the methods that templates may call: of texts by their tables, of dicts, lists and loops here.
 */
#include "trainer/chat/text_methods.h"

static struct jinja_value pair_of(struct jinja_run *run, const struct jinja_entry *entry)
{
    struct jinja_list *pair = jinja_list_create(run->arena);
    if (!jinja_list_add(run->arena, pair, entry->key) || !jinja_list_add(run->arena, pair, entry->value))
        return jinja_no_memory(run);
    pair->tuple = true;
    return jinja_of_list(pair);
}

static struct jinja_value call_of_dict(struct jinja_run *run, struct jinja_value of, struct jinja_text name,
                                       const struct jinja_arguments *arguments)
{
    if (jinja_text_is(name, "get")) {
        const struct jinja_value *key = jinja_argument(arguments, 0, NULL),
                                 *otherwise = jinja_argument(arguments, 1, NULL),
                                 *value = key ? jinja_dict_get(of.dict, *key) : NULL;
        return !key        ? jinja_fail(run, "get needs a key")
               : value     ? *value
               : otherwise ? *otherwise
                           : jinja_none();
    }
    if (jinja_text_is(name, "copy"))
        return of;
    struct jinja_list *list = jinja_list_create(run->arena);
    for (size_t i = 0; i < of.dict->count && !run->failed; i++) {
        const struct jinja_entry *entry = &of.dict->entry[i];
        if (!jinja_list_add(run->arena, list,
                            jinja_text_is(name, "keys")     ? entry->key
                            : jinja_text_is(name, "values") ? entry->value
                                                            : pair_of(run, entry)))
            return jinja_no_memory(run);
    }
    return list ? jinja_of_list(list) : jinja_no_memory(run);
}

static struct jinja_value call_of_list(struct jinja_run *run, struct jinja_value of, struct jinja_text name,
                                       const struct jinja_arguments *arguments)
{
    const struct jinja_value *what = jinja_argument(arguments, 0, NULL);
    int64_t count = 0;
    if (jinja_text_is(name, "copy"))
        return of;
    for (size_t i = 0; what && i < of.list->count; i++) {
        if (!jinja_equal(of.list->item[i], *what))
            continue;
        if (jinja_text_is(name, "index"))
            return jinja_int((int64_t)i);
        count++;
    }
    return jinja_text_is(name, "count") && what ? jinja_int(count)
                                                : jinja_fail(run, "index: the item is not in the list");
}

static struct jinja_value call_of_loop(struct jinja_run *run, struct jinja_loop *loop, struct jinja_text name,
                                       const struct jinja_arguments *arguments)
{
    const struct jinja_list *list = arguments->list;
    if (jinja_text_is(name, "cycle"))
        return list->count ? list->item[loop->at % list->count] : jinja_fail(run, "cycle needs values");
    const struct jinja_value now = jinja_of_list(arguments->list);
    const bool changed = loop->changed.kind != JINJA_LIST || !jinja_equal(loop->changed, now);
    loop->changed = now;
    return jinja_bool(changed);
}

static const struct jinja_text_method *find_text_method(struct jinja_text name)
{
    const struct jinja_text_method *const tables[] = {jinja_form_methods, jinja_part_methods};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const struct jinja_text_method *method = tables[i]; method->name; method++)
            if (jinja_text_is(name, method->name))
                return method;
    return NULL;
}

bool jinja_has_method(struct jinja_value of, struct jinja_text name, bool *changes)
{
    static const char *const of_dict[] = {"get", "items", "keys", "values", "copy", NULL},
                             *const of_list[] = {"index", "count", "copy", NULL},
                             *const of_loop[] = {"cycle", "changed", NULL},
                             *const change_dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL},
                             *const change_list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                                     "sort",   "extend", "remove", NULL},
                             *const none[] = {NULL};
    const char *const *names = of.kind == JINJA_DICT   ? of_dict
                               : of.kind == JINJA_LIST ? of_list
                               : of.kind == JINJA_LOOP ? of_loop
                                                       : none,
                      *const *change = of.kind == JINJA_DICT                      ? change_dict
                                       : of.kind == JINJA_LIST && !of.list->tuple ? change_list
                                                                                  : none;
    if (of.kind == JINJA_STRING && find_text_method(name))
        return true;
    for (; *names; names++)
        if (jinja_text_is(name, *names))
            return true;
    for (; *change; change++)
        *changes = *changes || jinja_text_is(name, *change);
    return *changes;
}

struct jinja_value jinja_call_method(struct jinja_run *run, const struct jinja_method *method,
                                     const struct jinja_arguments *arguments)
{
    if (method->of.kind == JINJA_DICT)
        return call_of_dict(run, method->of, method->name, arguments);
    if (method->of.kind == JINJA_LIST)
        return call_of_list(run, method->of, method->name, arguments);
    if (method->of.kind == JINJA_LOOP)
        return call_of_loop(run, method->of.loop, method->name, arguments);
    const struct jinja_text_method *of_text = find_text_method(method->name);
    return of_text ? of_text->call(&(struct jinja_called){run, method->of.text, arguments})
                   : jinja_fail(run, "there is no such method");
}
