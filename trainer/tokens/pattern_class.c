/* pattern_class.c - the sets of characters that an expression writes: escapes, properties and classes.
 */
#include <string.h>

#include "trainer/tokens/pattern.h"

enum {
    SURROGATES = 0xD800,
    SURROGATES_END = 0xE000,
    CLASS_DEPTH = 4, /* largest depth of nested classes */
};

int pattern_refuse(const struct pattern_text *t, const char *what)
{
    return error_set(t->err, MUSTER_E_UNSUPPORTED, "%s at byte %zu is not supported", what,
                     (size_t)(t->at - t->begin));
}

int pattern_no_memory(const struct pattern_text *t)
{
    return error_set(t->err, MUSTER_E_NOMEM, "no memory for a regular expression");
}

bool pattern_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

bool pattern_letter(uint32_t c)
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

int pattern_fold(struct pattern_text *t, struct point_set *s, bool inverted)
{
    const size_t count = s->count;
    for (size_t i = 0; i < count; i++) {
        for (uint32_t c = s->range[i].first; c <= s->range[i].last; c++) {
            if (c >= 0x80 ? !has_no_case(c) : (inverted && pattern_letter(c)))
                return pattern_refuse(t, "(?i) over characters beyond ASCII or over [^...] with letters,");
            if (!pattern_letter(c))
                continue;
            const uint32_t more = (c | 32) == 's' ? 0x17F : (c | 32) == 'k' ? 0x212A : 0;
            if (point_set_add(s, c ^ 32, c ^ 32) < 0 || (more && point_set_add(s, more, more) < 0))
                return pattern_no_memory(t);
        }
    }
    return 0;
}

uint32_t pattern_take_point(struct pattern_text *t)
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
static int take_hex(struct pattern_text *t, int digits, uint32_t *point)
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
static int add_property(struct pattern_text *t, const char *name, size_t length, struct point_set *s)
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
    return result == -2 ? pattern_refuse(t, "a \\p{...} of this name")
           : result < 0 ? pattern_no_memory(t)
                        : 0;
}

static int take_property(struct pattern_text *t, bool inverted, struct point_set *s)
{
    const char *name = (const char *)t->at + 1, *end = *t->at == '{' ? strchr(name, '}') : NULL;
    if (!end && t->flavour == PATTERN_RUST && pattern_letter(*t->at)) { /* \pL */
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
    return inverted && point_set_invert(s) < 0 ? pattern_no_memory(t) : 0;
}

int pattern_add_words(struct pattern_text *t, struct point_set *s)
{
    const unsigned words = t->flavour == PATTERN_RUST ? UNICODE_RUST_WORD : UNICODE_WORD;
    return point_set_add_classes(s, words, 0) < 0 ? pattern_no_memory(t) : 0;
}

int pattern_take_escape(struct pattern_text *t, uint32_t *point, struct point_set *s)
{
    static const char names[] = "nrtfvae", values[] = "\n\r\t\f\v\a\x1B";
    static const char classes[] = "sdwh";
    const unsigned char c = *t->at, lower = pattern_letter(c) ? (unsigned char)(c | 32) : c;
    const char *named = c ? strchr(names, c) : NULL,
               *class = c && pattern_letter(c) ? strchr(classes, lower) : NULL;
    if (!c)
        return pattern_refuse(t, "a backslash");
    if (c >= 0x80 || (!pattern_letter(c) && !pattern_digit(c))) {
        *point = pattern_take_point(t);
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
        failed = pattern_add_words(t, s);
    else
        failed =
            point_set_add(s, '0', '9') < 0 || point_set_add(s, 'a', 'f') < 0 || point_set_add(s, 'A', 'F') < 0
                ? -1
                : 0;
    if (!failed && c != lower)
        failed = point_set_invert(s);
    return failed ? pattern_no_memory(t) : 0;
}

static int take_nested(struct pattern_text *t, bool ignores_case, int depth, struct point_set *s);

/* A character, an escape or a nested class, joined to s; a range where '-' and a character follow. */
static int take_member(struct pattern_text *t, bool ignores_case, int depth, struct point_set *s)
{
    uint32_t first = 0, last = 0;
    int kind = 1;
    struct point_set member = {0};
    if (*t->at == '[') {
        kind = take_nested(t, ignores_case, depth + 1, &member);
    } else if (*t->at == '\\') {
        t->at++;
        kind = pattern_take_escape(t, &first, &member);
    } else {
        first = pattern_take_point(t);
    }
    if (kind <= 0) {
        const int failed = kind < 0 ? -1 : point_set_join(s, &member) < 0 ? pattern_no_memory(t) : 0;
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
            kind = pattern_take_escape(t, &last, &member);
            point_set_free(&member);
            if (kind <= 0)
                return kind < 0 ? -1 : pattern_refuse(t, "a range to a class");
        } else {
            last = pattern_take_point(t);
        }
    }
    if (last < first)
        return pattern_refuse(t, "a range that ends before it begins");
    return point_set_add(s, first, last) < 0 ? pattern_no_memory(t) : 0;
}

static int take_nested(struct pattern_text *t, bool ignores_case, int depth, struct point_set *s)
{
    struct point_set right = {0};
    const bool inverted = t->at[1] == '^';
    bool first = true, meets = false;
    int result = -1;
    if (depth > CLASS_DEPTH || t->at[1] == ':' || (t->at[1] == '^' && t->at[2] == ':'))
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
        if (take_member(t, ignores_case, depth, into) < 0)
            goto done;
    }
    t->at++;
    point_set_order(s);
    point_set_order(&right);
    if (ignores_case && (pattern_fold(t, s, inverted) < 0 || pattern_fold(t, &right, inverted) < 0))
        goto done;
    if ((meets && point_set_meet(s, &right) < 0) || (inverted && point_set_invert(s) < 0))
        (void)pattern_no_memory(t);
    else
        result = 0;
done:
    point_set_free(&right);
    return result;
}

int pattern_take_class(struct pattern_text *t, bool ignores_case, struct point_set *s)
{
    return take_nested(t, ignores_case, 0, s);
}
