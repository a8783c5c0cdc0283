/* filters.c - the filters of templates: VALUE | NAME(arguments). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "trainer/chat/jinja_internal.h"

typedef struct jinja_value filter_function(struct jinja_run *run, struct jinja_value of,
                                           const struct jinja_arguments *arguments);

static struct jinja_value text_result(struct jinja_run *run, struct jinja_text text)
{
    (void)run;
    return jinja_string(text.data, text.length);
}

/* A method of texts, of the value as a text. */
static struct jinja_value by_method(struct jinja_run *run, struct jinja_value of, const char *name,
                                    const struct jinja_arguments *arguments)
{
    const struct jinja_method method = {jinja_to_string(run, of), {name, strlen(name)}};
    return run->failed ? of : jinja_call_method(run, &method, arguments);
}

/* ---- texts ---- */

static struct jinja_value filter_tojson(struct jinja_run *run, struct jinja_value of,
                                        const struct jinja_arguments *arguments)
{
    scope_buffer text = {.limit = JINJA_OUTPUT};
    return jinja_write_json(run, &text, of, arguments) < 0 ? of : jinja_copy(run, &text);
}

static struct jinja_value filter_trim(struct jinja_run *run, struct jinja_value of,
                                      const struct jinja_arguments *arguments)
{
    const struct jinja_value *characters = jinja_argument(arguments, 0, "chars"),
                             text = jinja_to_string(run, of);
    return text.kind == JINJA_STRING
               ? text_result(
                     run,
                     jinja_trim(text.text,
                                characters && characters->kind == JINJA_STRING ? &characters->text : NULL,
                                true, true))
               : text;
}

static struct jinja_value filter_upper(struct jinja_run *run, struct jinja_value of,
                                       const struct jinja_arguments *arguments)
{
    return by_method(run, of, "upper", arguments);
}

static struct jinja_value filter_lower(struct jinja_run *run, struct jinja_value of,
                                       const struct jinja_arguments *arguments)
{
    return by_method(run, of, "lower", arguments);
}

static struct jinja_value filter_capitalize(struct jinja_run *run, struct jinja_value of,
                                            const struct jinja_arguments *arguments)
{
    return by_method(run, of, "capitalize", arguments);
}

static struct jinja_value filter_title(struct jinja_run *run, struct jinja_value of,
                                       const struct jinja_arguments *arguments)
{
    return by_method(run, of, "title", arguments);
}

static struct jinja_value filter_replace(struct jinja_run *run, struct jinja_value of,
                                         const struct jinja_arguments *arguments)
{
    return by_method(run, of, "replace", arguments);
}

static struct jinja_value filter_string(struct jinja_run *run, struct jinja_value of,
                                        const struct jinja_arguments *arguments)
{
    (void)arguments;
    return jinja_to_string(run, of);
}

static struct jinja_value filter_safe(struct jinja_run *run, struct jinja_value of,
                                      const struct jinja_arguments *arguments)
{
    return filter_string(run, of, arguments);
}

static struct jinja_value filter_escape(struct jinja_run *run, struct jinja_value of,
                                        const struct jinja_arguments *arguments)
{
    static const char plain[] = "&<>'\"";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const struct jinja_value text = jinja_to_string(run, of);
    scope_buffer out = {.limit = JINJA_OUTPUT};
    (void)arguments;
    for (size_t i = 0; !run->failed && i < text.text.length; i++) {
        const char *known = text.text.data[i] ? strchr(plain, text.text.data[i]) : NULL;
        if (known)
            (void)buffer_text(&out, names[known - plain]); /* out remembers a failure */
        else
            (void)buffer_append(&out, text.text.data + i, 1);
    }
    return run->failed ? text : jinja_copy(run, &out);
}

static struct jinja_value filter_format(struct jinja_run *run, struct jinja_value of,
                                        const struct jinja_arguments *arguments)
{
    arguments->list->tuple = true;
    return of.kind == JINJA_STRING ? jinja_format(run, of.text, jinja_of_list(arguments->list))
                                   : jinja_fail(run, "format needs a text");
}

/* All lines but the first, unless `first`; lines without a character stay, unless `blank`. */
static struct jinja_value filter_indent(struct jinja_run *run, struct jinja_value of,
                                        const struct jinja_arguments *arguments)
{
    const struct jinja_value *width = jinja_argument(arguments, 0, "width"), text = jinja_to_string(run, of);
    const bool first = jinja_argument_true(arguments, 1, "first", false),
               blank = jinja_argument_true(arguments, 2, "blank", false);
    scope_buffer by = {0}, out = {.limit = JINJA_OUTPUT};
    if (run->failed)
        return of;
    if (width && width->kind == JINJA_STRING)
        (void)buffer_append(&by, width->text.data, width->text.length); /* remembers a failure */
    else
        for (int64_t i = 0; i < jinja_argument_int(run, arguments, 0, "width", 4) && i < 1000; i++)
            (void)buffer_text(&by, " ");
    for (size_t from = 0; from < text.text.length || from == 0;) {
        const char *line = text.text.data + from,
                   *end = text.text.length > from ? memchr(line, '\n', text.text.length - from) : NULL;
        const size_t length = end ? (size_t)(end - line) : text.text.length - from;
        if ((from ? blank || length : first) && by.length)
            (void)buffer_append(&out, by.data, by.length); /* out remembers a failure */
        (void)buffer_append(&out, line, length + (end ? 1 : 0));
        from += length + 1;
        if (!end)
            break;
    }
    return jinja_copy(run, &out);
}

static struct jinja_value filter_wordcount(struct jinja_run *run, struct jinja_value of,
                                           const struct jinja_arguments *arguments)
{
    const struct jinja_arguments none = {jinja_list_create(run->arena), jinja_dict_create(run->arena)};
    (void)arguments;
    if (!none.list || !none.named)
        return jinja_no_memory(run);
    const struct jinja_value words = by_method(run, of, "split", &none);
    return run->failed ? words : jinja_int((int64_t)words.list->count);
}

/* ---- numbers ---- */

static struct jinja_value filter_int(struct jinja_run *run, struct jinja_value of,
                                     const struct jinja_arguments *arguments)
{
    const int64_t otherwise = jinja_argument_int(run, arguments, 0, "default", 0);
    char text[64];
    double real;
    int64_t number;
    if (of.kind == JINJA_INT || of.kind == JINJA_BOOL)
        return jinja_int(of.kind == JINJA_INT ? of.number : of.truth);
    if (of.kind == JINJA_FLOAT)
        return fabs(of.real) < 9e18 ? jinja_int((int64_t)of.real) : jinja_int(otherwise);
    if (of.kind != JINJA_STRING)
        return jinja_int(otherwise);
    const struct jinja_text trimmed = jinja_trim(of.text, NULL, true, true);
    if (!trimmed.length || trimmed.length >= sizeof text)
        return jinja_int(otherwise);
    memcpy(text, trimmed.data, trimmed.length);
    text[trimmed.length] = '\0';
    if (text_int64(text, &number))
        return jinja_int(number);
    return text_double(text, &real) && fabs(real) < 9e18 ? jinja_int((int64_t)real) : jinja_int(otherwise);
}

static struct jinja_value filter_float(struct jinja_run *run, struct jinja_value of,
                                       const struct jinja_arguments *arguments)
{
    const struct jinja_value *given = jinja_argument(arguments, 0, "default");
    char text[64];
    double real;
    (void)run;
    if (jinja_number(of, &real))
        return jinja_real(real);
    const struct jinja_text trimmed =
        of.kind == JINJA_STRING ? jinja_trim(of.text, NULL, true, true) : (struct jinja_text){"", 0};
    if (trimmed.length && trimmed.length < sizeof text) {
        memcpy(text, trimmed.data, trimmed.length);
        text[trimmed.length] = '\0';
        if (text_double(text, &real))
            return jinja_real(real);
    }
    return given ? *given : jinja_real(0);
}

static struct jinja_value filter_abs(struct jinja_run *run, struct jinja_value of,
                                     const struct jinja_arguments *arguments)
{
    (void)arguments;
    if (of.kind == JINJA_INT && of.number != INT64_MIN)
        return jinja_int(of.number < 0 ? -of.number : of.number);
    return of.kind == JINJA_FLOAT ? jinja_real(fabs(of.real)) : jinja_fail(run, "abs needs a number");
}

static struct jinja_value filter_round(struct jinja_run *run, struct jinja_value of,
                                       const struct jinja_arguments *arguments)
{
    const int64_t digits = jinja_argument_int(run, arguments, 0, "precision", 0);
    const struct jinja_value *method = jinja_argument(arguments, 1, "method");
    const struct jinja_text how =
        method && method->kind == JINJA_STRING ? method->text : (struct jinja_text){"common", 6};
    double real;
    if (!jinja_number(of, &real) || digits < -15 || digits > 15)
        return jinja_fail(run, "round needs a number, and at most 15 digits");
    const double scale = pow(10, (double)digits);
    if (jinja_text_is(how, "ceil"))
        return jinja_real(ceil(real * scale) / scale);
    return jinja_real((jinja_text_is(how, "floor") ? floor(real * scale) : nearbyint(real * scale)) / scale);
}

/* ---- any value ---- */

static struct jinja_value filter_default(struct jinja_run *run, struct jinja_value of,
                                         const struct jinja_arguments *arguments)
{
    const struct jinja_value *given = jinja_argument(arguments, 0, "default_value");
    const bool untrue = jinja_argument_true(arguments, 1, "boolean", false);
    (void)run;
    if (of.kind != JINJA_UNDEFINED && !(untrue && !jinja_true(of)))
        return of;
    return given ? *given : jinja_string("", 0);
}

static struct jinja_value filter_length(struct jinja_run *run, struct jinja_value of,
                                        const struct jinja_arguments *arguments)
{
    (void)arguments;
    if (of.kind == JINJA_STRING)
        return jinja_int((int64_t)jinja_characters(of.text));
    if (of.kind == JINJA_NONE)
        return jinja_fail(run, "none has no length");
    const struct jinja_list *list = jinja_elements(run, of);
    return list ? jinja_int((int64_t)list->count) : of;
}

static struct jinja_value filter_items(struct jinja_run *run, struct jinja_value of,
                                       const struct jinja_arguments *arguments)
{
    const struct jinja_method method = {of, {"items", 5}};
    struct jinja_list *empty = jinja_list_create(run->arena);
    if (of.kind == JINJA_UNDEFINED && empty)
        return jinja_of_list(empty);
    return of.kind == JINJA_DICT
               ? jinja_call_method(run, &method, arguments)
               : jinja_fail(run, "items needs a dict, and has %s", jinja_kind_name(of.kind));
}

static struct jinja_value filter_attr(struct jinja_run *run, struct jinja_value of,
                                      const struct jinja_arguments *arguments)
{
    const struct jinja_value *name = jinja_argument(arguments, 0, "name");
    return name && name->kind == JINJA_STRING ? jinja_attribute(run, of, name->text)
                                              : jinja_fail(run, "attr needs a name");
}

static const struct {
    const char *name;
    filter_function *apply;
} filters[] = {{"tojson", filter_tojson},
               {"trim", filter_trim},
               {"upper", filter_upper},
               {"lower", filter_lower},
               {"capitalize", filter_capitalize},
               {"title", filter_title},
               {"replace", filter_replace},
               {"string", filter_string},
               {"safe", filter_safe},
               {"escape", filter_escape},
               {"e", filter_escape},
               {"format", filter_format},
               {"indent", filter_indent},
               {"wordcount", filter_wordcount},
               {"int", filter_int},
               {"float", filter_float},
               {"abs", filter_abs},
               {"round", filter_round},
               {"default", filter_default},
               {"d", filter_default},
               {"length", filter_length},
               {"count", filter_length},
               {"items", filter_items},
               {"attr", filter_attr}};

struct jinja_value jinja_filter(struct jinja_run *run, struct jinja_text name, struct jinja_value of,
                                const struct jinja_arguments *arguments)
{
    struct jinja_value value;
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (jinja_text_is(name, filters[i].name))
            return filters[i].apply(run, of, arguments);
    if (jinja_list_filter(run, name, of, arguments, &value))
        return value;
    return jinja_fail(run, "the filter '%.*s' is not supported in a chat template",
                      (int)(name.length < 40 ? name.length : 40), name.data);
}
