/* world_environment.c - see world_environment.h. */
#include "proto/world/world_environment.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "proto/env_names.h"
#include "proto/world/world_alone.h"
#include "proto/world/world_launchers.h"
#include "proto/world/world_variables.h"

const char *world_text(const struct world_variables *v, const char *name)
{
    const char *text = v->get(v->context, name);
    return text && *text ? text : NULL;
}

int world_number(const struct world_variables *v, const char *name, int64_t low, int64_t high, int64_t *value)
{
    const char *text = world_text(v, name);
    if (!text)
        return 0;
    int64_t number;
    if (!text_int64(text, &number) || number < low || number > high)
        return error_set(v->err, MUSTER_E_INVALID, "%s is '%.40s', but must be a number from %lld to %lld",
                         name, text, (long long)low, (long long)high);
    *value = number;
    return 0;
}

int world_place_host(struct world_place *place, const char *host, struct muster_error *err)
{
    const size_t length = strlen(host);
    const bool brackets = length > 2 && host[0] == '[' && host[length - 1] == ']'; /* IPv6 as in URLs */
    if (snprintf(place->master_addr, sizeof place->master_addr, "%.*s", (int)(length - 2 * brackets),
                 host + brackets) < (int)sizeof place->master_addr)
        return 0;
    return error_set(err, MUSTER_E_LIMIT, "%s '%.100s...' is longer than %d bytes", ENV_MASTER_ADDR, host,
                     WORLD_HOST - 1);
}

/* How many of the four variables that make a world are set; *missing is an unset one. */
static int count_set(const struct world_variables *v, const char **set, const char **missing)
{
    static const char *const names[] = {ENV_RANK, ENV_WORLD_SIZE, ENV_MASTER_ADDR, ENV_MASTER_PORT};
    int count = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bool there = world_text(v, names[i]) != NULL;
        count += there;
        *(there ? set : missing) = names[i];
    }
    return count;
}

/* "MIN:MAX" or a number. Torchrun's variable is there where it replaces the flag, and is torchrun's to check.
 */
static int read_nodes(const struct world_variables *v, struct world_place *place)
{
    const char *own = world_text(v, ENV_NNODES), *text = own ? own : world_text(v, "PET_NNODES");
    const char *colon = text ? strchr(text, ':') : NULL;
    char first[24];
    int64_t least = 0, most = 0;
    (void)snprintf(first, sizeof first, "%.*s", colon ? (int)(colon - text) : 0, text ? text : "");
    const bool range = colon && text_int64(first, &least) && text_int64(colon + 1, &most) && least <= most;
    if (own && !range)
        return error_set(v->err, MUSTER_E_INVALID, "%s is '%.40s', but must be MIN:MAX", ENV_NNODES, own);
    place->elastic = range && least < most;
    return 0;
}

static int read_attempt(const struct world_variables *v, struct world_place *place)
{
    return read_nodes(v, place) || world_number(v, ENV_ROUND, 0, INT64_MAX, &place->round) ||
                   world_number(v, ENV_RESTART_COUNT, 0, INT64_MAX, &place->restarts)
               ? -1
               : 0;
}

static int read_numbers(const struct world_variables *v, struct world_place *place)
{
    int64_t size = 1, rank = 0, port = 0, local_size, local_rank;
    if (world_number(v, ENV_WORLD_SIZE, 1, WORLD_RANKS_MAX, &size) ||
        world_number(v, ENV_RANK, 0, size - 1, &rank) ||
        world_number(v, ENV_MASTER_PORT, 1, UINT16_MAX, &port))
        return -1;
    local_size = size;
    if (world_number(v, ENV_LOCAL_WORLD_SIZE, 1, size, &local_size))
        return -1;
    local_rank = rank % local_size;
    if (world_number(v, ENV_LOCAL_RANK, 0, local_size - 1, &local_rank) || read_attempt(v, place))
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
    const struct world_variables variables = {get, context, err}, *v = &variables;
    const char *set = NULL, *missing = NULL;
    int count = count_set(v, &set, &missing);
    struct world_place found = {.size = 1, .local_size = 1};
    if (!world_text(v, ENV_RANK) && !world_text(v, ENV_WORLD_SIZE)) {
        int other = world_launcher_read(v, &found);
        if (other < 0 || (other && read_attempt(v, &found)))
            return -1;
        if (!other && world_alone_refuse(v, false))
            return -1;
        if (other || !count) {
            *place = found;
            return 0;
        }
    }
    if (missing)
        return error_set(err, MUSTER_E_INVALID,
                         "%s is set, but %s is not: a launcher such as `muster run` sets RANK, WORLD_SIZE, "
                         "MASTER_ADDR and MASTER_PORT together; unset all four to run alone",
                         set, missing);
    if (world_alone_refuse(v, true) || read_numbers(v, &found) ||
        world_place_host(&found, world_text(v, ENV_MASTER_ADDR), err))
        return -1;
    const char *agent = world_text(v, ENV_USE_AGENT_STORE);
    found.agent_store = agent && !strcmp(agent, "True"); /* torch accepts exactly this spelling */
    *place = found;
    return 0;
}
