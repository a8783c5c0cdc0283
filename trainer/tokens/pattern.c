/* pattern.c - see parts.h: an expression of Oniguruma or Rust becomes an expression of PCRE2 over bytes.
 *
 * Each set of characters of the expression gets a number. Afterwards the code points that the same sets have
 * become one byte, and each set is written as a class of such bytes. Case is dissolved into sets too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/tokens/parts.h"
#include "trainer/tokens/point_set.h"

enum {
    SETS = 192, /* different sets of an expression */
    WORDS = SETS / 64,
    GROUPS = 32, /* depth of groups */
    SURROGATES = 0xD800,
    SURROGATES_END = 0xE000,
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
    const unsigned char *text, *at;
    enum pattern_flavour flavour;
    struct muster_error *err;
    struct point_set set[SETS];
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

static int pattern_refuse(const struct translation *t, const char *what)
{
    return error_set(t->err, MUSTER_E_UNSUPPORTED, "%s at byte %zu is not supported", what,
                     (size_t)(t->at - t->text));
}

static int out_of_memory(const struct translation *t)
{
    return error_set(t->err, MUSTER_E_NOMEM, "no memory for a regular expression");
}

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(uint32_t c)
{
    return c < 0x80 && ((c | 32) - 'a') < 26;
}

/* Whether case changes nothing about a character beyond ASCII. */
static bool has_no_case(uint32_t point)
{
    static const char *const none[] = {"Lo", "Nd", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
                                       "Sm", "Sc", "Sk", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn"};
    const unsigned category = unicode_classes(point) >> UNICODE_CATEGORY_SHIFT & 255;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (unicode_category(none[i], 2) == (int)category)
            return true;
    return false;
}

/* Adds the other case of each letter. inverted: the set is to be inverted afterwards. */
static int set_fold(struct translation *t, struct point_set *s, bool inverted)
{
    const size_t count = s->count;
    for (size_t i = 0; i < count; i++) {
        for (uint32_t c = s->range[i].first; c <= s->range[i].last; c++) {
            if (c >= 0x80 ? !has_no_case(c) : (inverted && is_letter(c)))
                return pattern_refuse(t, "(?i) over characters beyond ASCII or over [^...] with letters,");
            if (!is_letter(c))
                continue;
            const uint32_t more = (c | 32) == 's' ? 0x17F : (c | 32) == 'k' ? 0x212A : 0;
            if (point_set_add(s, c ^ 32, c ^ 32) < 0 || (more && point_set_add(s, more, more) < 0))
                return out_of_memory(t);
        }
    }
    return 0;
}

/* ---- the result ---- */

static int emit(struct translation *t, int set, const char *text)
{
    if (t->count == t->capacity) {
        const size_t wanted = t->capacity * 2 + 64;
        struct emitted *grown = mem_realloc(t->out, wanted, sizeof *grown);
        if (!grown)
            return out_of_memory(t);
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
    if (t->sets == SETS) {
        point_set_free(s);
        return pattern_refuse(t, "an expression with so many different characters,");
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
    return point_set_add(&s, point, point) < 0 ? out_of_memory(t) : number_of_set(t, &s);
}

static int set_of_words(struct translation *t)
{
    struct point_set s = {0};
    if (point_set_add_classes(&s, t->flavour == PATTERN_RUST ? UNICODE_RUST_WORD : UNICODE_WORD, 0) < 0) {
        point_set_free(&s);
        return out_of_memory(t);
    }
    return number_of_set(t, &s);
}

/* ---- characters and classes ---- */

/* The code point at t->at, which is moved after it. */
static uint32_t take_point(struct translation *t)
{
    const struct unicode_char c = unicode_next((const char *)t->at, strlen((const char *)t->at));
    t->at += c.length;
    return c.point;
}

static int hex_of(unsigned char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* The number of \xHH, \x{H...}, \uHHHH, \u{H...}; t->at is after the letter. */
static int take_hex(struct translation *t, int digits, uint32_t *point)
{
    const bool braced = *t->at == '{';
    int count = 0;
    *point = 0;
    t->at += braced;
    for (; hex_of(*t->at) >= 0 && count < (braced ? 6 : digits); count++)
        *point = *point << 4 | (uint32_t)hex_of(*t->at++);
    if (!count || (!braced && count != digits) || (braced && *t->at != '}') || *point > POINT_LAST ||
        (*point >= SURROGATES && *point < SURROGATES_END) || (!braced && digits == 2 && *point > 0x7F))
        return pattern_refuse(t, "a character by its number");
    t->at += braced;
    return 0;
}

static const char *const property_names[][2] = {{"Letter", "L"},      {"Number", "N"}, {"Mark", "M"},
                                                {"Punctuation", "P"}, {"Symbol", "S"}, {"Separator", "Z"}};

/* Adds \p{name} to the set. */
static int add_property(struct translation *t, const char *name, size_t length, struct point_set *s)
{
    const int category = unicode_category(name, length), script = unicode_script(name, length);
    int result = -2;
    for (size_t i = 0; i < sizeof property_names / sizeof *property_names; i++)
        if (strlen(property_names[i][0]) == length && !memcmp(property_names[i][0], name, length)) {
            name = property_names[i][1];
            length = 1;
        }
    if (category >= 0)
        result = category ? point_set_add_classes(s, 255U << UNICODE_CATEGORY_SHIFT,
                                                  (unsigned)category << UNICODE_CATEGORY_SHIFT)
                          : -2;
    else if (script > 0)
        result =
            point_set_add_classes(s, 255U << UNICODE_SCRIPT_SHIFT, (unsigned)script << UNICODE_SCRIPT_SHIFT);
    else if (length == 1 && strchr("LNMPSZ", name[0]) && name[0])
        for (int i = result = 0; unicode_category_name(i) && !result; i++)
            if (unicode_category_name(i)[0] == name[0])
                result = point_set_add_classes(s, 255U << UNICODE_CATEGORY_SHIFT,
                                               (unsigned)i << UNICODE_CATEGORY_SHIFT);
    return result == -2 ? pattern_refuse(t, "a \\p{...} of this name") : result < 0 ? out_of_memory(t) : 0;
}

static int take_property(struct translation *t, bool inverted, struct point_set *s)
{
    const char *name = (const char *)t->at + 1, *end = *t->at == '{' ? strchr(name, '}') : NULL;
    if (!end && t->flavour == PATTERN_RUST && is_letter(*t->at)) { /* \pL */
        name--;
        end = name + 1;
    }
    if (!end)
        return pattern_refuse(t, "\\p without {...}");
    if (*name == '^') {
        inverted = !inverted;
        name++;
    }
    if (add_property(t, name, (size_t)(end - name), s) < 0)
        return -1;
    t->at = (const unsigned char *)end + (*end == '}');
    return inverted && point_set_invert(s) < 0 ? out_of_memory(t) : 0;
}

/* An escape; t->at is after the backslash. Returns 1 and *point, or 0 and a set, or -1. */
static int take_escape(struct translation *t, uint32_t *point, struct point_set *s)
{
    static const char names[] = "nrtfvae", values[] = "\n\r\t\f\v\a\x1B";
    static const char classes[] = "sdwh";
    const unsigned char c = *t->at, lower = is_letter(c) ? (unsigned char)(c | 32) : c;
    const char *named = c ? strchr(names, c) : NULL,
               *class = c && is_letter(c) ? strchr(classes, lower) : NULL;
    if (!c)
        return pattern_refuse(t, "a backslash");
    if (c >= 0x80 || (!is_letter(c) && !is_digit(c))) {
        *point = take_point(t);
        return 1;
    }
    t->at++;
    if (named && !(t->flavour == PATTERN_RUST && c == 'e')) {
        *point = (unsigned char)values[named - names];
        return 1;
    }
    if (c == 'x' || c == 'u')
        return take_hex(t, c == 'x' ? 2 : 4, point) < 0 ? -1 : 1;
    if (lower == 'p')
        return take_property(t, c == 'P', s);
    if (!class || (lower == 'h' && t->flavour == PATTERN_RUST)) {
        t->at -= 2;
        return pattern_refuse(t, "the escape");
    }
    int failed = 0;
    if (lower == 's')
        failed = point_set_add_classes(s, UNICODE_BLANK, 0);
    else if (lower == 'd')
        failed = point_set_add_classes(s, 255U << UNICODE_CATEGORY_SHIFT,
                                       (unsigned)unicode_category("Nd", 2) << UNICODE_CATEGORY_SHIFT);
    else if (lower == 'w')
        failed = point_set_add_classes(s, t->flavour == PATTERN_RUST ? UNICODE_RUST_WORD : UNICODE_WORD, 0);
    else
        failed =
            point_set_add(s, '0', '9') < 0 || point_set_add(s, 'a', 'f') < 0 || point_set_add(s, 'A', 'F') < 0
                ? -1
                : 0;
    if (!failed && c != lower)
        failed = point_set_invert(s);
    return failed ? out_of_memory(t) : 0;
}

static int take_class(struct translation *t, int depth, struct point_set *s);

/* A character, an escape or a nested class, joined to s; a range where '-' and a character follow. */
static int take_member(struct translation *t, int depth, struct point_set *s)
{
    uint32_t first = 0, last = 0;
    int kind = 1;
    struct point_set member = {0};
    if (*t->at == '[') {
        kind = take_class(t, depth + 1, &member);
    } else if (*t->at == '\\') {
        t->at++;
        kind = take_escape(t, &first, &member);
    } else {
        first = take_point(t);
    }
    if (kind <= 0) {
        const int failed = kind < 0 ? -1 : point_set_join(s, &member) < 0 ? out_of_memory(t) : 0;
        point_set_free(&member);
        return failed < 0 || *t->at != '-' || t->at[1] == ']' ? failed
                                                              : pattern_refuse(t, "a range after a class");
    }
    last = first;
    if (*t->at == '-' && t->at[1] != ']' && t->at[1]) {
        t->at++;
        if (*t->at == '[' || *t->at == '-')
            return pattern_refuse(t, "a range of this kind");
        if (*t->at == '\\') {
            t->at++;
            kind = take_escape(t, &last, &member);
            point_set_free(&member);
            if (kind <= 0)
                return kind < 0 ? -1 : pattern_refuse(t, "a range to a class");
        } else {
            last = take_point(t);
        }
    }
    if (last < first)
        return pattern_refuse(t, "a range that ends before it begins");
    return point_set_add(s, first, last) < 0 ? out_of_memory(t) : 0;
}

/* [...]; t->at is at the bracket. s is empty. */
static int take_class(struct translation *t, int depth, struct point_set *s)
{
    struct point_set right = {0};
    const bool inverted = t->at[1] == '^';
    bool first = true, meets = false;
    int result = -1;
    if (depth > 4 || t->at[1] == ':' || (t->at[1] == '^' && t->at[2] == ':'))
        return pattern_refuse(t, "a class of this kind");
    t->at += 1 + inverted;
    for (; *t->at != ']' || first; first = false) {
        struct point_set *into = meets ? &right : s;
        if (!*t->at) {
            (void)pattern_refuse(t, "a class without an end");
            goto done;
        }
        if ((t->at[0] == '-' && t->at[1] == '-') || (t->at[0] == '~' && t->at[1] == '~')) {
            (void)pattern_refuse(t, "a difference of classes");
            goto done;
        }
        if (t->at[0] == '&' && t->at[1] == '&') {
            if (first || meets) {
                (void)pattern_refuse(t, "an intersection of this kind");
                goto done;
            }
            t->at += 2;
            meets = true;
            continue;
        }
        if (take_member(t, depth, into) < 0)
            goto done;
    }
    t->at++;
    point_set_order(s);
    point_set_order(&right);
    if (t->group[t->depth].ignores_case &&
        (set_fold(t, s, inverted) < 0 || set_fold(t, &right, inverted) < 0))
        goto done;
    if ((meets && point_set_meet(s, &right) < 0) || (inverted && point_set_invert(s) < 0))
        (void)out_of_memory(t);
    else
        result = 0;
done:
    point_set_free(&right);
    return result;
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
    const unsigned char *inside = t->at + 1;
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
                else if (*inside == (t->flavour == PATTERN_RUST ? 's' : 'm'))
                    next.dot_all = on;
                else
                    return pattern_refuse(t, "a group of this kind");
            }
            if (*inside == ')' && t->count == 0 && t->depth == 0) { /* (?i) at the beginning */
                t->group[0].ignores_case = next.ignores_case;
                t->group[0].dot_all = next.dot_all;
                t->at = inside + 1;
                return 0;
            }
            if (*inside != ':')
                return pattern_refuse(t, "a group of this kind");
            inside++;
        }
    } else if (*inside == '*') {
        return pattern_refuse(t, "a group of this kind");
    }
    if (t->depth + 1 == GROUPS)
        return pattern_refuse(t, "a group this deep");
    t->at = inside;
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
        return pattern_refuse(t, "a ) without (");
    end_alternative(t);
    const struct group *g = &t->group[t->depth--];
    t->at++;
    t->atom = g->begin;
    t->repeatable = !g->looks;
    t->atom_empty = g->looks || g->may_be_empty;
    return emit(t, -1, ")");
}

/* {n}, {n,}, {n,m}, {,m} at t->at. Returns its length; 0: it is none. */
static size_t interval(const struct translation *t, long *least, long *most)
{
    const char *begin = (const char *)t->at + 1;
    char *end = (char *)begin;
    const bool has_least = is_digit((unsigned char)*begin);
    *least = has_least ? strtol(begin, &end, 10) : 0;
    *most = *least;
    if (*end == ',') {
        const char *second = end + 1;
        const bool has_most = is_digit((unsigned char)*second);
        if (!has_least && !has_most)
            return 0;
        *most = has_most ? strtol(second, &end, 10) : -1;
        end = has_most ? end : (char *)second;
    } else if (!has_least) {
        return 0;
    }
    return *end == '}' ? (size_t)(end + 1 - (const char *)t->at) : 0;
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
    const bool counted = *t->at == '{';
    const bool empty = t->atom_empty;
    if (!t->repeatable)
        return pattern_refuse(t, "a repetition of nothing or of a repetition");
    if (least > REPEATS || most > REPEATS || (most >= 0 && most < least))
        return pattern_refuse(t, "a repetition of this size");
    if (empty && most != 1)
        return pattern_refuse(t, "a repetition of an empty match");
    if (counted && most < 0)
        (void)snprintf(text, sizeof text, "{%ld,}", least); /* fits */
    else if (counted)
        (void)snprintf(text, sizeof text, "{%ld,%ld}", least, most);
    else
        (void)snprintf(text, sizeof text, "%c", *t->at);
    if (emit(t, -1, text) < 0)
        return -1;
    t->at += length;
    t->repeatable = false;
    t->atom_empty = empty || least == 0;
    t->letter_before = 0;
    if (*t->at == '?') {
        if (counted && least == most)
            return pattern_refuse(t, "a lazy repetition of a fixed size");
        t->at++;
        return emit(t, -1, "?");
    }
    if (*t->at != '+')
        return 0;
    if (counted && t->flavour == PATTERN_ONIGURUMA) { /* repeats the repetition there */
        if (t->atom_empty)
            return pattern_refuse(t, "a repetition of an empty match");
        if (wrap_atom(t) < 0)
            return -1;
    }
    t->at++;
    return emit(t, -1, "+");
}

/* ^ and $, \A, \z, \b, \B. */
static int take_anchor(struct translation *t, char anchor)
{
    const bool rust = t->flavour == PATTERN_RUST, word = anchor == 'b' || anchor == 'B';
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
    const uint32_t before = t->letter_before, letter = any_case && is_letter(point) ? point | 32 : 0;
    if (t->flavour == PATTERN_ONIGURUMA && letter && folds_together(before, letter))
        return pattern_refuse(t, "(?i) over these letters");
    if (point_set_add(&s, point, point) < 0)
        return out_of_memory(t);
    if ((any_case && set_fold(t, &s, false) < 0) || emit_set(t, &s) < 0) {
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
    t->at++;
    if (point_set_add(&s, 0, all ? POINT_LAST : '\n' - 1) < 0 ||
        (!all && point_set_add(&s, '\n' + 1, POINT_LAST) < 0)) {
        point_set_free(&s);
        return out_of_memory(t);
    }
    return emit_set(t, &s);
}

static int take_escaped(struct translation *t)
{
    struct point_set s = {0};
    uint32_t point = 0;
    if (t->at[1] && strchr("AzbB", t->at[1])) {
        t->at += 2;
        return take_anchor(t, (char)t->at[-1]);
    }
    t->at++;
    const int kind = take_escape(t, &point, &s);
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
    switch (*t->at) {
    case '(':
        return open_group(t);
    case ')':
        return close_group(t);
    case '|':
        end_alternative(t);
        t->at++;
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
        if (t->flavour == PATTERN_RUST)
            return pattern_refuse(t, "a brace");
        return take_literal(t, take_point(t));
    case '.':
        return take_dot(t);
    case '^':
    case '$':
        t->at++;
        return take_anchor(t, (char)t->at[-1]);
    case '\\':
        return take_escaped(t);
    case '[':
        if (take_class(t, 0, &s) == 0 && emit_set(t, &s) == 0)
            return 0;
        point_set_free(&s);
        return -1;
    default:
        return take_literal(t, take_point(t));
    }
}

static int compare_edges(const void *left, const void *right)
{
    const struct point_range *a = left, *b = right;
    return (a->first > b->first) - (a->first < b->first);
}

/* Fills the map: a byte for each group of code points that the sets do not tell apart. */
static int fill_map(struct translation *t, uint8_t *map, uint64_t (*signature)[WORDS], int *classes)
{
    struct point_set edges = {0};
    int failed = 0;
    for (int i = 0; i < t->sets && !failed; i++)
        for (size_t k = 0; k < t->set[i].count && !failed; k++)
            failed = point_set_add(&edges, t->set[i].range[k].first, 0) < 0 ||
                     point_set_add(&edges, t->set[i].range[k].last + 1, 0) < 0;
    if (failed || point_set_add(&edges, 0, 0) < 0 || point_set_add(&edges, POINT_LAST + 1, 0) < 0) {
        point_set_free(&edges);
        return out_of_memory(t);
    }
    qsort(edges.range, edges.count, sizeof *edges.range, compare_edges);
    *classes = 0;
    for (size_t i = 0; i + 1 < edges.count; i++) {
        const uint32_t first = edges.range[i].first, end = edges.range[i + 1].first;
        uint64_t bits[WORDS] = {0};
        int class = 0;
        if (first == end)
            continue;
        for (int k = 0; k < t->sets; k++)
            bits[k / 64] |= (uint64_t)point_set_has(&t->set[k], first) << (k % 64);
        while (class < *classes && memcmp(signature[class], bits, sizeof bits) != 0)
            class ++;
        if (class == 256) {
            point_set_free(&edges);
            return pattern_refuse(t, "an expression with so many different classes,");
        }
        if (class == *classes)
            memcpy(signature[(*classes)++], bits, sizeof bits);
        memset(map + first, class, end - first);
    }
    point_set_free(&edges);
    return 0;
}

static void write_class(struct buffer *out, uint64_t (*signature)[WORDS], int classes, int set)
{
    int have = 0;
    for (int c = 0; c < classes; c++)
        have += signature[c][set / 64] >> (set % 64) & 1;
    if (!have) {
        (void)buffer_text(out, "(?!)"); /* out remembers a failure */
        return;
    }
    (void)buffer_text(out, "[");
    for (int c = 0; c < classes; c++)
        if (signature[c][set / 64] >> (set % 64) & 1)
            (void)buffer_printf(out, "\\x%02x", (unsigned)c);
    (void)buffer_text(out, "]");
}

int pattern_translate(const char *pattern, enum pattern_flavour flavour, struct buffer *out, uint8_t *map,
                      struct muster_error *err)
{
    scope_free struct translation *t = mem_calloc(1, sizeof *t);
    scope_free uint64_t(*signature)[WORDS] = mem_calloc(256, sizeof *signature);
    int classes = 0, failed = 0;
    if (!t || !signature)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a regular expression");
    t->text = t->at = (const unsigned char *)pattern;
    t->flavour = flavour;
    t->err = err;
    t->group[0].all_empty = t->atom_empty = true;
    while (*t->at && !failed)
        failed = take_one(t);
    if (!failed && t->depth)
        failed = pattern_refuse(t, "a ( without ) before the end");
    if (!failed)
        failed = fill_map(t, map, signature, &classes);
    for (size_t i = 0; i < t->count && !failed; i++) {
        if (t->out[i].set < 0)
            (void)buffer_text(out, t->out[i].text); /* out remembers a failure */
        else
            write_class(out, signature, classes, t->out[i].set);
    }
    for (int i = 0; i < t->sets; i++)
        point_set_free(&t->set[i]);
    mem_free(t->out);
    if (!failed && buffer_append(out, "", 1) < 0)
        failed = error_set(err, MUSTER_E_NOMEM, "no memory for a regular expression");
    return failed ? -1 : 0;
}
