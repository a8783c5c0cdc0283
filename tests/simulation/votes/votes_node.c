/* votes_node.c - one simulated agent: its workers, its place as a member, and the rules' actions. See
 * votes_internal.h. */
#include <stdio.h>
#include <string.h>

#include "tests/simulation/votes/votes_internal.h"

static const int64_t beat_ns = 500 * NS_PER_MS, start_ns = 50 * NS_PER_MS;

void votes_start(struct votes_job *job, int node)
{
    struct votes_node *n = &job->nodes[node];
    if (job->lives + 1 == VOTES_NODES * VOTES_LIVES)
        return; /* the schedule has fewer restarts */
    struct voter *self = &job->voters[++job->lives];
    *self = (struct voter){.incarnation = {(uint64_t)node + 1, (uint64_t)job->lives},
                           .port = (uint16_t)(node + 1)};
    (void)snprintf(self->name, sizeof self->name, "n%d", node);
    const int life = n->life + 1;
    *n = (struct votes_node){.up = true, .life = life, .self = self};
    n->stop_ns = NS_PER_MS * (20 + votes_below(&job->random, 1500));
    votes_say(job, node, "starts");
    takeover_init(&n->t, self, test_random(&job->random), job->instant);
    if (job->schedule->all_ranks)
        takeover_all_ranks(&n->t);
    if (node == 0) {
        struct takeover_actions actions;
        takeover_at_endpoint(&n->t);
        takeover_begin(&n->t, job->instant, &actions);
        votes_carry_out(job, node, &actions);
    }
    votes_tick(job, node);
}

void votes_crash(struct votes_job *job, int node)
{
    struct votes_node *n = &job->nodes[node];
    votes_note_end(job, node);
    n->up = false;
    n->life++;
    n->runs = n->starts = NULL;
    votes_say(job, node, "crashes");
    for (int i = 0; i < job->schedule->nodes; i++) {
        const struct votes_message message = {.kind = VOTES_BROKEN, .from = n->self};
        votes_send(job, node, i, &message);
    }
}

int votes_server(const struct votes_job *job)
{
    int best = -1;
    for (int i = 0; i < job->schedule->nodes; i++)
        if (job->nodes[i].up && job->nodes[i].t.state == TAKEOVER_SERVE &&
            (best < 0 || job->nodes[i].t.known.round >= job->nodes[best].t.known.round))
            best = i;
    return best;
}

/* --- workers --- */

const struct votes_world *votes_known(struct votes_job *job, int node)
{
    const struct world_record *known = &job->nodes[node].t.known;
    return known->epoch ? votes_world_of(job, known) : NULL;
}

bool votes_is_member(const struct votes_world *world, int node, struct agent_incarnation incarnation)
{
    for (int i = 0; world && i < world->record.nodes; i++)
        if (world->members[i] == node && agent_incarnation_equal(world->incarnations[i], incarnation))
            return true;
    return false;
}

void votes_stop_workers(struct votes_job *job, int node)
{
    struct votes_node *n = &job->nodes[node];
    n->starts = NULL;
    if (n->runs && !n->stopping) {
        n->stopping = true;
        n->stopped_at = job->now + n->stop_ns;
    }
}

void votes_want_workers(struct votes_job *job, int node, const struct votes_world *world)
{
    struct votes_node *n = &job->nodes[node];
    if (n->runs == world || n->starts == world || !votes_is_member(world, node, n->self->incarnation))
        return;
    if (n->runs) {
        votes_stop_workers(job, node);
        return;
    }
    n->starts = world;
    n->starts_at = job->now + start_ns;
}

static void tend_workers(struct votes_job *job, int node)
{
    struct votes_node *n = &job->nodes[node];
    if (n->stopping && job->now >= n->stopped_at) {
        n->stopping = false;
        n->runs = NULL;
        n->report_at = job->now;
    }
    if (n->starts && job->now >= n->starts_at) {
        n->runs = n->starts;
        n->starts = NULL;
        votes_say(job, node, "runs round %u", n->runs->record.round);
        votes_check_training(job, node);
    }
    takeover_workers(&n->t, n->runs != NULL || n->starts != NULL);
}

/* --- actions --- */

static void join(struct votes_job *job, int node, int to)
{
    struct votes_node *n = &job->nodes[node];
    const struct world_record *known = takeover_word(&n->t);
    static const struct world_record none;
    const struct votes_message message = {.kind = VOTES_JOIN,
                                          .from = n->self,
                                          .known = known->epoch ? &votes_keep(job, known)->record : &none,
                                          .runs = n->runs ? 1 + n->runs->record.round : 0,
                                          .leaves = n->leaves};
    votes_send(job, node, to, &message);
}

static void send_takeover(struct votes_job *job, int node, int to, const struct takeover_message *message)
{
    static const struct world_record none;
    struct votes_message sent = {.kind = VOTES_TAKEOVER, .from = job->nodes[node].self, .takeover = *message};
    struct takeover_message *m = &sent.takeover;
    m->from = sent.from;
    m->known = m->known->epoch ? &votes_keep(job, m->known)->record : &none;
    m->value = m->value ? &votes_keep(job, m->value)->record : NULL;
    m->server = m->server ? votes_keep_voter(job, m->server) : NULL;
    votes_send(job, node, to, &sent);
}

static void on_change(struct votes_job *job, int node, const struct takeover_action *action)
{
    struct votes_node *n = &job->nodes[node];
    votes_say(job, node, "%s%s%s: %s", takeover_state_name(n->t.state), action->to ? " " : "",
              action->to ? action->to->name : "", takeover_reason_text(action->reason));
    if (n->t.state == TAKEOVER_SERVE)
        votes_server_begin(job, node);
    else if (n->t.state == TAKEOVER_FOLLOW)
        n->report_at = job->now;
    else
        votes_stop_workers(job, node);
}

static void die(struct votes_job *job, int node)
{
    votes_crash(job, node);
    votes_later(job, job->kill_for_ms, VOTES_RESTART, node);
}

static void tell(struct votes_job *job, int node, int to)
{
    struct votes_node *n = &job->nodes[node];
    const struct takeover_message moved = {.kind = TAKEOVER_MOVED,
                                           .from = n->self,
                                           .known = &n->t.known,
                                           .ballot = n->t.ballot,
                                           .server = n->self};
    send_takeover(job, node, to, &moved);
}

static void tell_one_and_die(struct votes_job *job, int node)
{
    tell(job, node, votes_node_of(&job->nodes[node].t.known.voters[job->told]));
    job->kill_at_revision = 0;
    die(job, node);
}

static void die_before_world(struct votes_job *job, int node)
{
    for (int i = 0; i < job->schedule->nodes && job->tells_leaving; i++)
        if (job->nodes[i].left)
            tell(job, node, i);
    job->kill_at_chosen = 0;
    die(job, node);
}

void votes_carry_out(struct votes_job *job, int node, const struct takeover_actions *actions)
{
    struct votes_node *n = &job->nodes[node];
    bool chosen = false;
    for (int i = 0; i < actions->count; i++)
        chosen |= actions->items[i].kind == TAKEOVER_CHOSEN;
    votes_check_knowledge(job, node, chosen);
    votes_check_office(job, node, actions);
    for (int i = 0; i < actions->count && n->up; i++) {
        const struct takeover_action *action = &actions->items[i];
        switch (action->kind) {
        case TAKEOVER_SEND:
            send_takeover(job, node, votes_node_of(action->to), &action->message);
            break;
        case TAKEOVER_ASK:
            join(job, node, votes_node_of(action->to));
            break;
        case TAKEOVER_ASK_ENDPOINTS:
            for (int to = 0; to < job->schedule->endpoints; to++)
                join(job, node, to);
            break;
        case TAKEOVER_TELL_ENDPOINTS:
            for (int to = 0; to < job->schedule->endpoints; to++)
                send_takeover(job, node, to, &action->message);
            break;
        case TAKEOVER_CHANGE:
            if (!job->schedule->all_ranks && action->reason == TAKEOVER_AGAIN)
                job->calm_at = job->now; /* until then it was a job without a majority */
            on_change(job, node, action);
            break;
        case TAKEOVER_CHOSEN:
            if (job->kill_at_chosen && job->now >= job->kill_at_chosen) {
                die_before_world(job, node);
                return;
            }
            n->order_at = job->now;
            if (n->t.known.revision && job->kill_at_revision && job->now >= job->kill_at_revision) {
                tell_one_and_die(job, node);
                return;
            }
            if (n->t.known.revision)
                break; /* the world goes on */
            n->phase = VOTES_RUNS;
            n->since = job->now;
            break;
        case TAKEOVER_ACTION_COUNT:
            break;
        }
    }
}

/* --- an agent that leaves --- */

static const int64_t answer_ns = NS_PER_S;

void votes_drain(struct votes_job *job, int node, int64_t back_ms)
{
    struct votes_node *n = &job->nodes[node];
    if (n->leaves)
        return;
    votes_say(job, node, "is to leave");
    n->leaves = true;
    n->leave_at = job->now + answer_ns; /* without an answer of the server */
    n->report_at = job->now;
    n->back_ms = back_ms;
    votes_tick(job, node);
}

void votes_leave(struct votes_job *job, int node)
{
    struct votes_node *n = &job->nodes[node];
    struct takeover_actions actions;
    if (n->t.state == TAKEOVER_FOLLOW)
        join(job, node, votes_node_of(&n->t.server));
    votes_say(job, node, "leaves, and votes only");
    n->left = true;
    takeover_leave(&n->t, TAKEOVER_STAY_MS * NS_PER_MS, job->instant, &actions);
    votes_carry_out(job, node, &actions);
}

/* The server leaves when all have stopped (votes_server.c). Whether it has gone. */
static bool tend_leaving(struct votes_job *job, int node)
{
    struct votes_node *n = &job->nodes[node];
    if (!n->leaves)
        return false;
    if (!n->left && n->t.state != TAKEOVER_SERVE) {
        if (job->now >= n->leave_at)
            votes_stop_workers(job, node);
        if (!n->runs && !n->starts)
            votes_leave(job, node);
    }
    if (!n->left || takeover_stays(&n->t, job->instant))
        return false;
    const int64_t back_ms = n->back_ms;
    votes_crash(job, node);
    votes_later(job, back_ms, VOTES_RESTART, node);
    job->calm_at = job->now; /* not read before the last fault */
    return true;
}

/* --- a member --- */

static void obey(struct votes_job *job, int node, const struct votes_message *message)
{
    struct votes_node *n = &job->nodes[node];
    struct takeover_actions actions;
    if (n->t.state != TAKEOVER_FOLLOW ||
        !agent_incarnation_equal(n->t.server.incarnation, message->from->incarnation))
        return; /* its connection was closed */
    if (message->left) {
        takeover_gone(&n->t, TAKEOVER_LEFT, job->instant, &actions);
        votes_carry_out(job, node, &actions);
        return;
    }
    takeover_heard(&n->t, message->from->incarnation, job->instant);
    if (takeover_learn(&n->t, message->known, job->instant, &actions, NULL) == 0)
        votes_carry_out(job, node, &actions);
    const struct votes_world *known = votes_known(job, node);
    if (n->t.state != TAKEOVER_FOLLOW)
        return;
    if (message->stop)
        votes_stop_workers(job, node);
    else if (known && message->known->epoch && votes_world_of(job, message->known) == known)
        votes_want_workers(job, node, known);
}

void votes_arrive(struct votes_job *job, int node, const struct votes_message *message)
{
    struct votes_node *n = &job->nodes[node];
    struct takeover_actions actions;
    switch (message->kind) {
    case VOTES_TAKEOVER:
        takeover_receive(&n->t, &message->takeover, job->instant, &actions);
        votes_carry_out(job, node, &actions);
        break;
    case VOTES_JOIN:
        takeover_asked(&n->t, message->from, message->known, job->instant, &actions);
        votes_carry_out(job, node, &actions);
        /* An agent that knows more than this server is no member yet. */
        if (n->up && n->t.state == TAKEOVER_SERVE && (n->t.known.epoch || !message->known->epoch))
            votes_server_joined(job, node, message);
        break;
    case VOTES_ORDER:
        if (!n->left)
            obey(job, node, message);
        break;
    case VOTES_BROKEN:
        if (n->t.state == TAKEOVER_FOLLOW &&
            agent_incarnation_equal(n->t.server.incarnation, message->from->incarnation))
            takeover_connection(&n->t, false, job->instant);
        break;
    }
    if (n->up)
        votes_tick(job, node);
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Everything of this node that is due, and when to look again. */
void votes_tick(struct votes_job *job, int node)
{
    struct votes_node *n = &job->nodes[node];
    struct takeover_actions actions;
    tend_workers(job, node);
    if (takeover_deadline(&n->t).ns <= job->now) {
        takeover_tick(&n->t, job->instant, &actions);
        votes_carry_out(job, node, &actions);
    }
    if (n->up && tend_leaving(job, node))
        return;
    if (n->up && n->t.state == TAKEOVER_FOLLOW && !n->left && job->now >= n->report_at) {
        n->report_at = job->now + beat_ns;
        join(job, node, votes_node_of(&n->t.server));
    }
    int64_t next = INT64_MAX;
    if (n->up && n->t.state == TAKEOVER_SERVE) {
        votes_server_turn(job, node);
        next = job->now + 100 * NS_PER_MS;
    }
    if (!n->up)
        return;
    next = earlier(next, takeover_deadline(&n->t).ns);
    if (n->t.state == TAKEOVER_FOLLOW && !n->left)
        next = earlier(next, n->report_at);
    if (n->leaves)
        next = earlier(next, n->left                  ? job->now + 50 * NS_PER_MS
                             : n->leave_at > job->now ? n->leave_at
                                                      : INT64_MAX);
    if (n->stopping)
        next = earlier(next, n->stopped_at);
    if (n->starts)
        next = earlier(next, n->starts_at);
    next = next > job->now ? next : job->now + NS_PER_MS;
    if (n->tick_at > job->now && n->tick_at <= next)
        return; /* it is looked at before */
    n->tick_at = next;
    const struct votes_happening tick = {.at = next, .kind = VOTES_TICKS, .node = node, .life = n->life};
    votes_push(job, &tick);
}
