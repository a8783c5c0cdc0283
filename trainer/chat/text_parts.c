/* text_parts.c - methods of texts: finding and replacing, cutting into parts, joining. */
#include <string.h>

#include "trainer/chat/text_methods.h"

/* ---- finding ---- */

static const char *find_text(struct jinja_text in, size_t from, struct jinja_text what)
{
    return what.length ? memmem(in.data + from, in.length - from, what.data, what.length) : in.data + from;
}

static const char *find_last(struct jinja_text in, size_t end, struct jinja_text what)
{
    for (size_t at = end >= what.length ? end - what.length + 1 : 0; at > 0; at--)
        if (!what.length || !memcmp(in.data + at - 1, what.data, what.length))
            return in.data + at - 1;
    return NULL;
}

static struct jinja_value text_replace(const struct jinja_called *c)
{
    const struct jinja_text *old = jinja_argument_text(c->run, c->arguments, 0, "old", true),
                            *new = jinja_argument_text(c->run, c->arguments, 1, "new", true);
    const int64_t most = jinja_argument_int(c->run, c->arguments, 2, "count", -1);
    scope_buffer out = {.limit = JINJA_OUTPUT};
    size_t from = 0;
    if (!old || !new)
        return jinja_none();
    for (int64_t done = 0; most < 0 || done < most; done++) {
        const char *found = from <= c->text.length ? find_text(c->text, from, *old) : NULL;
        if (!found || (!old->length && from == c->text.length && done && from))
            break;
        size_t at = (size_t)(found - c->text.data);
        (void)buffer_append(&out, c->text.data + from, at - from); /* out remembers a failure */
        (void)buffer_append(&out, new->data, new->length);
        from = at + old->length;
        if (!old->length) { /* between all characters */
            const size_t bytes =
                jinja_character_at((struct jinja_text){c->text.data + at, c->text.length - at}, 1);
            (void)buffer_append(&out, c->text.data + at, bytes);
            from = at + bytes;
            if (!bytes)
                break;
            if (from == c->text.length && (most < 0 || done + 1 < most)) {
                (void)buffer_append(&out, new->data, new->length);
                break;
            }
        }
    }
    if (from < c->text.length)
        (void)buffer_append(&out, c->text.data + from, c->text.length - from);
    return jinja_copy(c->run, &out);
}

static struct jinja_value found_at(const struct jinja_called *c, bool last, bool needed)
{
    const struct jinja_text *what = jinja_argument_text(c->run, c->arguments, 0, NULL, true);
    const char *found = !what  ? NULL
                        : last ? find_last(c->text, c->text.length, *what)
                               : find_text(c->text, 0, *what);
    if (!found && needed)
        return jinja_fail(c->run, "index: the text is not there");
    return found ? jinja_int((int64_t)jinja_characters(
                       (struct jinja_text){c->text.data, (size_t)(found - c->text.data)}))
                 : jinja_int(-1);
}

static struct jinja_value text_find(const struct jinja_called *c)
{
    return found_at(c, false, false);
}

static struct jinja_value text_rfind(const struct jinja_called *c)
{
    return found_at(c, true, false);
}

static struct jinja_value text_index(const struct jinja_called *c)
{
    return found_at(c, false, true);
}

static struct jinja_value text_count(const struct jinja_called *c)
{
    const struct jinja_text *what = jinja_argument_text(c->run, c->arguments, 0, NULL, true);
    int64_t count = 0;
    if (what && !what->length)
        return jinja_int((int64_t)jinja_characters(c->text) + 1);
    for (size_t from = 0; what && from < c->text.length; count++) {
        const char *found = find_text(c->text, from, *what);
        if (!found)
            break;
        from = (size_t)(found - c->text.data) + what->length;
    }
    return jinja_int(count);
}

/* ---- parts ---- */

static bool add_part(const struct jinja_called *c, struct jinja_list *list, size_t from, size_t to)
{
    if (jinja_list_add(c->run->arena, list, jinja_string(c->text.data + from, to - from)))
        return true;
    (void)jinja_no_memory(c->run);
    return false;
}

/* The words between blanks, at most `most` cuts. */
static struct jinja_value split_at_blanks(const struct jinja_called *c, int64_t most)
{
    struct jinja_list *list = jinja_list_create(c->run->arena);
    for (size_t at = 0, bytes; at < c->text.length;) {
        if (jinja_is_blank(c->text.data + at, c->text.length - at, &bytes)) {
            at += bytes;
            continue;
        }
        size_t end = at;
        if (most >= 0 && list && (int64_t)list->count == most)
            end = at +
                  jinja_trim((struct jinja_text){c->text.data + at, c->text.length - at}, NULL, false, true)
                      .length;
        else
            while (end < c->text.length && !jinja_is_blank(c->text.data + end, c->text.length - end, &bytes))
                end += jinja_character_at((struct jinja_text){c->text.data + end, c->text.length - end}, 1);
        if (!add_part(c, list, at, end))
            return jinja_none();
        if (most >= 0 && list && (int64_t)list->count > most)
            break;
        at = end;
    }
    return list ? jinja_of_list(list) : jinja_no_memory(c->run);
}

static struct jinja_value text_split(const struct jinja_called *c)
{
    const struct jinja_text *by = jinja_argument_text(c->run, c->arguments, 0, "sep", false);
    const int64_t most = jinja_argument_int(c->run, c->arguments, 1, "maxsplit", -1);
    struct jinja_list *list = jinja_list_create(c->run->arena);
    size_t from = 0;
    if (!by || c->run->failed)
        return split_at_blanks(c, most);
    if (!by->length)
        return jinja_fail(c->run, "split needs a separator");
    for (int64_t cuts = 0; most < 0 || cuts < most; cuts++) {
        const char *found = find_text(c->text, from, *by);
        if (!found)
            break;
        const size_t at = (size_t)(found - c->text.data);
        if (!add_part(c, list, from, at))
            return jinja_none();
        from = at + by->length;
    }
    return add_part(c, list, from, c->text.length) ? jinja_of_list(list) : jinja_none();
}

static struct jinja_value text_rsplit(const struct jinja_called *c)
{
    const struct jinja_text *by = jinja_argument_text(c->run, c->arguments, 0, "sep", false);
    const int64_t most = jinja_argument_int(c->run, c->arguments, 1, "maxsplit", -1);
    struct jinja_list *list = jinja_list_create(c->run->arena);
    size_t end = c->text.length;
    if (c->run->failed || most < 0)
        return text_split(c);
    if (!by || !by->length)
        return jinja_fail(c->run, "rsplit needs a separator");
    for (int64_t cuts = 0; cuts < most; cuts++) {
        const char *found = find_last(c->text, end, *by);
        if (!found)
            break;
        const size_t at = (size_t)(found - c->text.data);
        if (!add_part(c, list, at + by->length, end))
            return jinja_none();
        end = at;
    }
    if (!add_part(c, list, 0, end))
        return jinja_none();
    for (size_t i = 0; i < list->count / 2; i++) {
        const struct jinja_value other = list->item[i];
        list->item[i] = list->item[list->count - 1 - i];
        list->item[list->count - 1 - i] = other;
    }
    return jinja_of_list(list);
}

static struct jinja_value text_splitlines(const struct jinja_called *c)
{
    struct jinja_list *list = jinja_list_create(c->run->arena);
    const bool keep = jinja_argument_true(c->arguments, 0, "keepends", false);
    for (size_t from = 0; from < c->text.length;) {
        size_t end = from;
        while (end < c->text.length && c->text.data[end] != '\n' && c->text.data[end] != '\r')
            end++;
        size_t next = end + (end < c->text.length);
        next += next < c->text.length && c->text.data[end] == '\r' && c->text.data[next] == '\n';
        if (!add_part(c, list, from, keep ? next : end))
            return jinja_none();
        from = next;
    }
    return list ? jinja_of_list(list) : jinja_no_memory(c->run);
}

static struct jinja_value parted(const struct jinja_called *c, bool last)
{
    const struct jinja_text *by = jinja_argument_text(c->run, c->arguments, 0, NULL, true);
    struct jinja_list *list = jinja_list_create(c->run->arena);
    const char *found = !by || !by->length ? NULL
                        : last             ? find_last(c->text, c->text.length, *by)
                                           : find_text(c->text, 0, *by);
    const size_t at = found  ? (size_t)(found - c->text.data)
                      : last ? 0
                             : c->text.length,
                 after = found ? at + by->length : at;
    if (c->run->failed || !add_part(c, list, 0, at) || !add_part(c, list, at, after) ||
        !add_part(c, list, after, c->text.length))
        return jinja_none();
    list->tuple = true;
    return jinja_of_list(list);
}

static struct jinja_value text_partition(const struct jinja_called *c)
{
    return parted(c, false);
}

static struct jinja_value text_rpartition(const struct jinja_called *c)
{
    return parted(c, true);
}

static struct jinja_value text_join(const struct jinja_called *c)
{
    const struct jinja_value *of = jinja_argument(c->arguments, 0, NULL);
    const struct jinja_list *list = of ? jinja_elements(c->run, *of) : NULL;
    scope_buffer out = {.limit = JINJA_OUTPUT};
    for (size_t i = 0; list && i < list->count; i++) {
        if (list->item[i].kind != JINJA_STRING)
            return jinja_fail(c->run, "join needs texts, and has %s", jinja_kind_name(list->item[i].kind));
        (void)buffer_append(&out, c->text.data, i ? c->text.length : 0); /* out remembers a failure */
        (void)buffer_append(&out, list->item[i].text.data, list->item[i].text.length);
    }
    return list ? jinja_copy(c->run, &out) : jinja_fail(c->run, "join needs a list");
}

const struct jinja_text_method jinja_part_methods[] = {
    {"split", text_split},           {"rsplit", text_rsplit}, {"splitlines", text_splitlines},
    {"replace", text_replace},       {"find", text_find},     {"rfind", text_rfind},
    {"index", text_index},           {"count", text_count},   {"partition", text_partition},
    {"rpartition", text_rpartition}, {"join", text_join},     {NULL, NULL}};
