/* planted_bugs.h - bugs planted on purpose in copies of the sources, to see that the simulator finds them.
 *
 * planted_bugs.cmake is their table; plant.cmake makes the copies, of which muster_simulation_mutated is
 * built. One bug is chosen at run time. */
#ifndef MUSTER_TESTS_SIMULATION_PLANTED_BUGS_H
#define MUSTER_TESTS_SIMULATION_PLANTED_BUGS_H

#include "planted_bugs_list.h"

enum planted_bug {
    BUG_NONE,
#define BUG_ENUM(symbol, meaning) symbol,
    PLANTED_BUGS(BUG_ENUM)
#undef BUG_ENUM
        BUG_COUNT
};

extern enum planted_bug planted_bug;         /* BUG_NONE until a test chooses one */
extern const char *const planted_meanings[]; /* the fault, by enum planted_bug */

#define PLANTED(name) (planted_bug == BUG_##name)

#endif
