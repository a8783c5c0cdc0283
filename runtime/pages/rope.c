/* rope.c - rotary positions from config.json, as transformers 4 (rope_theta, rope_scaling) and 5
 * (rope_parameters) have them. Where a file has both keys, transformers 5 takes rope_scaling. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/pages/rope.h"

struct rope_reader {
    const struct rope_source *source;
    const json_t *inner; /* rope_scaling, rope_parameters, or a part of it; NULL: none */
    struct rotary *rotary;
    double *lists;
    int (*refuse)(void *context, const char *key, const json_t *value, const char *works);
    void *context;
};

static const json_t *not_null(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value) ? value : NULL;
}

static int rope_refuse(struct rope_reader *r, const char *key, const json_t *value, const char *works)
{
    return r->refuse(r->context, key, value ? value : json_null(), works);
}

/* From the inner object, else from the outer; outer: the key there, NULL: none. */
static const json_t *rope_value(const struct rope_reader *r, const char *key, const char *outer)
{
    const json_t *value = not_null(r->inner, key);
    return value || !outer ? value : not_null(r->source->config, outer);
}

static int rope_number(struct rope_reader *r, const char *key, const char *outer, double fallback,
                       double *out)
{
    const json_t *value = rope_value(r, key, outer);
    *out = fallback;
    if (value && !json_is_number(value))
        return rope_refuse(r, key, value, "a number is");
    if (value)
        *out = json_number_value(value);
    return isfinite(*out) ? 0 : rope_refuse(r, key, value, "a finite number is");
}

static int factor_of(struct rope_reader *r)
{
    if (rope_number(r, "factor", NULL, 0, &r->rotary->factor) < 0)
        return -1;
    return r->rotary->factor >= 1
               ? 0
               : rope_refuse(r, "factor", not_null(r->inner, "factor"), "a rotary factor of 1 or more is");
}

/* The pre-training's length: next to the sizes, among the rotary keys, or the model's own. */
static int original_of(struct rope_reader *r)
{
    static const char key[] = "original_max_position_embeddings";
    const json_t *value = not_null(r->source->config, key);
    if (!value && !r->source->original)
        value = not_null(r->inner, key);
    r->rotary->original = r->source->original ? r->source->original : r->source->positions;
    if (value &&
        (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > INT32_MAX))
        return rope_refuse(r, key, value, "a whole number above 0 is");
    if (value)
        r->rotary->original = (int)json_integer_value(value);
    return 0;
}

static int read_linear(struct rope_reader *r)
{
    r->rotary->kind = ROTARY_LINEAR;
    return factor_of(r);
}

static int read_dynamic(struct rope_reader *r)
{
    r->rotary->kind = ROTARY_DYNAMIC;
    r->rotary->original = r->source->positions;
    return factor_of(r);
}

static int read_llama3(struct rope_reader *r)
{
    struct rotary *rotary = r->rotary;
    rotary->kind = ROTARY_LLAMA3;
    if (factor_of(r) < 0 || original_of(r) < 0 ||
        rope_number(r, "low_freq_factor", NULL, 0, &rotary->low) < 0 ||
        rope_number(r, "high_freq_factor", NULL, 0, &rotary->high) < 0)
        return -1;
    return rotary->low > 0 && rotary->high > rotary->low
               ? 0
               : rope_refuse(r, "high_freq_factor", not_null(r->inner, "high_freq_factor"),
                             "low_freq_factor above 0 and high_freq_factor above it are");
}

static double yarn_scale(double factor, double by)
{
    return factor <= 1 ? 1 : 0.1 * by * log(factor) + 1;
}

static int read_yarn(struct rope_reader *r)
{
    struct rotary *rotary = r->rotary;
    double by, all;
    const json_t *truncate = not_null(r->inner, "truncate");
    rotary->kind = ROTARY_YARN;
    if (factor_of(r) < 0 || original_of(r) < 0 || rope_number(r, "beta_fast", NULL, 32, &rotary->high) < 0 ||
        rope_number(r, "beta_slow", NULL, 1, &rotary->low) < 0 ||
        rope_number(r, "mscale", NULL, 0, &by) < 0 || rope_number(r, "mscale_all_dim", NULL, 0, &all) < 0)
        return -1;
    rotary->high = rotary->high != 0 ? rotary->high : 32;
    rotary->low = rotary->low != 0 ? rotary->low : 1;
    const double own = by != 0 && all != 0 ? yarn_scale(rotary->factor, by) / yarn_scale(rotary->factor, all)
                                           : yarn_scale(rotary->factor, 1);
    if (rope_number(r, "attention_factor", NULL, own, &rotary->amplitude) < 0)
        return -1;
    if (truncate && !json_is_boolean(truncate))
        return rope_refuse(r, "truncate", truncate, "true or false is");
    rotary->exact = truncate && !json_is_true(truncate);
    if (rotary->low <= 0 || rotary->high <= rotary->low)
        return rope_refuse(r, "beta_fast", not_null(r->inner, "beta_fast"),
                           "beta_slow above 0 and beta_fast above it are");
    if (rotary->theta <= 1)
        return rope_refuse(r, "rope_theta", not_null(r->inner, "rope_theta"), "yarn has a theta above 1");
    return rotary->amplitude > 0 ? 0
                                 : rope_refuse(r, "attention_factor", not_null(r->inner, "attention_factor"),
                                               "a number above 0 is");
}

static int read_list(struct rope_reader *r, const char *key, int pairs, double *to)
{
    const json_t *list = not_null(r->inner, key);
    if (!json_is_array(list) || (int)json_array_size(list) != pairs)
        return rope_refuse(r, key, list, "a list with a number for each pair that turns is");
    for (int i = 0; i < pairs; i++) {
        const json_t *number = json_array_get(list, (size_t)i);
        to[i] = json_number_value(number);
        if (!json_is_number(number) || !(to[i] > 0))
            return rope_refuse(r, key, number, "its numbers are above 0");
    }
    return 0;
}

static int read_longrope(struct rope_reader *r)
{
    struct rotary *rotary = r->rotary;
    double factor;
    const int pairs = rotary_size(rotary, r->source->head) / 2;
    rotary->kind = ROTARY_LISTED;
    rotary->lists = r->lists;
    if (2 * pairs > ROPE_LISTS)
        return rope_refuse(r, "short_factor", not_null(r->inner, "short_factor"),
                           "heads of up to 1024 elements are");
    if (read_list(r, "short_factor", pairs, r->lists) < 0 ||
        read_list(r, "long_factor", pairs, r->lists + pairs) < 0 || original_of(r) < 0 ||
        rope_number(r, "factor", NULL, 0, &factor) < 0)
        return -1;
    factor = factor != 0 ? factor : (double)r->source->positions / rotary->original;
    const double own =
        factor <= 1 || rotary->original < 2 ? 1 : sqrt(1 + log(factor) / log(rotary->original));
    if (rope_number(r, "attention_factor", NULL, own, &rotary->amplitude) < 0)
        return -1;
    return rotary->amplitude > 0 ? 0
                                 : rope_refuse(r, "attention_factor", not_null(r->inner, "attention_factor"),
                                               "a number above 0 is");
}

static const struct rope_kind {
    const char *name;
    int (*read)(struct rope_reader *r);
} kinds[] = {
    {"default", NULL},         {"linear", read_linear}, {"llama3", read_llama3},
    {"dynamic", read_dynamic}, {"yarn", read_yarn},     {"longrope", read_longrope},
};

static bool is_word_of(const char *word, const char *list)
{
    const size_t length = strlen(word);
    for (const char *p = list; (p = strstr(p, word)); p += length)
        if ((p == list || p[-1] == ' ') && (p[length] == ' ' || !p[length]))
            return true;
    return false;
}

static int read_kind(struct rope_reader *r)
{
    static const char all[] = "default linear llama3 dynamic yarn longrope";
    const json_t *type = not_null(r->inner, "rope_type");
    type = type ? type : not_null(r->inner, "type");
    const char *name = type ? json_string_value(type) : "default", *takes = r->source->kinds;
    /* Phi-3 has had two older names for the same. */
    if (name && takes && is_word_of("su", takes) && (!strcmp(name, "su") || !strcmp(name, "yarn")))
        name = "longrope";
    for (size_t i = 0; name && i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, name) && (!takes || is_word_of(name, takes)))
            return kinds[i].read ? kinds[i].read(r) : 0;
    char works[96];
    (void)snprintf(works, sizeof works, "%s are", takes ? takes : all); /* cut: still a list */
    return rope_refuse(r, "the type of rotary positions", type, works);
}

/* Elements of a head that turn. */
static int read_partial(struct rope_reader *r)
{
    const struct rope_source *s = r->source;
    double partial;
    if (rope_number(r, "partial_rotary_factor", s->partial_key, s->partial > 0 ? s->partial : 1, &partial) <
        0)
        return -1;
    const int size = (int)(s->head * partial);
    if (s->partial > 0 ? size < 2 || size > s->head || size % 2 : partial != 1)
        return rope_refuse(r, "partial_rotary_factor", rope_value(r, "partial_rotary_factor", s->partial_key),
                           s->partial > 0 ? "a part of a head of an even number of elements turns" : "1 is");
    r->rotary->size = size == s->head ? 0 : size;
    return 0;
}

static const json_t *object_of(const json_t *config, const char *key)
{
    const json_t *value = not_null(config, key);
    return json_is_object(value) && !json_object_size(value) ? NULL : value;
}

static int find_inner(struct rope_reader *r)
{
    const json_t *config = r->source->config, *scaling = object_of(config, "rope_scaling");
    const json_t *parameters = object_of(config, "rope_parameters");
    const char *part = r->source->part;
    const json_t *other = scaling ? scaling : parameters;
    if (other && !json_is_object(other))
        return rope_refuse(r, scaling ? "rope_scaling" : "rope_parameters", other, "an object is");
    r->inner = other;
    if (!part)
        return 0;
    /* An object for each type of layer; the older form has one, of the layers that see everything. */
    if (scaling && parameters)
        return rope_refuse(r, "rope_scaling", scaling, "it is, without rope_parameters");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)parameters, key, value)
    {
        if (strcmp(key, "full_attention") != 0 && strcmp(key, "sliding_attention") != 0)
            return rope_refuse(r, "rope_parameters", parameters, "an object for each type of layer is");
    }
    r->inner = parameters ? not_null(parameters, part) : strcmp(part, "full_attention") ? NULL : scaling;
    return !r->inner || json_is_object(r->inner)
               ? 0
               : rope_refuse(r, "rope_parameters", r->inner, "an object is");
}

int rope_read(const struct rope_source *source, struct rotary *rotary, double *lists,
              int (*refused)(void *context, const char *key, const json_t *value, const char *works),
              void *context)
{
    struct rope_reader r = {
        .source = source, .rotary = rotary, .lists = lists, .refuse = refused, .context = context};
    *rotary = (struct rotary){.kind = ROTARY_PLAIN};
    if (find_inner(&r) < 0 ||
        rope_number(&r, "rope_theta", source->theta_key, source->theta, &rotary->theta) < 0)
        return -1;
    if (!(rotary->theta > 0))
        return rope_refuse(&r, "rope_theta", rope_value(&r, "rope_theta", source->theta_key),
                           "a number above 0 is");
    return read_partial(&r) < 0 ? -1 : read_kind(&r);
}
