/* text_methods.c - methods of texts: the case of letters, blanks and ends, kinds of characters, widths. */
#include "trainer/chat/text_methods.h"

#include <locale.h>
#include <string.h>
#include <wctype.h>

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
static struct jinja_value cased(const struct jinja_called *c, enum letter_case to, bool first, bool words)
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

static struct jinja_value text_upper(const struct jinja_called *c)
{
    return cased(c, CASE_UPPER, false, false);
}

static struct jinja_value text_lower(const struct jinja_called *c)
{
    return cased(c, CASE_LOWER, false, false);
}

static struct jinja_value text_swapcase(const struct jinja_called *c)
{
    return cased(c, CASE_SWAP, false, false);
}

static struct jinja_value text_capitalize(const struct jinja_called *c)
{
    return cased(c, CASE_LOWER, true, false);
}

static struct jinja_value text_title(const struct jinja_called *c)
{
    return cased(c, CASE_LOWER, false, true);
}

/* ---- blanks and ends ---- */

static struct jinja_value stripped(const struct jinja_called *c, bool left, bool right)
{
    const struct jinja_text text =
        jinja_trim(c->text, jinja_argument_text(c->run, c->arguments, 0, NULL, false), left, right);
    return jinja_string(text.data, text.length);
}

static struct jinja_value text_strip(const struct jinja_called *c)
{
    return stripped(c, true, true);
}

static struct jinja_value text_lstrip(const struct jinja_called *c)
{
    return stripped(c, true, false);
}

static struct jinja_value text_rstrip(const struct jinja_called *c)
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
static struct jinja_value ends(const struct jinja_called *c, bool at_start)
{
    const struct jinja_value *with = jinja_argument(c->arguments, 0, NULL);
    bool found = false;
    for (size_t i = 0; with && with->kind == JINJA_LIST && i < with->list->count; i++)
        found = found || (with->list->item[i].kind == JINJA_STRING &&
                          has_end(c->text, with->list->item[i].text, at_start));
    if (with && with->kind == JINJA_LIST)
        return jinja_bool(found);
    const struct jinja_text *end = jinja_argument_text(c->run, c->arguments, 0, NULL, true);
    return jinja_bool(end && has_end(c->text, *end, at_start));
}

static struct jinja_value text_startswith(const struct jinja_called *c)
{
    return ends(c, true);
}

static struct jinja_value text_endswith(const struct jinja_called *c)
{
    return ends(c, false);
}

static struct jinja_value without_end(const struct jinja_called *c, bool at_start)
{
    const struct jinja_text *end = jinja_argument_text(c->run, c->arguments, 0, NULL, true);
    const size_t cut = end && has_end(c->text, *end, at_start) ? end->length : 0;
    return jinja_string(c->text.data + (at_start ? cut : 0), c->text.length - cut);
}

static struct jinja_value text_removeprefix(const struct jinja_called *c)
{
    return without_end(c, true);
}

static struct jinja_value text_removesuffix(const struct jinja_called *c)
{
    return without_end(c, false);
}

/* ---- tests of a text, by ASCII ---- */

static struct jinja_value all_are(const struct jinja_called *c, bool (*is)(char c))
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

static struct jinja_value text_isdigit(const struct jinja_called *c)
{
    return all_are(c, ascii_digit);
}

static struct jinja_value text_isalpha(const struct jinja_called *c)
{
    return all_are(c, ascii_letter);
}

static struct jinja_value text_isalnum(const struct jinja_called *c)
{
    return all_are(c, ascii_both);
}

static struct jinja_value text_isspace(const struct jinja_called *c)
{
    return all_are(c, ascii_space);
}

static struct jinja_value text_islower(const struct jinja_called *c)
{
    return jinja_bool(jinja_has_case(c->text, false));
}

static struct jinja_value text_isupper(const struct jinja_called *c)
{
    return jinja_bool(jinja_has_case(c->text, true));
}

/* Filled with characters to a width: so many in front, the others after it. */
static struct jinja_value filled(const struct jinja_called *c, int front)
{
    const int64_t width = jinja_argument_int(c->run, c->arguments, 0, NULL, 0);
    const struct jinja_text *by = jinja_argument_text(c->run, c->arguments, 1, NULL, false);
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

static struct jinja_value text_ljust(const struct jinja_called *c)
{
    return filled(c, 0);
}

static struct jinja_value text_center(const struct jinja_called *c)
{
    return filled(c, 1);
}

static struct jinja_value text_rjust(const struct jinja_called *c)
{
    return filled(c, 2);
}

static struct jinja_value text_other(const struct jinja_called *c)
{
    return jinja_fail(c->run, "this method of a text is not supported in a chat template");
}

const struct jinja_text_method jinja_form_methods[] = {{"strip", text_strip},
                                                       {"lstrip", text_lstrip},
                                                       {"rstrip", text_rstrip},
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
                                                       {"expandtabs", text_other},
                                                       {NULL, NULL}};
