/* schedule_text.c - schedules as lines of words, for people and files. See schedule.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "tests/simulation/schedule.h"

static const struct {
    const char *word, *unit, *meaning;
} step_words[] = {
#define STEP_WORD(symbol, word, unit, meaning) [symbol] = {word, unit, meaning},
    STEPS(STEP_WORD)
#undef STEP_WORD
};

const char *step_word(enum step_kind kind)
{
    return (unsigned)kind < STEP_COUNT ? step_words[kind].word : "?";
}

const char *step_unit(enum step_kind kind)
{
    return (unsigned)kind < STEP_COUNT ? step_words[kind].unit : "";
}

/* -- the table of settings: word, member, nanoseconds in a unit (1: a plain number)
 * ----------------------------------------------- */

#define NUMBERS(X)                                                                                           \
    X("seed", options.seed, 1)                                                                               \
    X("nodes", options.nodes, 1)                                                                             \
    X("min-nodes", options.min_nodes, 1)                                                                     \
    X("max-nodes", options.max_nodes, 1)                                                                     \
    X("max-restarts", options.max_restarts, 1)                                                               \
    X("last-call-ms", options.last_call_ns, NS_PER_MS)                                                       \
    X("regroup-ms", options.regroup_ns, NS_PER_MS)                                                           \
    X("backoff-ms", options.backoff_ns, NS_PER_MS)                                                           \
    X("join-timeout-ms", options.join_timeout_ns, NS_PER_MS)                                                 \
    X("delay-min-us", options.delay_min_ns, NS_PER_US)                                                       \
    X("delay-max-us", options.delay_max_ns, NS_PER_US)                                                       \
    X("duplicate-percent", options.duplicate_percent, 1)                                                     \
    X("drop-percent", options.drop_percent, 1)                                                               \
    X("loss-percent", options.loss_percent, 1)                                                               \
    X("stale-percent", options.stale_percent, 1)                                                             \
    X("start-ms", options.start_ns, NS_PER_MS)                                                               \
    X("stop-ms", options.stop_ns, NS_PER_MS)                                                                 \
    X("grace-ms", options.grace_ns, NS_PER_MS)                                                               \
    X("until-ms", until_ms, 1)

static void write_nodes(const struct cluster_options *options, struct buffer *out)
{
    for (int i = 0; i < CLUSTER_NODE_LIMIT; i++)
        if (options->local_world_size[i] > 1 || options->role[i] || options->clock_offset_ns[i] ||
            options->clock_drift_ppm[i] || options->listens[i])
            buffer_printf(
                out, "node %d nproc %d role %d listens %d clock-offset-ms %" PRId64 " clock-drift-ppm %d\n",
                i, options->local_world_size[i] ? options->local_world_size[i] : 1, options->role[i],
                (int)options->listens[i], options->clock_offset_ns[i] / NS_PER_MS,
                options->clock_drift_ppm[i]);
}

static void write_endpoint(const struct cluster_options *options, struct buffer *out)
{
    if (options->votes)
        buffer_printf(out, "votes\n");
    if (options->own_name)
        buffer_printf(out, "own-name\n");
    for (int i = 0; i < CLUSTER_NODE_LIMIT; i++)
        if (options->beside[i])
            buffer_printf(out, "beside %d\n", i);
}

/* Its value may be left out. */
static bool is_claim(enum step_kind kind)
{
    return kind == STEP_START || kind == STEP_FOREIGN;
}

void schedule_write(const struct schedule *schedule, struct buffer *out)
{
    buffer_printf(out, "mode %s\n", schedule->options.elastic ? "elastic" : "static");
#define WRITE_NUMBER(word, member, unit)                                                                     \
    if (schedule->member)                                                                                    \
        buffer_printf(out, "%s %" PRIu64 "\n", word, (uint64_t)schedule->member / (uint64_t)(unit));
    NUMBERS(WRITE_NUMBER)
#undef WRITE_NUMBER
    write_nodes(&schedule->options, out);
    write_endpoint(&schedule->options, out);
    for (int i = 0; i < schedule->count; i++) {
        const struct schedule_step *step = &schedule->steps[i];
        const char *unit = step_unit(step->kind);
        buffer_printf(out, "at %" PRId64 " ms node %d %s", step->at_ms, step->node, step_word(step->kind));
        if (*unit && !(is_claim(step->kind) && step->value < 0))
            buffer_printf(out, " %s %" PRId64, unit, step->value);
        if (step->in)
            buffer_printf(out, " in %s", roster_job_state_name((enum roster_job_state)(step->in - 1)));
        buffer_printf(out, "\n");
    }
}

/* -- reading
 * ----------------------------------------------------------------------------------------------------- */

static bool read_number(struct schedule *schedule, const char *word, int64_t value)
{
#define READ_NUMBER(name, member, unit)                                                                      \
    if (strcmp(word, name) == 0) {                                                                           \
        schedule->member = (__typeof__(schedule->member))(value * (unit));                                   \
        return true;                                                                                         \
    }
    NUMBERS(READ_NUMBER)
#undef READ_NUMBER
    return false;
}

static bool is_node(int node)
{
    return node >= 0 && node < CLUSTER_NODE_LIMIT;
}

static bool read_node(struct schedule *schedule, const char *line)
{
    struct cluster_options *options = &schedule->options;
    int node, size, role, listens, drift;
    int64_t offset;
    if (sscanf(line, "node %d nproc %d role %d listens %d clock-offset-ms %" SCNd64 " clock-drift-ppm %d",
               &node, &size, &role, &listens, &offset, &drift) != 6 ||
        !is_node(node) || size < 1 || role < 0 || role >= CLUSTER_ROLES)
        return false;
    options->local_world_size[node] = size;
    options->role[node] = role;
    options->listens[node] = listens != 0;
    options->clock_offset_ns[node] = offset * NS_PER_MS;
    options->clock_drift_ppm[node] = drift;
    return true;
}

/* Another node on node 0's host. */
static bool read_beside(struct schedule *schedule, const char *line)
{
    int node;
    if (sscanf(line, "beside %d", &node) != 1 || !is_node(node) || node == 0)
        return false;
    return schedule->options.beside[node] = true;
}

/* The end of a step's line: "" or "in STATE". */
static bool read_phase(const char *text, int *in)
{
    if (!*text)
        return true;
    if (strncmp(text, "in ", 3) != 0)
        return false;
    for (int state = 0; state < JOB_STATE_COUNT; state++)
        if (strcmp(text + 3, roster_job_state_name((enum roster_job_state)state)) == 0) {
            *in = 1 + state;
            return true;
        }
    return false;
}

static bool read_step(struct schedule *schedule, const char *line)
{
    struct schedule_step step = {.value = 0};
    char word[16], *after;
    int used = 0;
    if (sscanf(line, "at %" SCNd64 " ms node %d %15s%n", &step.at_ms, &step.node, word, &used) != 3 ||
        !is_node(step.node) || schedule->count == SCHEDULE_STEPS_LIMIT)
        return false;
    while (step.kind < STEP_COUNT && strcmp(step_word(step.kind), word) != 0)
        step.kind++;
    if (step.kind == STEP_COUNT)
        return false;
    const char *unit = step_unit(step.kind), *rest = line + used + strspn(line + used, " ");
    size_t length = strlen(unit);
    if (is_claim(step.kind))
        step.value = -1;
    if (length && strncmp(rest, unit, length) == 0 && rest[length] == ' ') {
        step.value = strtoll(rest + length + 1, &after, 10);
        rest = after + strspn(after, " ");
    } else if (length && !is_claim(step.kind)) {
        return false;
    }
    if (!read_phase(rest, &step.in))
        return false;
    if (step.kind == STEP_TWIN && !is_node((int)step.value))
        return false;
    schedule->steps[schedule->count++] = step;
    return true;
}

static bool read_line(struct schedule *schedule, const char *line)
{
    char word[24];
    int64_t value;
    if (!*line || *line == '#')
        return true;
    if (strncmp(line, "at ", 3) == 0)
        return read_step(schedule, line);
    if (strncmp(line, "node ", 5) == 0)
        return read_node(schedule, line);
    if (strcmp(line, "mode elastic") == 0 || strcmp(line, "mode static") == 0) {
        schedule->options.elastic = line[5] == 'e';
        return true;
    }
    if (sscanf(line, "seed %" SCNu64, &schedule->options.seed) == 1)
        return true;
    if (strncmp(line, "beside ", 7) == 0)
        return read_beside(schedule, line);
    if (strcmp(line, "votes") == 0)
        return schedule->options.votes = true;
    if (strcmp(line, "own-name") == 0)
        return schedule->options.own_name = true;
    return sscanf(line, "%23s %" SCNd64, word, &value) == 2 && value >= 0 &&
           read_number(schedule, word, value);
}

int schedule_read(const char *text, struct schedule *out, struct muster_error *err)
{
    char line[256];
    *out = (struct schedule){0};
    for (int number = 1; *text; number++) {
        size_t length = strcspn(text, "\n");
        (void)snprintf(line, sizeof line, "%.*s", (int)(length < 255 ? length : 255), text);
        if (!read_line(out, line))
            return error_set(err, MUSTER_E_INVALID, "line %d is not one of a schedule: \"%.100s\"", number,
                             line);
        text += length + (text[length] == '\n');
    }
    int most = out->options.elastic ? out->options.max_nodes : out->options.nodes;
    if (most < 1 || most > CLUSTER_NODE_LIMIT || out->options.nodes > CLUSTER_NODE_LIMIT ||
        (out->options.elastic && (out->options.min_nodes < 1 || out->options.min_nodes > most)))
        return error_set(err, MUSTER_E_INVALID, "a schedule needs 1 to %d nodes", CLUSTER_NODE_LIMIT);
    return 0;
}

int schedule_load(const char *path, struct schedule *out, struct muster_error *err)
{
    enum { LIMIT = 1 << 20 };
    scope_buffer text = {0};
    if (io_read_file(path, LIMIT, &text, err))
        return -1;
    return schedule_read(text.data ? text.data : "", out, err) < 0 ? error_wrap(err, "%s", path) : 0;
}
