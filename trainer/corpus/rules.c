/* rules.c - see rules.h. */
#include "trainer/corpus/rules.h"

const struct rule_row corpus_rules[RULE_COUNT] = {
#define RULE_ROW(id, name, bound, limit, least, largest, help) [RULE_##id] = {name, bound},
    CORPUS_RULES(RULE_ROW)
#undef RULE_ROW
};

int rules_check(const struct measures *measures, const double limits[RULE_COUNT])
{
    for (int i = 0; i < RULE_COUNT; i++) {
        const double value = measures->value[i], limit = limits[i];
        if (corpus_rules[i].bound == RULE_AT_LEAST ? value < limit : value > limit)
            return i;
    }
    return RULE_PASSED;
}
