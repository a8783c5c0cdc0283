/* pattern.c - see parts.h: an expression of Oniguruma or Rust becomes an expression of PCRE2 over bytes.
 *
 * Each set of characters of the expression gets a number. Afterwards the code points that the same sets have
 * become one byte, and each set is written as a class of such bytes. Case is dissolved into sets too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"
#include "trainer/tokens/pattern.h"

enum {
    GROUPS = 32,    /* depth of groups */
    REPEATS = 1000, /* largest number of repetitions */
};

/* A part of the result: the number of a set, or text. */
struct emitted {
    int set; /* -1: text */
    char text[16];
};

struct group {
    bool ignores_case, dot_all;
    bool may_be_empty, all_empty; /* an earlier alternative may match nothing; this one, as far as it goes */
    size_t begin;                 /* its first emitted part */
    bool looks;                   /* an assertion: takes nothing */
};

struct translation {
    struct pattern_text in;
    struct point_set set[PATTERN_SETS];
    int sets;
    struct emitted *out;
    size_t count, capacity;
    struct group group[GROUPS];
    int depth;
    /* the last atom: where it begins, whether a repetition may follow, whether it may match nothing */
    size_t atom;
    bool repeatable, atom_empty;
    uint32_t letter_before; /* the last atom is this letter, in any case; 0: it is not */
};

/* ---- the result ---- */

static int emit(struct translation *t, int set, const char *text)
{
    if (t->count == t->capacity) {
        const size_t wanted = t->capacity * 2 + 64;
        struct emitted *grown = mem_realloc(t->out, wanted, sizeof *grown);
        if (!grown)
            return pattern_no_memory(&t->in);
        t->out = grown;
        t->capacity = wanted;
    }
    struct emitted *item = &t->out[t->count++];
    item->set = set;
    (void)snprintf(item->text, sizeof item->text, "%s", text); /* fits */
    return 0;
}

/* Gives a set its number: the number of an equal set, if there is one. Takes its ranges. */
static int number_of_set(struct translation *t, struct point_set *s)
{
    point_set_order(s);
    for (int i = 0; i < t->sets; i++)
        if (t->set[i].count == s->count &&
            (!s->count || !memcmp(t->set[i].range, s->range, s->count * sizeof *s->range))) {
            point_set_free(s);
            return i;
        }
    if (t->sets == PATTERN_SETS) {
        point_set_free(s);
        return pattern_refuse(&t->in, "an expression with so many different characters,");
    }
    t->set[t->sets] = *s;
    *s = (struct point_set){0};
    return t->sets++;
}

/* The atom before has its repetition now. */
static void begin_atom(struct translation *t, bool repeatable)
{
    t->group[t->depth].all_empty = t->group[t->depth].all_empty && t->atom_empty;
    t->atom = t->count;
    t->repeatable = repeatable;
    t->atom_empty = !repeatable;
    t->letter_before = 0;
}

static int emit_set(struct translation *t, struct point_set *s)
{
    const int number = number_of_set(t, s);
    begin_atom(t, true);
    return number < 0 ? -1 : emit(t, number, "");
}

/* A set in an assertion that is written out. */
static int set_of_point(struct translation *t, uint32_t point)
{
    struct point_set s = {0};
    return point_set_add(&s, point, point) < 0 ? pattern_no_memory(&t->in) : number_of_set(t, &s);
}

static int set_of_words(struct translation *t)
{
    struct point_set s = {0};
    if (pattern_add_words(&t->in, &s) < 0) {
        point_set_free(&s);
        return -1;
    }
    return number_of_set(t, &s);
}

/* ---- groups, repetitions, the whole ---- */

static int open_group(struct translation *t)
{
    static const struct {
        const char *begin, *out;
        bool looks;
    } kinds[] = {{"?:", "(?:", false},  {"?=", "(?=", true},   {"?!", "(?!", true},
                 {"?<=", "(?<=", true}, {"?<!", "(?<!", true}, {"?>", "(?>", false}};
    struct group next = t->group[t->depth];
    const unsigned char *inside = t->in.at + 1;
    const char *out = "(?:";
    next.looks = false;
    if (*inside == '?') {
        size_t i = 0;
        while (i < sizeof kinds / sizeof *kinds &&
               strncmp((const char *)inside, kinds[i].begin, strlen(kinds[i].begin)) != 0)
            i++;
        if (i < sizeof kinds / sizeof *kinds) {
            out = kinds[i].out;
            next.looks = kinds[i].looks;
            inside += strlen(kinds[i].begin);
        } else {
            bool on = true;
            for (inside++; *inside && *inside != ':' && *inside != ')'; inside++) {
                if (*inside == '-')
                    on = false;
                else if (*inside == 'i')
                    next.ignores_case = on;
                else if (*inside == (t->in.flavour == PATTERN_RUST ? 's' : 'm'))
                    next.dot_all = on;
                else
                    return pattern_refuse(&t->in, "a group of this kind");
            }
            if (*inside == ')' && t->count == 0 && t->depth == 0) { /* (?i) at the beginning */
                t->group[0].ignores_case = next.ignores_case;
                t->group[0].dot_all = next.dot_all;
                t->in.at = inside + 1;
                return 0;
            }
            if (*inside != ':')
                return pattern_refuse(&t->in, "a group of this kind");
            inside++;
        }
    } else if (*inside == '*') {
        return pattern_refuse(&t->in, "a group of this kind");
    }
    if (t->depth + 1 == GROUPS)
        return pattern_refuse(&t->in, "a group this deep");
    t->in.at = inside;
    begin_atom(t, true);
    next.begin = t->count;
    next.may_be_empty = false;
    next.all_empty = true;
    t->group[++t->depth] = next;
    t->atom_empty = true;
    t->repeatable = false;
    return emit(t, -1, out);
}

/* The end of an alternative. */
static void end_alternative(struct translation *t)
{
    struct group *g = &t->group[t->depth];
    g->may_be_empty = g->may_be_empty || (g->all_empty && t->atom_empty);
    g->all_empty = true;
    t->atom_empty = true;
    t->repeatable = false;
    t->letter_before = 0;
}

static int close_group(struct translation *t)
{
    if (t->depth == 0)
        return pattern_refuse(&t->in, "a ) without (");
    end_alternative(t);
    const struct group *g = &t->group[t->depth--];
    t->in.at++;
    t->atom = g->begin;
    t->repeatable = !g->looks;
    t->atom_empty = g->looks || g->may_be_empty;
    return emit(t, -1, ")");
}

/* {n}, {n,}, {n,m}, {,m} at t->in.at. Returns its length; 0: it is none. */
static size_t interval(const struct translation *t, long *least, long *most)
{
    const char *begin = (const char *)t->in.at + 1;
    char *end = (char *)begin;
    const bool has_least = pattern_digit((unsigned char)*begin);
    *least = has_least ? strtol(begin, &end, 10) : 0;
    *most = *least;
    if (*end == ',') {
        const char *second = end + 1;
        const bool has_most = pattern_digit((unsigned char)*second);
        if (!has_least && !has_most)
            return 0;
        *most = has_most ? strtol(second, &end, 10) : -1;
        end = has_most ? end : (char *)second;
    } else if (!has_least) {
        return 0;
    }
    return *end == '}' ? (size_t)(end + 1 - (const char *)t->in.at) : 0;
}

/* Puts the atom into a group of its own. */
static int wrap_atom(struct translation *t)
{
    if (emit(t, -1, ")") < 0 || emit(t, -1, ")") < 0)
        return -1;
    memmove(t->out + t->atom + 1, t->out + t->atom, (t->count - t->atom - 2) * sizeof *t->out);
    t->out[t->atom] = (struct emitted){-1, "(?:"};
    return 0;
}

/* length: bytes of the repetition. */
static int repeat_atom(struct translation *t, size_t length, long least, long most)
{
    char text[48];
    const bool counted = *t->in.at == '{';
    const bool empty = t->atom_empty;
    if (!t->repeatable)
        return pattern_refuse(&t->in, "a repetition of nothing or of a repetition");
    if (least > REPEATS || most > REPEATS || (most >= 0 && most < least))
        return pattern_refuse(&t->in, "a repetition of this size");
    if (empty && most != 1)
        return pattern_refuse(&t->in, "a repetition of an empty match");
    if (counted && most < 0)
        (void)snprintf(text, sizeof text, "{%ld,}", least); /* fits */
    else if (counted)
        (void)snprintf(text, sizeof text, "{%ld,%ld}", least, most);
    else
        (void)snprintf(text, sizeof text, "%c", *t->in.at);
    if (emit(t, -1, text) < 0)
        return -1;
    t->in.at += length;
    t->repeatable = false;
    t->atom_empty = empty || least == 0;
    t->letter_before = 0;
    if (*t->in.at == '?') {
        if (counted && least == most)
            return pattern_refuse(&t->in, "a lazy repetition of a fixed size");
        t->in.at++;
        return emit(t, -1, "?");
    }
    if (*t->in.at != '+')
        return 0;
    if (counted && t->in.flavour == PATTERN_ONIGURUMA) { /* repeats the repetition there */
        if (t->atom_empty)
            return pattern_refuse(&t->in, "a repetition of an empty match");
        if (wrap_atom(t) < 0)
            return -1;
    }
    t->in.at++;
    return emit(t, -1, "+");
}

/* ^ and $, \A, \z, \b, \B. */
static int take_anchor(struct translation *t, char anchor)
{
    const bool rust = t->in.flavour == PATTERN_RUST, word = anchor == 'b' || anchor == 'B';
    const int set = word                                     ? set_of_words(t)
                    : anchor == 'A' || anchor == 'z' || rust ? 0
                                                             : set_of_point(t, '\n');
    begin_atom(t, false);
    if (set < 0)
        return -1;
    if (anchor == 'A' || (rust && anchor == '^'))
        return emit(t, -1, "\\A");
    if (anchor == 'z' || (rust && anchor == '$'))
        return emit(t, -1, "\\z");
    /* "": the set */
    static const char *const starts[] = {"(?:\\A|(?<=", "", ")(?!\\z))", NULL},
                             *const ends[] = {"(?:(?=", "", ")|\\z)", NULL},
                             *const borders[] = {"(?:(?<=", "",     ")(?!", "",   ")|(?<!",
                                                 "",        ")(?=", "",     "))", NULL},
                             *const insides[] = {"(?:(?<=", "",     ")(?=", "",   ")|(?<!",
                                                 "",        ")(?!", "",     "))", NULL};
    const char *const *part = anchor == '^'   ? starts
                              : anchor == '$' ? ends
                              : anchor == 'b' ? borders
                                              : insides;
    for (; *part; part++)
        if (emit(t, **part ? -1 : set, *part) < 0)
            return -1;
    return 0;
}

/* Two letters that another character is in any case: "ss", "ff", "fi", "fl", "st". */
static bool folds_together(uint32_t before, uint32_t letter)
{
    return (before == 's' && (letter == 's' || letter == 't')) ||
           (before == 'f' && (letter == 'f' || letter == 'i' || letter == 'l'));
}

static int take_literal(struct translation *t, uint32_t point)
{
    struct point_set s = {0};
    const bool any_case = t->group[t->depth].ignores_case;
    const uint32_t before = t->letter_before, letter = any_case && pattern_letter(point) ? point | 32 : 0;
    if (t->in.flavour == PATTERN_ONIGURUMA && letter && folds_together(before, letter))
        return pattern_refuse(&t->in, "(?i) over these letters");
    if (point_set_add(&s, point, point) < 0)
        return pattern_no_memory(&t->in);
    if ((any_case && pattern_fold(&t->in, &s, false) < 0) || emit_set(t, &s) < 0) {
        point_set_free(&s);
        return -1;
    }
    t->letter_before = letter;
    return 0;
}

static int take_dot(struct translation *t)
{
    struct point_set s = {0};
    const bool all = t->group[t->depth].dot_all;
    t->in.at++;
    if (point_set_add(&s, 0, all ? POINT_LAST : '\n' - 1) < 0 ||
        (!all && point_set_add(&s, '\n' + 1, POINT_LAST) < 0)) {
        point_set_free(&s);
        return pattern_no_memory(&t->in);
    }
    return emit_set(t, &s);
}

static int take_escaped(struct translation *t)
{
    struct point_set s = {0};
    uint32_t point = 0;
    if (t->in.at[1] && strchr("AzbB", t->in.at[1])) {
        t->in.at += 2;
        return take_anchor(t, (char)t->in.at[-1]);
    }
    t->in.at++;
    const int kind = pattern_take_escape(&t->in, &point, &s);
    if (kind > 0)
        return take_literal(t, point);
    if (!kind && emit_set(t, &s) == 0)
        return 0;
    point_set_free(&s);
    return -1;
}

static int take_one(struct translation *t)
{
    struct point_set s = {0};
    long least = 0, most = 0;
    size_t length;
    switch (*t->in.at) {
    case '(':
        return open_group(t);
    case ')':
        return close_group(t);
    case '|':
        end_alternative(t);
        t->in.at++;
        return emit(t, -1, "|");
    case '*':
        return repeat_atom(t, 1, 0, -1);
    case '+':
        return repeat_atom(t, 1, 1, -1);
    case '?':
        return repeat_atom(t, 1, 0, 1);
    case '{':
        length = interval(t, &least, &most);
        if (length)
            return repeat_atom(t, length, least, most);
        if (t->in.flavour == PATTERN_RUST)
            return pattern_refuse(&t->in, "a brace");
        return take_literal(t, pattern_take_point(&t->in));
    case '.':
        return take_dot(t);
    case '^':
    case '$':
        t->in.at++;
        return take_anchor(t, (char)t->in.at[-1]);
    case '\\':
        return take_escaped(t);
    case '[':
        if (pattern_take_class(&t->in, t->group[t->depth].ignores_case, &s) == 0 && emit_set(t, &s) == 0)
            return 0;
        point_set_free(&s);
        return -1;
    default:
        return take_literal(t, pattern_take_point(&t->in));
    }
}

int pattern_translate(const char *pattern, enum pattern_flavour flavour, struct buffer *out, uint8_t *map,
                      struct muster_error *err)
{
    scope_free struct translation *t = mem_calloc(1, sizeof *t);
    scope_free struct pattern_bytes *bytes = mem_calloc(1, sizeof *bytes);
    int failed = 0;
    if (!t || !bytes)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a regular expression");
    t->in.begin = t->in.at = (const unsigned char *)pattern;
    t->in.flavour = flavour;
    t->in.err = err;
    t->group[0].all_empty = t->atom_empty = true;
    while (*t->in.at && !failed)
        failed = take_one(t);
    if (!failed && t->depth)
        failed = pattern_refuse(&t->in, "a ( without ) before the end");
    if (!failed)
        failed = pattern_bytes_fill(&t->in, t->set, t->sets, map, bytes);
    for (size_t i = 0; i < t->count && !failed; i++) {
        if (t->out[i].set < 0)
            (void)buffer_text(out, t->out[i].text); /* out remembers a failure */
        else
            pattern_bytes_write(bytes, t->out[i].set, out);
    }
    for (int i = 0; i < t->sets; i++)
        point_set_free(&t->set[i]);
    mem_free(t->out);
    if (!failed && buffer_append(out, "", 1) < 0)
        failed = error_set(err, MUSTER_E_NOMEM, "no memory for a regular expression");
    return failed ? -1 : 0;
}
