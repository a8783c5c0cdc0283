/* arguments.c - the arguments of a call, filter, test or method, by place or by name. */
#include "trainer/chat/jinja_internal.h"

const struct jinja_value *jinja_argument(const struct jinja_arguments *arguments, size_t at, const char *name)
{
    return at < arguments->list->count ? &arguments->list->item[at]
           : name                      ? jinja_dict_find(arguments->named, name)
                                       : NULL;
}

int64_t jinja_argument_int(struct jinja_run *run, const struct jinja_arguments *arguments, size_t at,
                           const char *name, int64_t otherwise)
{
    const struct jinja_value *value = jinja_argument(arguments, at, name);
    if (!value || value->kind == JINJA_NONE)
        return otherwise;
    if (value->kind == JINJA_BOOL)
        return value->truth;
    if (value->kind != JINJA_INT)
        (void)jinja_fail(run, "an argument has to be a whole number, and is %s",
                         jinja_kind_name(value->kind));
    return value->kind == JINJA_INT ? value->number : otherwise;
}

bool jinja_argument_true(const struct jinja_arguments *arguments, size_t at, const char *name, bool otherwise)
{
    const struct jinja_value *value = jinja_argument(arguments, at, name);
    return value ? jinja_true(*value) : otherwise;
}

const struct jinja_text *jinja_argument_text(struct jinja_run *run, const struct jinja_arguments *arguments,
                                             size_t at, const char *name, bool needed)
{
    const struct jinja_value *value = jinja_argument(arguments, at, name);
    if (value && value->kind == JINJA_STRING)
        return &value->text;
    if (needed || (value && value->kind != JINJA_NONE))
        (void)jinja_fail(run, "a method of a text needs a text%s%s", value ? ", and has " : "",
                         value ? jinja_kind_name(value->kind) : "");
    return NULL;
}
