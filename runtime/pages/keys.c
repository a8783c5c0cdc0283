/* keys.c - the functions of a page that read config.json, and some arithmetic.
 *
 * A key that is absent is the default; a key that is null is `null` where it is given, else the default. A
 * key without a default has to be there. */
#include <math.h>
#include <string.h>

#include "runtime/pages/labels.h"
#include "runtime/pages/page_internal.h"
#include "runtime/pages/rope.h"

const json_t *page_key(const struct page_run *run, const char *key)
{
    const json_t *value = json_object_get(run->config, key);
    return value && !json_is_null(value) ? value : NULL;
}

enum { KEY, ABSENT, EMPTY };

/* 1: the key has a value. 0: it has none, and *out is the default. -1: an error: the default is none, and
 * `required`. */
static int read_key(struct page_run *run, const struct page_value *arguments, bool required,
                    const json_t **value, struct page_value *out)
{
    const char *key = arguments[KEY].text;
    if (arguments[KEY].kind != PAGE_TEXT)
        return page_fail(run, "the name of a key is a text");
    *value = page_key(run, key);
    if (*value)
        return 1;
    const bool empty = json_object_get(run->config, key) && arguments[EMPTY].kind != PAGE_NONE;
    *out = arguments[empty ? EMPTY : ABSENT];
    if (!required || out->kind != PAGE_NONE)
        return 0;
    return run->error.code ? -1 : page_refuse_kind(run, key, NULL);
}

enum { ANY_NUMBER = -1 };

/* least: of a whole number; ANY_NUMBER: fractions and negative numbers too. */
static int number_key(struct page_run *run, const struct page_value *arguments, int least, bool required,
                      struct page_value *out)
{
    const json_t *value;
    const int found = read_key(run, arguments, required, &value, out);
    if (found <= 0)
        return found;
    if (least == ANY_NUMBER ? !json_is_number(value)
                            : !json_is_integer(value) || json_integer_value(value) < least ||
                                  json_integer_value(value) > INT32_MAX)
        return page_refuse_kind(run, arguments[KEY].text,
                                least > 0    ? "whole number above 0"
                                : least == 0 ? "whole number of 0 or more"
                                             : "number");
    *out = page_number(json_number_value(value));
    return 0;
}

static int key_size(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    return number_key(run, arguments, 1, true, out);
}

static int key_count(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    return number_key(run, arguments, 0, true, out);
}

static int key_optional_size(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    return number_key(run, arguments, 1, false, out);
}

static int key_real(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    return number_key(run, arguments, ANY_NUMBER, true, out);
}

static int key_optional_real(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    return number_key(run, arguments, ANY_NUMBER, false, out);
}

static int key_flag(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    const json_t *value;
    const int found = read_key(run, arguments, true, &value, out);
    if (found <= 0)
        return found;
    if (!json_is_boolean(value))
        return page_refuse_kind(run, arguments[KEY].text, "true or false");
    *out = (struct page_value){.kind = PAGE_FLAG, .number = json_is_true(value)};
    return 0;
}

static int key_text(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    const json_t *value;
    const int found = read_key(run, arguments, true, &value, out);
    if (found <= 0)
        return found;
    if (!json_is_string(value) || json_string_length(value) >= sizeof out->text)
        return page_refuse_kind(run, arguments[KEY].text, "short text");
    *out = (struct page_value){.kind = PAGE_TEXT};
    memcpy(out->text, json_string_value(value), json_string_length(value) + 1);
    return 0;
}

/* A list of at least `length` items; none where it is absent. */
static int key_list(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    const json_t *value = page_key(run, arguments[KEY].text);
    int64_t length;
    if (arguments[KEY].kind != PAGE_TEXT)
        return page_fail(run, "the name of a key is a text");
    if (page_whole(run, &arguments[1], "the length of a list", 0, INT32_MAX, &length) < 0)
        return -1;
    if (!value)
        return 0;
    if (!json_is_array(value) || (int64_t)json_array_size(value) != length)
        return page_refuse(run, arguments[KEY].text, value,
                           "it has to be a list with an item for each layer");
    *out = (struct page_value){.kind = PAGE_JSON, .json = value};
    return 0;
}

/* refuse(key, works): the key has a value that the page does not take. */
static int key_refuse(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    (void)out;
    if (arguments[0].kind != PAGE_TEXT || arguments[1].kind != PAGE_TEXT)
        return page_fail(run, "refuse(key works) takes two texts");
    const json_t *value = json_object_get(run->config, arguments[0].text);
    return page_refuse(run, arguments[0].text, value ? value : json_null(), arguments[1].text);
}

/* The item of a list of texts in config.json that is neither of two is refused with the key's name. */
static int key_is(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    if (arguments[0].kind != PAGE_TEXT || arguments[1].kind != PAGE_TEXT || arguments[2].kind != PAGE_TEXT ||
        arguments[3].kind != PAGE_TEXT)
        return page_fail(run, "is(value yes no key) takes four texts");
    const bool yes = !strcmp(arguments[0].text, arguments[1].text);
    if (!yes && strcmp(arguments[0].text, arguments[2].text) != 0) {
        const json_t *value = json_object_get(run->config, arguments[3].text);
        return page_refuse(run, arguments[3].text, value ? value : json_null(),
                           "its items have other values");
    }
    *out = (struct page_value){.kind = PAGE_FLAG, .number = yes};
    return 0;
}

/* The number of labels, of which there are two or more. */
static int key_labels(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    const json_t *names = page_key(run, "id2label"), *number = page_key(run, "num_labels");
    (void)arguments;
    if (names && !json_is_object(names))
        return page_refuse_kind(run, "id2label", "map of numbers to names");
    if (number && !json_is_integer(number))
        return page_refuse_kind(run, "num_labels", "whole number");
    *out = page_number(labels_count(run->config));
    if (out->number >= 2 && out->number <= 65536)
        return 0;
    return page_refuse(run, names ? "id2label" : "num_labels", names ? names : number,
                       "two labels or more are");
}

/* ---- rotary positions ---- */

static int refused_by_page(void *context, const char *key, const json_t *value, const char *works)
{
    return page_refuse(context, key, value, works);
}

static int key_rope(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    enum { HEAD, POSITIONS, THETA, THETA_KEY, PARTIAL, PARTIAL_KEY, PART, ORIGINAL, KINDS };
    int64_t head, positions, original = 0;
    if (run->rope_count == PAGE_ROPES)
        return page_fail(run, "a page has at most %d rotary positions", PAGE_ROPES);
    if (page_whole(run, &arguments[HEAD], "the size of a head", 1, 65536, &head) < 0 ||
        page_whole(run, &arguments[POSITIONS], "the number of positions", 1, INT32_MAX, &positions) < 0 ||
        (arguments[ORIGINAL].kind != PAGE_NONE &&
         page_whole(run, &arguments[ORIGINAL], "the original number of positions", 1, INT32_MAX, &original) <
             0))
        return -1;
    const struct rope_source source = {
        .config = run->config,
        .head = (int)head,
        .positions = (int)positions,
        .theta = arguments[THETA].kind == PAGE_NUMBER ? arguments[THETA].number : 10000,
        .theta_key = arguments[THETA_KEY].kind == PAGE_TEXT ? arguments[THETA_KEY].text : "rope_theta",
        .partial = arguments[PARTIAL].kind == PAGE_NUMBER ? arguments[PARTIAL].number : 0,
        .partial_key =
            arguments[PARTIAL_KEY].kind == PAGE_TEXT ? arguments[PARTIAL_KEY].text : "partial_rotary_factor",
        .part = arguments[PART].kind == PAGE_TEXT ? arguments[PART].text : NULL,
        .original = (int)original,
        .kinds = arguments[KINDS].kind == PAGE_TEXT ? arguments[KINDS].text : NULL};
    const int index = run->rope_count++;
    *out = (struct page_value){.kind = PAGE_ROPE, .number = index};
    return rope_read(&source, &run->ropes[index], run->rope_list[index], refused_by_page, run);
}

/* ---- arithmetic ---- */

static int of_number(struct page_run *run, const struct page_value *value, double (*function)(double),
                     struct page_value *out)
{
    if (value->kind != PAGE_NUMBER)
        return page_fail(run, "the argument is no number");
    *out = page_number(function(value->number));
    return isfinite(out->number) ? 0 : page_fail(run, "the result of %g is not finite", value->number);
}

static int number_sqrt(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    return of_number(run, arguments, sqrt, out);
}

static int number_floor(struct page_run *run, const struct page_value *arguments, struct page_value *out)
{
    return of_number(run, arguments, floor, out);
}

const struct page_function page_key_functions[] = {
    {"size", "key absent? null?", key_size},
    {"count", "key absent? null?", key_count},
    {"size_or_none", "key absent? null?", key_optional_size},
    {"real", "key absent? null?", key_real},
    {"real_or_none", "key absent? null?", key_optional_real},
    {"flag", "key absent? null?", key_flag},
    {"text", "key absent? null?", key_text},
    {"list", "key length", key_list},
    {"labels", "", key_labels},
    {"refuse", "key works", key_refuse},
    {"is", "value yes no key", key_is},
    {"rope", "head positions theta? theta_key? partial? partial_key? part? original? kinds?", key_rope},
    {"sqrt", "number", number_sqrt},
    {"floor", "number", number_floor},
    {NULL, NULL, NULL},
};
