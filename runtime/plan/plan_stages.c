/* plan_stages.c - see plan_stages.h. Every stream of every stage is a queue. An operation begins when it
 * heads its queue and its waits are finished. An operation that several stages share begins when it heads its
 * queue on all of them. With options.grouped a collective or transfer also waits for those before it in the
 * array, and a group of transfers begins as one operation: it ends when the groups of all its peers have
 * begun. */
#include "runtime/plan/plan_stages.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

int plan_stages_build(const struct model *model, const struct plan_options *options,
                      struct plan_stages *stages, struct muster_error *err)
{
    struct plan_options mine = *options;
    const int count = options->mesh.side[SIDE_PIPELINE];
    *stages = (struct plan_stages){.plans = mem_calloc((size_t)count, sizeof *stages->plans)};
    if (!stages->plans)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the plans of %d stages", count);
    for (; stages->count < count; stages->count++) {
        mine.rank = mesh_line_rank(options->mesh, AXIS_PIPELINE, 0, stages->count);
        if (plan_build(model, &mine, &stages->plans[stages->count], err) < 0) {
            plan_stages_free(stages);
            return -1;
        }
    }
    return 0;
}

void plan_stages_free(struct plan_stages *stages)
{
    for (int s = 0; s < stages->count; s++)
        plan_free(&stages->plans[s]);
    mem_free(stages->plans);
    *stages = (struct plan_stages){0};
}

/* ---- a run ---- */

struct stage_run {
    const struct plan *plan;
    int head[STREAM_COUNT]; /* next operation of each queue; op_count: none */
    double at[STREAM_COUNT], busy, comm;
    double *seconds, *end; /* [op_count] */
    bool *done;            /* [op_count] */
    bool grouped, began;   /* the group at the head of STREAM_TRANSFERS has begun, */
    double begun;          /* at this time */
    int comms;             /* next collective or transfer, by the array */
};

struct stages_run {
    const struct model *model;
    int count;
    struct stage_run stage[PLAN_STAGES];
    struct muster_error *err;
};

static int next_of(const struct plan *plan, int stream, int from)
{
    while (from < plan->op_count && (int)plan->ops[from].stream != stream)
        from++;
    return from;
}

static int next_comm(const struct plan *plan, int from)
{
    while (from < plan->op_count && plan->ops[from].kind != OP_COMM)
        from++;
    return from;
}

/* The operation after a group of transfers. */
static int group_end(const struct plan *plan, int first)
{
    int end = first + 1;
    while (end < plan->op_count && plan->ops[end].joins)
        end++;
    return end;
}

static bool waits_are_over(const struct stage_run *s, int index, double *start)
{
    const struct schedule_op *op = &s->plan->ops[index];
    for (int i = 0; i < op->wait_count; i++) {
        const int wait = op->wait[i];
        if (wait > index) /* an operation of the step before: finished */
            continue;
        if (!s->done[wait])
            return false;
        *start = s->end[wait] > *start ? s->end[wait] : *start;
    }
    return true;
}

/* The operation at the head of a queue, and when it may begin; NULL: it may not yet. */
static const struct schedule_op *head_ready(const struct stage_run *s, int stream, double *start)
{
    const int head = s->head[stream];
    if (head == s->plan->op_count)
        return NULL;
    const struct schedule_op *op = &s->plan->ops[head];
    if (s->grouped && op->kind == OP_COMM && s->comms != head)
        return NULL;
    *start = s->at[stream];
    for (int i = head; i < group_end(s->plan, head); i++)
        if (!waits_are_over(s, i, start))
            return NULL;
    return op;
}

static void finish_head(struct stage_run *s, int stream, double start, double seconds)
{
    const int head = s->head[stream];
    *(stream == STREAM_COMPUTE ? &s->busy : &s->comm) += seconds;
    s->done[head] = true;
    s->end[head] = s->at[stream] = start + seconds;
    s->head[stream] = next_of(s->plan, stream, head + 1);
    s->comms = s->comms == head ? next_comm(s->plan, head + 1) : s->comms;
}

static bool crosses(const struct schedule_op *op)
{
    return op->kind == OP_COMM &&
           (op->axis == AXIS_PIPELINE || op->axis == AXIS_TIED || op->axis == AXIS_WORLD);
}

static bool is_transfer(const struct schedule_op *op)
{
    return op->kind == OP_COMM && (op->comm.kind == COMM_SEND || op->comm.kind == COMM_RECV);
}

static const char *name_op(const struct model *model, const struct plan *plan, const struct schedule_op *op,
                           char *text, size_t size)
{
    const bool layer = op->kind == OP_FORWARD || op->kind == OP_BACKWARD || is_transfer(op);
    const int used = snprintf(text, size, "%s %s",
                              op->kind == OP_COMM ? comm_kind_name(op->comm.kind) : op_kind_name(op->kind),
                              layer            ? model->layers[op->layer].name
                              : op->group >= 0 ? plan->groups[op->group].name
                                               : stream_name(op->stream));
    if (used > 0 && (size_t)used < size && op->micro >= 0)
        (void)snprintf(text + used, size - (size_t)used, " of micro-batch %d", op->micro);
    return text;
}

static int differ(const struct stages_run *run, int left, const struct schedule_op *a, int right,
                  const struct schedule_op *b)
{
    char one[128], other[128];
    return error_set(
        run->err, MUSTER_E_STATE,
        "the plan of stage %d has %s (%lld elements) where that of stage %d has %s (%lld elements)", left,
        name_op(run->model, run->stage[left].plan, a, one, sizeof one), (long long)a->comm.count, right,
        name_op(run->model, run->stage[right].plan, b, other, sizeof other), (long long)b->comm.count);
}

static bool is_same_transfer(const struct schedule_op *op, const struct schedule_op *theirs)
{
    return theirs->comm.kind != op->comm.kind && theirs->comm.count == op->comm.count &&
           theirs->comm.dtype == op->comm.dtype && theirs->layer == op->layer && theirs->micro == op->micro &&
           theirs->back == op->back;
}

/* 1: done at both ends; 0: the other end is not there yet; -1: the ends differ. */
static int try_transfer(struct stages_run *run, int stage, const struct schedule_op *op, double start)
{
    const int peer = op->comm.root;
    double theirs_at;
    if (op->axis != AXIS_PIPELINE || peer < 0 || peer >= run->count || peer == stage)
        return error_set(run->err, MUSTER_E_STATE, "the plan of stage %d has a transfer with stage %d of %d",
                         stage, peer, run->count);
    const struct schedule_op *theirs = head_ready(&run->stage[peer], (int)op->stream, &theirs_at);
    if (!theirs || !is_transfer(theirs) || theirs->comm.root != stage)
        return 0;
    if (!is_same_transfer(op, theirs))
        return differ(run, stage, op, peer, theirs);
    const double begin = start > theirs_at ? start : theirs_at,
                 seconds = run->stage[stage].seconds[op - run->stage[stage].plan->ops];
    finish_head(&run->stage[stage], (int)op->stream, begin, seconds);
    finish_head(&run->stage[peer], (int)op->stream, begin, seconds);
    return 1;
}

/* The first transfer of a group with a peer, of a kind, that is not done; -1: there is none. */
static int open_transfer(const struct stage_run *s, enum comm_kind kind, int peer)
{
    const int first = s->head[STREAM_TRANSFERS], last = group_end(s->plan, first);
    for (int i = first; s->began && i < last; i++)
        if (!s->done[i] && s->plan->ops[i].comm.kind == kind && s->plan->ops[i].comm.root == peer)
            return i;
    return -1;
}

/* Does a transfer of a group that has begun. The same results. */
static int try_member(struct stages_run *run, int stage, int index)
{
    struct stage_run *s = &run->stage[stage];
    const struct schedule_op *op = &s->plan->ops[index];
    const int peer = op->comm.root;
    if (!is_transfer(op) || op->axis != AXIS_PIPELINE || peer < 0 || peer >= run->count || peer == stage)
        return error_set(run->err, MUSTER_E_STATE, "the plan of stage %d has a transfer with stage %d of %d",
                         stage, peer, run->count);
    struct stage_run *p = &run->stage[peer];
    const int there = open_transfer(p, op->comm.kind == COMM_SEND ? COMM_RECV : COMM_SEND, stage);
    if (there < 0 || open_transfer(s, op->comm.kind, peer) != index)
        return 0;
    if (!is_same_transfer(op, &p->plan->ops[there]))
        return differ(run, stage, op, peer, &p->plan->ops[there]);
    const double begin = s->begun > p->begun ? s->begun : p->begun;
    s->done[index] = p->done[there] = true;
    s->end[index] = p->end[there] = begin + s->seconds[index];
    s->comm += s->seconds[index];
    p->comm += s->seconds[index];
    return 1;
}

/* Ends the group at the head of STREAM_TRANSFERS if all of it is done. */
static bool end_group(struct stage_run *s)
{
    const int first = s->head[STREAM_TRANSFERS], last = group_end(s->plan, first);
    for (int i = first; i < last; i++)
        if (!s->done[i])
            return false;
    for (int i = first; i < last; i++)
        s->at[STREAM_TRANSFERS] = s->end[i] > s->at[STREAM_TRANSFERS] ? s->end[i] : s->at[STREAM_TRANSFERS];
    for (int i = first; i < last; i++)
        s->end[i] = s->at[STREAM_TRANSFERS];
    s->began = false;
    s->head[STREAM_TRANSFERS] = next_of(s->plan, STREAM_TRANSFERS, last);
    s->comms = next_comm(s->plan, last);
    return true;
}

/* The group at the head of STREAM_TRANSFERS, which may begin at `start`. */
static int try_group(struct stages_run *run, int stage, double start)
{
    struct stage_run *s = &run->stage[stage];
    int result = 0;
    if (!s->began)
        s->begun = start;
    s->began = true;
    for (int i = s->head[STREAM_TRANSFERS]; i < group_end(s->plan, s->head[STREAM_TRANSFERS]); i++) {
        const int done = s->done[i] ? 0 : try_member(run, stage, i);
        if (done < 0)
            return -1;
        result |= done;
    }
    return end_group(s) ? 1 : result;
}

/* The same for an operation between several stages: 1, 0 or -1, over all of them. */
static int try_together(struct stages_run *run, int stage, const struct schedule_op *op)
{
    const uint64_t among =
        op->axis == AXIS_TIED ? run->stage[stage].plan->groups[op->group].stages : UINT64_MAX;
    double begin = 0, at;
    for (int other = 0; other < run->count; other++) {
        if (!(among >> other & 1))
            continue;
        const struct schedule_op *theirs = head_ready(&run->stage[other], (int)op->stream, &at);
        if (!theirs || !crosses(theirs) || is_transfer(theirs) || theirs->axis != op->axis)
            return 0;
        if (theirs->comm.kind != op->comm.kind || theirs->comm.count != op->comm.count ||
            theirs->comm.dtype != op->comm.dtype || theirs->group != op->group)
            return differ(run, stage, op, other, theirs);
        begin = at > begin ? at : begin;
    }
    const double seconds = run->stage[stage].seconds[op - run->stage[stage].plan->ops];
    for (int other = 0; other < run->count; other++)
        if (among >> other & 1)
            finish_head(&run->stage[other], (int)op->stream, begin, seconds);
    return 1;
}

/* Runs one queue as far as possible. 1: the queue moved; 0: the queue waits or is empty; -1: the plans are
 * wrong. */
static int advance_stage(struct stages_run *run, int stage, int stream)
{
    struct stage_run *s = &run->stage[stage];
    int moved = 0;
    double start;
    for (const struct schedule_op *op; (op = head_ready(s, stream, &start)); moved = 1) {
        int result = 1;
        if (s->grouped && stream == STREAM_TRANSFERS)
            result = try_group(run, stage, start);
        else if (is_transfer(op))
            result = try_transfer(run, stage, op, start);
        else if (crosses(op))
            result = try_together(run, stage, op);
        else
            finish_head(s, stream, start, s->seconds[op - s->plan->ops]);
        if (result < 0)
            return -1;
        if (result == 0)
            break;
        if (s->began) /* a part of the group is done */
            return 1;
    }
    return moved;
}

/* ---- operations that wait for ever ---- */

/* Names the first missing operation that an operation waits for: on its own stage, or at the head of the same
 * queue of another stage. */
static int refuse_waiting(const struct stages_run *run, int stage, int stream)
{
    const struct stage_run *s = &run->stage[stage];
    const struct schedule_op *op = &s->plan->ops[s->head[stream]], *wanted = NULL;
    int other = stage;
    char one[128], what[128];
    const int first = s->head[stream];
    for (int at = first; at < group_end(s->plan, first); at++)
        for (int i = 0; i < s->plan->ops[at].wait_count && !wanted; i++)
            if (s->plan->ops[at].wait[i] <= at && !s->done[s->plan->ops[at].wait[i]])
                wanted = &s->plan->ops[s->plan->ops[at].wait[i]];
    while (s->began && s->done[op - s->plan->ops]) /* the first transfer that is not done */
        op++;
    (void)name_op(run->model, s->plan, op, one, sizeof one);
    if (wanted)
        return error_set(run->err, MUSTER_E_STATE,
                         "deadlock: stage %d would wait for ever in operation %d (%s), for its own %s", stage,
                         s->head[stream], one, name_op(run->model, s->plan, wanted, what, sizeof what));
    if (is_transfer(op))
        other = op->comm.root;
    for (int i = 0; !is_transfer(op) && i < run->count; i++)
        if (i != stage && run->stage[i].head[stream] != run->stage[i].plan->op_count)
            other = i;
    const struct stage_run *peer = &run->stage[other];
    const bool ended = peer->head[stream] == peer->plan->op_count;
    if (!ended)
        (void)name_op(run->model, peer->plan, &peer->plan->ops[peer->head[stream]], what, sizeof what);
    return error_set(run->err, MUSTER_E_STATE,
                     "deadlock: stage %d would wait for ever in operation %d (%s) for stage %d, which %s%s",
                     stage, s->head[stream], one, other,
                     ended ? "has no operation left on that stream" : "is at ", ended ? "" : what);
}

static int run_all(struct stages_run *run)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int stage = 0; stage < run->count; stage++)
            for (int stream = 0; stream < STREAM_COUNT; stream++) {
                const int result = advance_stage(run, stage, stream);
                if (result < 0)
                    return -1;
                moved |= result > 0;
            }
    }
    /* Transfers come first: operations that wait for a transfer explain less. */
    static const enum stream_id order[STREAM_COUNT] = {
        STREAM_ACTIVATIONS,   STREAM_ACTIVATIONS_ODD, STREAM_ACTIVATIONS_LAST, STREAM_GRADIENTS,
        STREAM_GRADIENTS_ODD, STREAM_GRADIENTS_LAST,  STREAM_TRANSFERS,        STREAM_REDUCE,
        STREAM_GATHER,        STREAM_COMPUTE};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        for (int stage = 0; stage < run->count; stage++) {
            double start;
            const struct stage_run *s = &run->stage[stage];
            if (s->head[order[i]] < s->plan->op_count &&
                (head_ready(s, (int)order[i], &start) || order[i] == STREAM_COMPUTE))
                return refuse_waiting(run, stage, (int)order[i]);
        }
    return 0;
}

/* ---- times ---- */

static int open_run(struct stages_run *run, const struct plan_stages *stages, const struct plan_rates *rates,
                    double *numbers, bool *flags)
{
    for (int s = 0; s < stages->count; s++) {
        struct stage_run *stage = &run->stage[s];
        const int ops = stages->plans[s].op_count;
        *stage = (struct stage_run){.plan = &stages->plans[s],
                                    .seconds = numbers,
                                    .end = numbers + ops,
                                    .done = flags,
                                    .grouped = stages->plans[s].options.grouped,
                                    .comms = next_comm(&stages->plans[s], 0)};
        numbers += 2 * ops;
        flags += ops;
        for (int stream = 0; stream < STREAM_COUNT; stream++)
            stage->head[stream] = next_of(stage->plan, stream, 0);
        if (plan_op_seconds(run->model, stage->plan, rates, stage->seconds, run->err) < 0)
            return -1;
    }
    return 0;
}

static void add_up(const struct stages_run *run, struct plan_stages_cost *cost)
{
    *cost = (struct plan_stages_cost){0};
    for (int s = 0; s < run->count; s++)
        for (int stream = 0; stream < STREAM_COUNT; stream++)
            if (run->stage[s].at[stream] > cost->step_s)
                cost->step_s = run->stage[s].at[stream];
    for (int s = 0; s < run->count; s++) {
        struct plan_stage_cost *stage = &cost->stage[s];
        stage->busy_s = run->stage[s].busy;
        stage->comm_s = run->stage[s].comm;
        stage->idle = cost->step_s > 0 ? 1 - stage->busy_s / cost->step_s : 0;
        for (int m = 0; m < MEMORY_CLASS_COUNT; m++)
            stage->bytes += run->stage[s].plan->arena_bytes[m];
        cost->idle += stage->idle / run->count;
    }
}

int plan_stages_run(const struct model *model, const struct plan_stages *stages,
                    const struct plan_rates *rates, struct plan_stages_cost *cost, struct muster_error *err)
{
    const struct plan_rates nominal = plan_rates_nominal(1);
    size_t ops = 0;
    for (int s = 0; s < stages->count; s++)
        ops += (size_t)stages->plans[s].op_count;
    scope_free struct stages_run *run = mem_calloc(1, sizeof *run);
    scope_free double *numbers = mem_calloc(2 * ops, sizeof *numbers);
    scope_free bool *flags = mem_calloc(ops, sizeof *flags);
    if (!run || !numbers || !flags)
        return error_set(err, MUSTER_E_NOMEM, "no memory to run the plans of %d stages", stages->count);
    *run = (struct stages_run){.model = model, .count = stages->count, .err = err};
    if (open_run(run, stages, rates ? rates : &nominal, numbers, flags) < 0 || run_all(run) < 0)
        return -1;
    if (cost)
        add_up(run, cost);
    return 0;
}
