/* agent_pmi.c - see agent_pmi.h: sockets in the loop, exchanges as background jobs. */
#include "launcher/agent/pmi/agent_pmi.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/agent/agent_server.h"
#include "launcher/agent/pmi/pmix_look.h"
#include "launcher/loop/background_job.h"
#include "launcher/loop/channels.h"
#include "launcher/pmi/pmi.h"
#include "launcher/pmi/pmi_exchange.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"

static const int64_t connect_patience_ns = 60 * NS_PER_S;

/* Payload of the background job. */
struct pmi_asking {
    char address[MEMBERSHIP_NAME_LIMIT], prefix[64];
    uint16_t port;
    bool has_key;
    unsigned char key[SECRET_STORE_KEY_SIZE];
    int number, nodes;
    bool reports; /* a missing rank, and waits for no answer */
    struct buffer own, all;
    atomic_bool ends;
    struct muster_error err;
};

struct agent_pmi {
    struct pmi *pmi; /* the round's; NULL before its first worker */
    struct channels *sockets;
    bool *writes; /* one for each worker: replies wait for room */
    struct background_watch asking;
    struct pmi_asking *exchange; /* valid while asking has a job */
    bool missing;                /* a rank's early end was reported */
    struct pmix_look look;       /* valid while pmi is not NULL */
};

/* --- the exchange --- */

static void free_asking(void *payload)
{
    struct pmi_asking *a = payload;
    buffer_free(&a->own);
    buffer_free(&a->all);
    explicit_bzero(a->key, sizeof a->key);
    mem_free(a);
}

static void run_asking(void *payload)
{
    struct pmi_asking *a = payload;
    const struct tcpstore_client_options options = {.host = a->address,
                                                    .port = a->port,
                                                    .prefix = a->prefix,
                                                    .key = a->has_key ? a->key : NULL,
                                                    .timeout_ns = connect_patience_ns};
    struct tcpstore_client *client GUARD(guard_tcpstore_client) = tcpstore_client_connect(&options, &a->err);
    if (client)
        (void)pmi_exchange(client, a->number, a->nodes, &a->own, a->reports ? NULL : &a->all, &a->ends,
                           &a->err); /* err tells */
}

static void close_sockets(struct agent *agent);
static void step(struct agent *agent);

/* Ranks that wait must not wait for ever: without their connections MPI_Init fails, which is a failure as any
 * other. */
static void pmi_give_up(struct agent *agent, const char *why)
{
    log_error(&agent->log, "PMI: the nodes could not exchange keys: %s; MPI processes of this node end", why);
    close_sockets(agent);
}

static void tell_aborted(struct agent *agent, int local_rank, int code, const char *why)
{
    agent_emit(agent, &(struct agent_event){.kind = AGENT_ABORTED,
                                            .worker = &agent->round.workers[local_rank],
                                            .code = code,
                                            .text = why});
}

/* MPI's own wait for a rank that is missing would never end, in MPI_Init and in MPI_Finalize alike. */
static void fail_waiting(struct agent *agent, const char *why)
{
    for (int i = 0; i < agent->round.worker_count; i++) {
        const enum pmi_state state = pmi_state_of(agent->pmi->pmi, i);
        if ((state != PMI_GREETS && state != PMI_IN_BARRIER) || !agent->round.workers[i].alive)
            continue;
        tell_aborted(agent, i, EXIT_CODE_FAILURE, why);
        return;
    }
}

static void take_texts(struct agent *agent, const struct buffer *all)
{
    struct muster_error err = {0};
    if (pmi_take_exchange(agent->pmi->pmi, all->data, all->length, &err) < 0 && err.code == MUSTER_E_PEER)
        fail_waiting(agent, err.text);
    else if (err.code)
        pmi_give_up(agent, err.text);
    else
        step(agent);
}

static void exchanged(void *context)
{
    struct agent *agent = context;
    struct pmi_asking *a = agent->pmi->exchange;
    if (a->reports && a->err.code)
        log_debug(&agent->log, "PMI: the other nodes got no report of a missing rank: %s", a->err.text);
    else if (a->err.code)
        pmi_give_up(agent, a->err.text);
    else if (!a->reports)
        take_texts(agent, &a->all);
    /* the step above may have found the next exchange due, and begun it: only this one ends here */
    if (agent->pmi->exchange == a)
        background_watch_end(&agent->pmi->asking);
}

static int begin_exchange(struct agent *agent, int number, const struct buffer *own, struct muster_error *err)
{
    const struct membership_world *world = &agent->round.world;
    struct pmi_asking *a = mem_calloc(1, sizeof *a);
    if (!a || buffer_append(&a->own, own->data, own->length) < 0) {
        mem_free(a);
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    }
    memcpy(a->address, world->master_addr, sizeof a->address);
    (void)snprintf(a->prefix, sizeof a->prefix, "muster/pmi/%" PRIx64 "-%" PRIu32, world->id.epoch,
                   world->id.round);
    a->port = world->master_port;
    a->has_key = agent_server_copy_store_key(agent, a->key);
    a->number = number;
    a->reports = pmi_reports_missing(agent->pmi->pmi);
    log_debug(&agent->log, "PMI: exchange %d of keys between %d nodes", number, world->group_world_size);
    a->nodes = world->group_world_size;
    background_watch_end(&agent->pmi->asking); /* the one before is done */
    agent->pmi->exchange = a;
    struct background_job *job =
        background_job_start("exchanging MPI's keys", run_asking, a, free_asking, err);
    return background_watch_begin(&agent->pmi->asking, &agent->loop, job, exchanged, agent, err);
}

/* A round ends: its exchange does, too, within a look. */
static void end_exchange(struct agent_pmi *pmi)
{
    if (pmi->asking.job)
        atomic_store(&pmi->exchange->ends, true);
    background_watch_end(&pmi->asking);
    pmi->exchange = NULL;
}

/* --- the sockets --- */

static void close_socket(struct agent *agent, int local_rank)
{
    if (channels_close(agent->pmi->sockets, local_rank))
        pmi_leave(agent->pmi->pmi, local_rank);
}

static void close_sockets(struct agent *agent)
{
    for (int i = 0; i < agent->round.worker_count; i++)
        close_socket(agent, i);
}

/* Sends what fits; the loop tells when there is room again. */
static void send_replies(struct agent *agent, int local_rank)
{
    struct agent_pmi *pmi = agent->pmi;
    struct buffer *replies = pmi_replies(pmi->pmi, local_rank);
    const int fd = channels_fd(pmi->sockets, local_rank);
    while (fd >= 0 && replies->length) {
        const ssize_t sent = send(fd, replies->data, replies->length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0) {
            close_socket(agent, local_rank);
            return;
        }
        buffer_consume(replies, (size_t)sent);
    }
    const bool writes = fd >= 0 && replies->length > 0;
    struct muster_error err = {0};
    if (writes != pmi->writes[local_rank] &&
        channels_watch(pmi->sockets, local_rank, EPOLLIN | (writes ? EPOLLOUT : 0), &err) < 0)
        close_socket(agent, local_rank);
    pmi->writes[local_rank] = writes;
}

static void tell_notes(struct agent *agent)
{
    /* a failure may end the round, and the PMI with it */
    for (struct pmi_note note; agent->pmi->pmi && (note = pmi_take_note(agent->pmi->pmi)).kind;) {
        const struct worker *worker = &agent->round.workers[note.local_rank];
        if (note.kind == PMI_NOTE_SPAWN) {
            log_error(
                &agent->log,
                "rank %d calls MPI_Comm_spawn, which muster does not serve: the call fails there; start "
                "all processes with --nproc-per-node",
                worker->rank);
            continue;
        }
        char why[64];
        (void)snprintf(why, sizeof why, "MPI_Abort was called with exit code %d", note.exit_code);
        /* the client waits to be killed, and a job that was aborted with 0 has not succeeded */
        tell_aborted(agent, note.local_rank,
                     note.exit_code > 0 && note.exit_code < 256 ? note.exit_code : EXIT_CODE_FAILURE, why);
    }
}

/* A rank that exits 0 without MPI_Finalize, or without MPI_Init, leaves the others in MPI waiting for ever,
 * and MPICH's wait in shared memory: that is a failure. The end of a rank in any other way is one already. */
static void find_missing(struct agent *agent)
{
    int missing = -1;
    int inside = 0;
    for (int i = 0; i < agent->round.worker_count; i++) {
        const struct worker *worker = &agent->round.workers[i];
        const enum pmi_state state = pmi_state_of(agent->pmi->pmi, i);
        inside += state == PMI_GREETS || state == PMI_RUNS || state == PMI_IN_BARRIER;
        if (state == PMI_GONE && worker->pid && !worker->alive && worker->end_code == CLD_EXITED &&
            worker->end_status == 0)
            missing = i;
    }
    if (missing < 0 || agent->pmi->missing ||
        (agent->group.state != GROUP_RUNNING && agent->group.state != GROUP_DONE))
        return;
    if (!inside) { /* others of other nodes may be */
        if (pmi_report_missing(agent->pmi->pmi, missing) < 0)
            log_error(&agent->log, "PMI: no memory to report a missing rank to the other nodes");
        return;
    }
    char why[128];
    (void)snprintf(why, sizeof why, "it exited 0 without MPI_Finalize while %d rank%s of its node %s in MPI",
                   inside, inside == 1 ? "" : "s", inside == 1 ? "is" : "are");
    agent->pmi->missing = true;
    tell_aborted(agent, missing, EXIT_CODE_FAILURE, why);
}

/* After any change: replies go out, an exchange that is due begins. */
static void step(struct agent *agent)
{
    struct agent_pmi *pmi = agent->pmi;
    struct muster_error err = {0};
    struct buffer *own;
    for (int i = 0; i < agent->round.worker_count; i++)
        send_replies(agent, i);
    tell_notes(agent);
    if (pmi->pmi)
        find_missing(agent);
    if (!pmi->pmi)
        return;
    const int number = pmi_due_exchange(pmi->pmi, &own);
    if (number < 0)
        return;
    if (agent->round.world.group_world_size == 1) {
        scope_buffer all = {0};
        if (buffer_append(&all, own->data, own->length) < 0)
            pmi_give_up(agent, "no memory");
        else
            take_texts(agent, &all);
    } else if (begin_exchange(agent, number, own, &err) < 0) {
        pmi_give_up(agent, err.text);
    }
}

/* A bounded read: a worker that writes without end must not keep the loop. */
static void socket_ready(void *context, int local_rank, uint32_t events)
{
    struct agent *agent = context;
    const bool reads = events & ~(uint32_t)EPOLLOUT;
    struct muster_error err = {0};
    char bytes[4096];
    const ssize_t got = reads ? read(channels_fd(agent->pmi->sockets, local_rank), bytes, sizeof bytes) : -1;
    if (got > 0 && pmi_take(agent->pmi->pmi, local_rank, bytes, (size_t)got, &err) < 0) {
        log_error(&agent->log, "rank %d: PMI: %s: its connection is closed, and MPI fails there",
                  agent->round.workers[local_rank].rank, err.text);
        close_socket(agent, local_rank);
    } else if (got == 0 || (got < 0 && reads && errno != EAGAIN && errno != EINTR)) {
        close_socket(agent, local_rank); /* no process has the other end any more */
    }
    step(agent);
}

static int make_round(struct agent *agent, struct muster_error *err)
{
    const struct membership_world *world = &agent->round.world;
    struct pmi_place place = {.node = world->group_rank,
                              .nodes = world->group_world_size,
                              .first = world->rank_base,
                              .local = agent->round.worker_count,
                              .world = world->world_size};
    (void)snprintf(place.name, sizeof place.name, "muster-%" PRIx64 "-%" PRIu32, world->id.epoch,
                   world->id.round);
    if (!agent->pmi->pmi) {
        agent->pmi->pmi = pmi_create(&place, err);
        pmix_look_begin(&agent->pmi->look, clock_now(NULL));
    }
    return agent->pmi->pmi ? 0 : -1;
}

int agent_pmi_open(struct agent *agent, struct worker *worker, int *theirs, struct muster_error *err)
{
    *theirs = -1;
    if (!agent->config->mpi)
        return 0;
    if (make_round(agent, err) < 0)
        return -1;
    agent->pmi->writes[worker->local_rank] = false;
    return channels_open(agent->pmi->sockets, worker->local_rank, theirs, err);
}

/* MPI_Finalize of MPICH 4 shuts the descriptor down, for the processes that inherit it, too: in `sh -c 'a;
 * b'` the second program's first request gets SIGPIPE. MPICH 5 lets it ask, and it is refused. */
const char *agent_pmi_explain(const struct agent *agent, const struct worker *worker)
{
    const struct pmi *pmi = agent->pmi ? agent->pmi->pmi : NULL;
    if (!pmi || pmi_state_of(pmi, worker->local_rank) != PMI_FINALIZED)
        return NULL;
    const bool piped =
        worker->end_code == CLD_EXITED ? worker->end_status == 128 + SIGPIPE : worker->end_status == SIGPIPE;
    return piped || pmi_began_again(pmi, worker->local_rank)
               ? "it failed after MPI_Finalize: a second MPI program of the same rank cannot start, as under "
                 "mpirun; start each by a muster run of its own"
               : NULL;
}

/* --- the part --- */

static struct instant agent_pmi_deadline(const struct agent *agent)
{
    return agent->pmi->pmi ? pmix_look_deadline(&agent->pmi->look) : INSTANT_NEVER;
}

static void agent_pmi_tick(struct agent *agent, struct instant now)
{
    if (instant_reached(now, agent_pmi_deadline(agent)))
        pmix_look(&agent->pmi->look, agent, agent->pmi->pmi);
}

static int agent_pmi_create(struct agent *agent, struct muster_error *err)
{
    const int count = agent->round.worker_count;
    struct agent_pmi *pmi = agent->pmi = mem_calloc(1, sizeof *pmi);
    if (pmi)
        pmi->sockets =
            channels_create(&agent->loop, count, CHANNEL_BLOCKING_SOCKET, "PMI socket", socket_ready, agent);
    if (pmi)
        pmi->writes = mem_calloc((size_t)count, sizeof *pmi->writes);
    if (!pmi || !pmi->sockets || !pmi->writes)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the PMI of %d workers", count);
    return 0;
}

static void end_round(struct agent *agent)
{
    end_exchange(agent->pmi);
    close_sockets(agent);
    pmi_destroy(agent->pmi->pmi);
    agent->pmi->pmi = NULL;
    agent->pmi->missing = false;
}

static void agent_pmi_event(struct agent *agent, const struct agent_event *event)
{
    if (event->kind == AGENT_ROUND_ENDS)
        end_round(agent);
    if (event->kind == AGENT_WORKER_ENDED && agent->pmi->pmi) {
        pmix_look_ended(&agent->pmi->look, agent, agent->pmi->pmi);
        step(agent);
    }
}

static void agent_pmi_destroy(struct agent *agent)
{
    if (!agent->pmi)
        return;
    if (agent->pmi->sockets)
        end_round(agent);
    channels_destroy(agent->pmi->sockets);
    mem_free(agent->pmi->writes);
    mem_free(agent->pmi);
    agent->pmi = NULL;
}

const struct agent_part agent_pmi_part = {"PMI",          agent_pmi_create, agent_pmi_deadline,
                                          agent_pmi_tick, agent_pmi_event,  agent_pmi_destroy};
