/* planted_bugs.c - see planted_bugs.h. */
#include "tests/simulation/planted_bugs.h"

enum planted_bug planted_bug = BUG_NONE;

const char *const planted_meanings[] = {[BUG_NONE] = "nothing",
#define BUG_MEANING(symbol, meaning) [symbol] = (meaning),
                                        PLANTED_BUGS(BUG_MEANING)
#undef BUG_MEANING
};
