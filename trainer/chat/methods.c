/* methods.c - the methods of texts, dicts, lists and loops that templates may call. */
#include <locale.h>
#include <string.h>
#include <wctype.h>

#include "proto/base/error.h"
#include "trainer/chat/jinja_internal.h"

/* A method of texts that is called: its text, its arguments. */
struct called {
    struct jinja_run *run;
    struct jinja_text text;
    const struct jinja_arguments *arguments;
};

/* Argument `at` as a text; NULL after an error, or where it is not given. */
static const struct jinja_text *text_argument(const struct called *c, size_t at, const char *name,
                                              bool needed)
{
    const struct jinja_value *value = jinja_argument(c->arguments, at, name);
    if (value && value->kind == JINJA_STRING)
        return &value->text;
    if (needed || (value && value->kind != JINJA_NONE))
        (void)jinja_fail(c->run, "a method of a text needs a text%s%s", value ? ", and has " : "",
                         value ? jinja_kind_name(value->kind) : "");
    return NULL;
}

/* ---- the case of letters ---- */

enum letter_case { CASE_LOWER, CASE_UPPER, CASE_SWAP };

static void add_cased(struct jinja_run *run, struct buffer *out, const char *at, size_t bytes,
                      enum letter_case to)
{
    const uint32_t c = jinja_code_at(at, bytes);
    if (c < 0x80) {
        const bool large = c >= 'A' && c <= 'Z', small = c >= 'a' && c <= 'z';
        const char other = (char)((large && to != CASE_UPPER) || (small && to != CASE_LOWER) ? c ^ 0x20 : c);
        (void)buffer_append(out, &other, 1); /* out remembers a failure */
        return;
    }
    if (c == 0xDF && to != CASE_LOWER) {
        (void)buffer_text(out, "SS");
        return;
    }
    if (!run->letters)
        run->letters = newlocale(LC_CTYPE_MASK, "C.UTF-8", NULL); /* NULL: letters stay as they are */
    locale_t made = run->letters;
    const bool upper = to == CASE_UPPER || (to == CASE_SWAP && made && iswlower_l((wint_t)c, made));
    const uint32_t other = !made   ? c
                           : upper ? (uint32_t)towupper_l((wint_t)c, made)
                                   : (uint32_t)towlower_l((wint_t)c, made);
    jinja_add_character(out, other);
}

static bool is_letter(const char *at, size_t bytes)
{
    const char c = at[0];
    return bytes > 1 || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* words: each run of letters begins with a large one; first: the text does. */
static struct jinja_value cased(const struct called *c, enum letter_case to, bool first, bool words)
{
    scope_buffer out = {.limit = JINJA_OUTPUT};
    bool inside = false;
    for (size_t at = 0, bytes; at < c->text.length; at += bytes) {
        bytes = jinja_character_at((struct jinja_text){c->text.data + at, c->text.length - at}, 1);
        const bool begins = (first && at == 0) || (words && !inside);
        inside = is_letter(c->text.data + at, bytes);
        add_cased(c->run, &out, c->text.data + at, bytes, begins ? CASE_UPPER : to);
    }
    return jinja_copy(c->run, &out);
}

static struct jinja_value text_upper(const struct called *c)
{
    return cased(c, CASE_UPPER, false, false);
}

static struct jinja_value text_lower(const struct called *c)
{
    return cased(c, CASE_LOWER, false, false);
}

static struct jinja_value text_swapcase(const struct called *c)
{
    return cased(c, CASE_SWAP, false, false);
}

static struct jinja_value text_capitalize(const struct called *c)
{
    return cased(c, CASE_LOWER, true, false);
}

static struct jinja_value text_title(const struct called *c)
{
    return cased(c, CASE_LOWER, false, true);
}

/* ---- blanks and ends ---- */

static struct jinja_value stripped(const struct called *c, bool left, bool right)
{
    const struct jinja_text text = jinja_trim(c->text, text_argument(c, 0, NULL, false), left, right);
    return jinja_string(text.data, text.length);
}

static struct jinja_value text_strip(const struct called *c)
{
    return stripped(c, true, true);
}

static struct jinja_value text_lstrip(const struct called *c)
{
    return stripped(c, true, false);
}

static struct jinja_value text_rstrip(const struct called *c)
{
    return stripped(c, false, true);
}

static bool has_end(struct jinja_text text, struct jinja_text end, bool at_start)
{
    return text.length >= end.length &&
           (!end.length ||
            !memcmp(at_start ? text.data : text.data + text.length - end.length, end.data, end.length));
}

/* The argument may be a tuple of texts, too. */
static struct jinja_value ends(const struct called *c, bool at_start)
{
    const struct jinja_value *with = jinja_argument(c->arguments, 0, NULL);
    bool found = false;
    for (size_t i = 0; with && with->kind == JINJA_LIST && i < with->list->count; i++)
        found = found || (with->list->item[i].kind == JINJA_STRING &&
                          has_end(c->text, with->list->item[i].text, at_start));
    if (with && with->kind == JINJA_LIST)
        return jinja_bool(found);
    const struct jinja_text *end = text_argument(c, 0, NULL, true);
    return jinja_bool(end && has_end(c->text, *end, at_start));
}

static struct jinja_value text_startswith(const struct called *c)
{
    return ends(c, true);
}

static struct jinja_value text_endswith(const struct called *c)
{
    return ends(c, false);
}

static struct jinja_value without_end(const struct called *c, bool at_start)
{
    const struct jinja_text *end = text_argument(c, 0, NULL, true);
    const size_t cut = end && has_end(c->text, *end, at_start) ? end->length : 0;
    return jinja_string(c->text.data + (at_start ? cut : 0), c->text.length - cut);
}

static struct jinja_value text_removeprefix(const struct called *c)
{
    return without_end(c, true);
}

static struct jinja_value text_removesuffix(const struct called *c)
{
    return without_end(c, false);
}

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

static struct jinja_value text_replace(const struct called *c)
{
    const struct jinja_text *old = text_argument(c, 0, "old", true), *new = text_argument(c, 1, "new", true);
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

static struct jinja_value found_at(const struct called *c, bool last, bool needed)
{
    const struct jinja_text *what = text_argument(c, 0, NULL, true);
    const char *found = !what  ? NULL
                        : last ? find_last(c->text, c->text.length, *what)
                               : find_text(c->text, 0, *what);
    if (!found && needed)
        return jinja_fail(c->run, "index: the text is not there");
    return found ? jinja_int((int64_t)jinja_characters(
                       (struct jinja_text){c->text.data, (size_t)(found - c->text.data)}))
                 : jinja_int(-1);
}

static struct jinja_value text_find(const struct called *c)
{
    return found_at(c, false, false);
}

static struct jinja_value text_rfind(const struct called *c)
{
    return found_at(c, true, false);
}

static struct jinja_value text_index(const struct called *c)
{
    return found_at(c, false, true);
}

static struct jinja_value text_count(const struct called *c)
{
    const struct jinja_text *what = text_argument(c, 0, NULL, true);
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

static bool add_part(const struct called *c, struct jinja_list *list, size_t from, size_t to)
{
    if (jinja_list_add(c->run->arena, list, jinja_string(c->text.data + from, to - from)))
        return true;
    (void)jinja_no_memory(c->run);
    return false;
}

/* The words between blanks, at most `most` cuts. */
static struct jinja_value split_at_blanks(const struct called *c, int64_t most)
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

static struct jinja_value text_split(const struct called *c)
{
    const struct jinja_text *by = text_argument(c, 0, "sep", false);
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

static struct jinja_value text_rsplit(const struct called *c)
{
    const struct jinja_text *by = text_argument(c, 0, "sep", false);
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

static struct jinja_value text_splitlines(const struct called *c)
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

static struct jinja_value parted(const struct called *c, bool last)
{
    const struct jinja_text *by = text_argument(c, 0, NULL, true);
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

static struct jinja_value text_partition(const struct called *c)
{
    return parted(c, false);
}

static struct jinja_value text_rpartition(const struct called *c)
{
    return parted(c, true);
}

static struct jinja_value text_join(const struct called *c)
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

/* ---- tests of a text, by ASCII ---- */

static struct jinja_value all_are(const struct called *c, bool (*is)(char c))
{
    bool all = c->text.length > 0;
    for (size_t i = 0; i < c->text.length; i++)
        all = all && is(c->text.data[i]);
    return jinja_bool(all);
}

static bool ascii_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool ascii_letter(char c)
{
    return is_letter(&c, 1) || (unsigned char)c >= 0x80; /* most are letters */
}

static bool ascii_both(char c)
{
    return ascii_digit(c) || ascii_letter(c);
}

static bool ascii_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static struct jinja_value text_isdigit(const struct called *c)
{
    return all_are(c, ascii_digit);
}

static struct jinja_value text_isalpha(const struct called *c)
{
    return all_are(c, ascii_letter);
}

static struct jinja_value text_isalnum(const struct called *c)
{
    return all_are(c, ascii_both);
}

static struct jinja_value text_isspace(const struct called *c)
{
    return all_are(c, ascii_space);
}

static struct jinja_value text_islower(const struct called *c)
{
    return jinja_bool(jinja_test(c->run, (struct jinja_text){"lower", 5},
                                 jinja_string(c->text.data, c->text.length), c->arguments));
}

static struct jinja_value text_isupper(const struct called *c)
{
    return jinja_bool(jinja_test(c->run, (struct jinja_text){"upper", 5},
                                 jinja_string(c->text.data, c->text.length), c->arguments));
}

/* Filled with characters to a width: so many in front, the others after it. */
static struct jinja_value filled(const struct called *c, int front)
{
    const int64_t width = jinja_argument_int(c->run, c->arguments, 0, NULL, 0);
    const struct jinja_text *by = text_argument(c, 1, NULL, false);
    const struct jinja_text with = by ? *by : (struct jinja_text){" ", 1};
    const int64_t missing = width < JINJA_OUTPUT ? width - (int64_t)jinja_characters(c->text) : 0;
    scope_buffer out = {.limit = JINJA_OUTPUT};
    const int64_t before = missing <= 0 ? 0 : front == 2 ? missing : front == 1 ? missing / 2 : 0;
    for (int64_t i = 0; i < before; i++)
        (void)buffer_append(&out, with.data, with.length); /* out remembers a failure */
    (void)buffer_append(&out, c->text.data, c->text.length);
    for (int64_t i = before; i < missing; i++)
        (void)buffer_append(&out, with.data, with.length);
    return jinja_copy(c->run, &out);
}

static struct jinja_value text_ljust(const struct called *c)
{
    return filled(c, 0);
}

static struct jinja_value text_center(const struct called *c)
{
    return filled(c, 1);
}

static struct jinja_value text_rjust(const struct called *c)
{
    return filled(c, 2);
}

static struct jinja_value text_other(const struct called *c)
{
    return jinja_fail(c->run, "this method of a text is not supported in a chat template");
}

static const struct {
    const char *name;
    struct jinja_value (*call)(const struct called *c);
} text_methods[] = {{"strip", text_strip},
                    {"lstrip", text_lstrip},
                    {"rstrip", text_rstrip},
                    {"split", text_split},
                    {"rsplit", text_rsplit},
                    {"splitlines", text_splitlines},
                    {"startswith", text_startswith},
                    {"endswith", text_endswith},
                    {"removeprefix", text_removeprefix},
                    {"removesuffix", text_removesuffix},
                    {"upper", text_upper},
                    {"lower", text_lower},
                    {"casefold", text_lower},
                    {"swapcase", text_swapcase},
                    {"capitalize", text_capitalize},
                    {"title", text_title},
                    {"replace", text_replace},
                    {"find", text_find},
                    {"rfind", text_rfind},
                    {"index", text_index},
                    {"count", text_count},
                    {"partition", text_partition},
                    {"rpartition", text_rpartition},
                    {"join", text_join},
                    {"isdigit", text_isdigit},
                    {"isdecimal", text_isdigit},
                    {"isnumeric", text_isdigit},
                    {"isalpha", text_isalpha},
                    {"isalnum", text_isalnum},
                    {"isspace", text_isspace},
                    {"islower", text_islower},
                    {"isupper", text_isupper},
                    {"ljust", text_ljust},
                    {"center", text_center},
                    {"rjust", text_rjust},
                    {"format", text_other},
                    {"zfill", text_other},
                    {"encode", text_other},
                    {"translate", text_other},
                    {"expandtabs", text_other}};

/* ---- dicts, lists, loops ---- */

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
    for (size_t i = 0; of.kind == JINJA_STRING && i < sizeof text_methods / sizeof *text_methods; i++)
        if (jinja_text_is(name, text_methods[i].name))
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
    const struct called called = {run, method->of.text, arguments};
    if (method->of.kind == JINJA_DICT)
        return call_of_dict(run, method->of, method->name, arguments);
    if (method->of.kind == JINJA_LIST)
        return call_of_list(run, method->of, method->name, arguments);
    if (method->of.kind == JINJA_LOOP)
        return call_of_loop(run, method->of.loop, method->name, arguments);
    for (size_t i = 0; i < sizeof text_methods / sizeof *text_methods; i++)
        if (jinja_text_is(method->name, text_methods[i].name))
            return text_methods[i].call(&called);
    return jinja_fail(run, "there is no such method");
}
