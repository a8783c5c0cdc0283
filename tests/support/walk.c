/* walk.c - see walk.h. */
#include "tests/support/walk.h"

#include <string.h>

#include "proto/base/text.h"

/* A walk begins at a mixed number: at a multiple of the step each would be the one before, a number later. */
struct walk walk_begin(uint64_t seed)
{
    struct walk walk = {seed, TEXT_HASH_START};
    walk.random = test_random(&walk.random);
    return walk;
}

int64_t walk_below(struct walk *walk, int64_t limit)
{
    return (int64_t)(test_random(&walk->random) % (uint64_t)limit);
}

bool walk_one_in(struct walk *walk, int64_t chance)
{
    return walk_below(walk, chance) == 0;
}

void walk_saw(struct walk *walk, const void *data, size_t size)
{
    walk->digest = text_hash(walk->digest, data, size);
}

void walk_saw_number(struct walk *walk, int64_t number)
{
    walk_saw(walk, &number, sizeof number);
}

void walk_saw_text(struct walk *walk, const char *text)
{
    walk_saw_number(walk, text != NULL);
    if (text)
        walk_saw(walk, text, strlen(text) + 1);
}
