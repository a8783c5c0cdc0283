/* walk.h - random walks through a pure module: numbers drawn from a seed, and all results in one
 * number.
 *
 * A test walks far through the inputs of a module, odd and wrong inputs included, and keeps one line a seed
 * in a golden file (golden.h). The module's other tests check correct results; a walk shows that nothing else
 * changed unseen. */
#ifndef MUSTER_TESTS_WALK_H
#define MUSTER_TESTS_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The next number of a seed, which *state is at first: splitmix64 (Steele, Lea, Flood 2014). */
static inline uint64_t test_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

struct walk {
    uint64_t random, digest;
};

struct walk walk_begin(uint64_t seed);
/* A number from 0 up to limit, which is above 0. */
int64_t walk_below(struct walk *walk, int64_t limit);
bool walk_one_in(struct walk *walk, int64_t chance);
#define walk_pick(walk, list) ((list)[walk_below(walk, (int64_t)(sizeof(list) / sizeof *(list)))])

void walk_saw(struct walk *walk, const void *data, size_t size);
void walk_saw_number(struct walk *walk, int64_t number);
/* text NULL: another thing than "". */
void walk_saw_text(struct walk *walk, const char *text);

#endif
