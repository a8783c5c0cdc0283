/* world_environment.c - see world_environment.h. */
#include "runtime/world/world_environment.h"

#include <stddef.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "proto/env_names.h"

struct reader {
    const char *(*get)(void *context, const char *name);
    void *context;
    struct muster_error *err;
};

/* NULL if it is not set or empty. */
static const char *text_of(const struct reader *r, const char *name)
{
    const char *text = r->get(r->context, name);
    return text && *text ? text : NULL;
}

/* initial stays if the variable is not set. */
static int number_of(const struct reader *r, const char *name, int64_t low, int64_t high, int64_t *value)
{
    const char *text = text_of(r, name);
    if (!text)
        return 0;
    int64_t number;
    if (!text_int64(text, &number) || number < low || number > high)
        return error_set(r->err, MUSTER_E_INVALID, "%s is '%.40s', but must be a number from %lld to %lld",
                         name, text, (long long)low, (long long)high);
    *value = number;
    return 0;
}

/* How many of the four variables that make a world are set; *missing is one that is not. */
static int count_set(const struct reader *r, const char **set, const char **missing)
{
    static const char *const names[] = {ENV_RANK, ENV_WORLD_SIZE, ENV_MASTER_ADDR, ENV_MASTER_PORT};
    int count = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bool there = text_of(r, names[i]) != NULL;
        count += there;
        *(there ? set : missing) = names[i];
    }
    return count;
}

static int read_numbers(const struct reader *r, struct world_place *place)
{
    int64_t size = 1, rank = 0, port = 0, local_size, local_rank;
    if (number_of(r, ENV_WORLD_SIZE, 1, WORLD_RANKS_MAX, &size) ||
        number_of(r, ENV_RANK, 0, size - 1, &rank) || number_of(r, ENV_MASTER_PORT, 1, UINT16_MAX, &port))
        return -1;
    local_size = size;
    if (number_of(r, ENV_LOCAL_WORLD_SIZE, 1, size, &local_size))
        return -1;
    local_rank = rank % local_size;
    if (number_of(r, ENV_LOCAL_RANK, 0, local_size - 1, &local_rank) ||
        number_of(r, ENV_ROUND, 0, INT64_MAX, &place->round) ||
        number_of(r, ENV_RESTART_COUNT, 0, INT64_MAX, &place->restarts))
        return -1;
    place->size = (int)size;
    place->rank = (int)rank;
    place->local_size = (int)local_size;
    place->local_rank = (int)local_rank;
    place->master_port = (uint16_t)port;
    return 0;
}

int world_place_read(const char *(*get)(void *context, const char *name), void *context,
                     struct world_place *place, struct muster_error *err)
{
    const struct reader r = {get, context, err};
    const char *set = NULL, *missing = NULL;
    int count = count_set(&r, &set, &missing);
    struct world_place found = {.size = 1, .local_size = 1};
    if (count > 0 && missing)
        return error_set(err, MUSTER_E_INVALID,
                         "%s is set, but %s is not: a launcher such as `muster run` sets RANK, WORLD_SIZE, "
                         "MASTER_ADDR and MASTER_PORT together; unset all four to run alone",
                         set, missing);
    if (count > 0) {
        if (read_numbers(&r, &found))
            return -1;
        found.master_addr = text_of(&r, ENV_MASTER_ADDR);
        const char *agent = text_of(&r, ENV_USE_AGENT_STORE);
        found.agent_store = agent && !strcmp(agent, "True"); /* torch accepts exactly this spelling */
    }
    *place = found;
    return 0;
}
