/* slurm.c - see slurm.h. A list is read in place, nothing is expanded: the host of an index is computed,
 * as a number of mixed radix whose digits are the brackets. */
#include "proto/slurm.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"

enum { NUMBER_DIGITS = 18 };

/* "01-04": both ends, and the digits that numbers are padded to. */
struct range {
    int64_t first, last;
    int width;
};

static int bad(const char *list, struct muster_error *err)
{
    return error_set(err, MUSTER_E_INVALID, "'%.200s' is not a list of hosts as Slurm writes it", list);
}

static bool read_number(const char **at, int64_t *out, int *width)
{
    int digits = 0;
    *out = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++, digits++) {
        if (digits >= NUMBER_DIGITS)
            return false;
        *out = *out * 10 + (**at - '0');
    }
    *width = digits;
    return digits > 0;
}

static bool read_range(const char **at, struct range *range)
{
    int width;
    if (!read_number(at, &range->first, &range->width))
        return false;
    range->last = range->first;
    if (**at != '-')
        return true;
    (*at)++;
    return read_number(at, &range->last, &width) && range->last >= range->first;
}

/* The numbers of a bracket whose text begins after '[': how many, and (number not NULL) the number of this
 * index as text. *at ends after ']'. 0 if it is malformed. */
static int64_t read_bracket(const char **at, int64_t index, char number[NUMBER_DIGITS + 2])
{
    int64_t count = 0;
    for (;;) {
        struct range range;
        if (!read_range(at, &range))
            return 0;
        int64_t members = range.last - range.first + 1;
        if (number && index >= count && index - count < members)
            (void)snprintf(number, NUMBER_DIGITS + 2, "%0*lld", range.width,
                           (long long)(range.first + index - count)); /* 18 digits at most */
        count += members;
        if (members > SLURM_HOSTS_LIMIT || count > SLURM_HOSTS_LIMIT)
            return 0;
        if (**at == ']') {
            (*at)++;
            return count;
        }
        if (*(*at)++ != ',')
            return 0;
    }
}

static int64_t count_bracket(const char **at)
{
    return read_bracket(at, 0, NULL);
}

/* The hosts of one entry, up to a comma outside of brackets; *at ends there. 0 if it is malformed. */
static int64_t count_entry(const char **at)
{
    int64_t hosts = 1;
    const char *start = *at;
    while (**at && **at != ',') {
        if (**at == ']')
            return 0;
        if (*(*at)++ != '[')
            continue;
        int64_t members = count_bracket(at);
        if (!members || hosts > SLURM_HOSTS_LIMIT / members)
            return 0;
        hosts *= members;
    }
    return *at == start ? 0 : hosts;
}

/* The host of this index of an entry that count_entry has found to be well-formed with so many hosts. */
static int write_entry(const char *at, int64_t hosts, int64_t index, char *out, size_t size)
{
    size_t used = 0;
    while (*at && *at != ',') {
        char piece[NUMBER_DIGITS + 2] = {*at, 0};
        if (*at++ == '[') {
            const char *again = at;
            hosts /= count_bracket(&again); /* combinations of the brackets after this one */
            (void)read_bracket(&at, index / hosts, piece);
            index %= hosts;
        }
        size_t length = strlen(piece);
        if (used + length >= size)
            return -1;
        memcpy(out + used, piece, length);
        used += length;
    }
    out[used] = 0;
    return 0;
}

int64_t slurm_host_count(const char *list, struct muster_error *err)
{
    int64_t all = 0;
    for (const char *at = list;; at++) {
        int64_t hosts = count_entry(&at);
        if (!hosts || (all += hosts) > SLURM_HOSTS_LIMIT)
            return bad(list, err);
        if (!*at)
            return all;
    }
}

int slurm_host_at(const char *list, int64_t index, char *out, size_t size, struct muster_error *err)
{
    int64_t left = index;
    for (const char *at = list;; at++) {
        const char *entry = at;
        int64_t hosts = count_entry(&at);
        if (!hosts)
            return bad(list, err);
        if (left >= 0 && left < hosts) {
            if (write_entry(entry, hosts, left, out, size) < 0)
                return error_set(err, MUSTER_E_LIMIT, "a host name in '%.200s' is longer than %zu bytes",
                                 list, size - 1);
            return 0;
        }
        left -= hosts;
        if (!*at)
            return error_set(err, MUSTER_E_NOT_FOUND, "'%.200s' names no host of index %lld", list,
                             (long long)index);
    }
}

/* "4(x2)" or "4": tasks of each of how many nodes; *at ends after it. */
static bool read_tasks(const char **at, int64_t *tasks, int64_t *nodes)
{
    int width;
    *nodes = 1;
    if (!read_number(at, tasks, &width) || *tasks < 1)
        return false;
    if (strncmp(*at, "(x", 2) != 0)
        return true;
    *at += 2;
    return read_number(at, nodes, &width) && *nodes > 0 && *(*at)++ == ')';
}

int64_t slurm_tasks_at(const char *list, int64_t index, struct muster_error *err)
{
    int64_t tasks, nodes, left = index;
    for (const char *at = list; read_tasks(&at, &tasks, &nodes) && (*at == ',' || !*at); at++) {
        if (left >= 0 && left < nodes)
            return tasks;
        left -= nodes;
        if (!*at)
            return error_set(err, MUSTER_E_NOT_FOUND, "'%.200s' has no tasks for a node of index %lld", list,
                             (long long)index);
    }
    return error_set(err, MUSTER_E_INVALID, "'%.200s' is not a list of tasks as Slurm writes it", list);
}
