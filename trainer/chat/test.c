/* test.c - the tests of templates: VALUE is NAME(arguments). */
#include <string.h>

#include "trainer/chat/jinja_internal.h"

static bool is_number(struct jinja_value value)
{
    return value.kind == JINJA_INT || value.kind == JINJA_FLOAT || value.kind == JINJA_BOOL;
}

static bool is_iterable(struct jinja_value value)
{
    return value.kind == JINJA_STRING || value.kind == JINJA_LIST || value.kind == JINJA_DICT ||
           value.kind == JINJA_UNDEFINED;
}

static bool is_callable(struct jinja_value value)
{
    return value.kind == JINJA_MACRO || value.kind == JINJA_METHOD || value.kind == JINJA_FUNCTION;
}

static bool is_divisible(struct jinja_run *run, struct jinja_value of, int64_t by)
{
    if ((of.kind != JINJA_INT && of.kind != JINJA_BOOL) || by == 0 || by == -1)
        (void)jinja_fail(run, "a test of division needs whole numbers");
    return !run->failed && (of.kind == JINJA_INT ? of.number : of.truth) % by == 0;
}

/* Tests without an argument, by the value alone; -1: there is no such test. */
static int plain_test(struct jinja_text name, struct jinja_value of)
{
    const struct {
        const char *name;
        bool holds;
    } tests[] = {{"defined", of.kind != JINJA_UNDEFINED},
                 {"undefined", of.kind == JINJA_UNDEFINED},
                 {"none", of.kind == JINJA_NONE},
                 {"boolean", of.kind == JINJA_BOOL},
                 {"true", of.kind == JINJA_BOOL && of.truth},
                 {"false", of.kind == JINJA_BOOL && !of.truth},
                 {"integer", of.kind == JINJA_INT},
                 {"float", of.kind == JINJA_FLOAT},
                 {"number", is_number(of)},
                 {"string", of.kind == JINJA_STRING},
                 {"mapping", of.kind == JINJA_DICT},
                 {"sequence", is_iterable(of)},
                 {"iterable", is_iterable(of)},
                 {"callable", is_callable(of)},
                 {"lower", of.kind == JINJA_STRING && jinja_has_case(of.text, false)},
                 {"upper", of.kind == JINJA_STRING && jinja_has_case(of.text, true)},
                 {"escaped", false}};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (jinja_text_is(name, tests[i].name))
            return tests[i].holds;
    return -1;
}

/* Names of comparisons, and their operators. */
static const struct {
    const char *name, *sign;
} comparisons[] = {{"eq", "=="}, {"equalto", "=="}, {"ne", "!="},         {"lt", "<"}, {"lessthan", "<"},
                   {"le", "<="}, {"gt", ">"},       {"greaterthan", ">"}, {"ge", ">="}};

static bool compares(struct jinja_run *run, const char *sign, struct jinja_value a, struct jinja_value b)
{
    if (!strcmp(sign, "==") || !strcmp(sign, "!="))
        return jinja_equal(a, b) == (sign[0] == '=');
    const int order = jinja_compare(run, a, b);
    return sign[0] == '<' ? order < 0 || (sign[1] && !order) : order > 0 || (sign[1] && !order);
}

/* The same object, as Python's `is`. */
static bool is_same(struct jinja_value a, struct jinja_value b)
{
    return a.kind == b.kind && (a.kind == JINJA_LIST   ? a.list == b.list
                                : a.kind == JINJA_DICT ? a.dict == b.dict
                                                       : jinja_equal(a, b));
}

bool jinja_test(struct jinja_run *run, struct jinja_text name, struct jinja_value of,
                const struct jinja_arguments *arguments)
{
    const int plain = plain_test(name, of);
    const struct jinja_value *with = jinja_argument(arguments, 0, NULL);
    if (plain >= 0)
        return plain;
    if (jinja_text_is(name, "odd") || jinja_text_is(name, "even"))
        return is_divisible(run, of, 2) == jinja_text_is(name, "even");
    if (jinja_text_is(name, "divisibleby"))
        return is_divisible(run, of, jinja_argument_int(run, arguments, 0, NULL, 0));
    if (with && jinja_text_is(name, "in"))
        return jinja_contains(run, *with, of);
    if (with && jinja_text_is(name, "sameas"))
        return is_same(of, *with);
    for (size_t i = 0; with && i < sizeof comparisons / sizeof *comparisons; i++)
        if (jinja_text_is(name, comparisons[i].name))
            return compares(run, comparisons[i].sign, of, *with);
    (void)jinja_fail(run, "the test '%.*s' is not supported in a chat template%s",
                     (int)(name.length < 40 ? name.length : 40), name.data,
                     with ? "" : ", or lacks its argument");
    return false;
}
