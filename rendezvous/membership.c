/* membership.c - an agent's membership in the world: the part common to all transports. See membership.h. */
#include "rendezvous/membership.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/transport/transport.h"

/* NULL stays NULL, which is not a failure. */
static int copy_text(const char **text, struct muster_error *err)
{
    if (!*text)
        return 0;
    *text = mem_strdup(*text);
    return *text ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for the options of a membership");
}

static void free_options(struct membership_options *options)
{
    mem_free((char *)options->job_id);
    mem_free((char *)options->agent_name);
    mem_free((char *)options->role);
    mem_free((char *)options->program);
    mem_free((char *)options->host);
    mem_free((char *)options->host_name);
    mem_free((char *)options->store_addr);
    mem_free((char *)options->vote_addr);
    mem_free((char *)options->vote_host);
}

static int copy_options(struct membership *m, const struct membership_options *options,
                        struct muster_error *err)
{
    const char **texts[] = {&m->options.job_id,     &m->options.agent_name, &m->options.role,
                            &m->options.program,    &m->options.host,       &m->options.host_name,
                            &m->options.store_addr, &m->options.vote_addr,  &m->options.vote_host};
    m->options = *options;
    if (!m->options.role)
        m->options.role = "default";
    if (!m->options.store_addr)
        m->options.store_addr = "";
    if (options->keys) {
        m->keys = *options->keys;
        m->options.keys = &m->keys;
    }
    int failed = 0;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (failed)
            *texts[i] = NULL; /* owned by the caller */
        else
            failed = copy_text(texts[i], err);
    }
    return failed;
}

static int check_options(const struct membership_options *options, struct muster_error *err)
{
    if (!options->job_id || !options->agent_name || !options->agent_name[0])
        return error_set(err, MUSTER_E_INVALID, "a membership needs a job id and an agent name");
    if (options->mode == MEMBERSHIP_IN_PROCESS && options->max_nodes != 1)
        return error_set(err, MUSTER_E_INVALID, "a world in process has one node, not %d",
                         options->max_nodes);
    if ((options->mode == MEMBERSHIP_CLIENT && !options->host) ||
        (options->mode != MEMBERSHIP_IN_PROCESS && !options->port))
        return error_set(err, MUSTER_E_INVALID,
                         "a world of %d nodes needs the address and port of the node that serves it: give "
                         "--master-addr and --master-port, or --rdzv-endpoint",
                         options->max_nodes);
    if (options->join_timeout_ns <= 0)
        return error_set(err, MUSTER_E_INVALID, "the join timeout must be above 0");
    return 0;
}

struct membership *membership_open(const struct membership_options *options, struct muster_error *err)
{
    if ((unsigned)options->mode > MEMBERSHIP_CLIENT) {
        error_set(err, MUSTER_E_INVALID, "membership mode %d is not known", (int)options->mode);
        return NULL;
    }
    if (check_options(options, err))
        return NULL;
    struct membership *m = mem_calloc(1, sizeof *m);
    if (!m) {
        error_set(err, MUSTER_E_NOMEM, "no memory for a membership");
        return NULL;
    }
    if (copy_options(m, options, err) ||
        transport_random_bytes(&m->incarnation, sizeof m->incarnation, err) ||
        (options->mode == MEMBERSHIP_IN_PROCESS ? transport_local_open(m, err)
                                                : transport_moving_open(m, err))) {
        secret_wipe(&m->keys, sizeof m->keys);
        free_options(&m->options);
        mem_free(m);
        return NULL;
    }
    return m;
}

int membership_fd(const struct membership *m)
{
    return m->operations->fd(m);
}

struct instant membership_deadline(const struct membership *m)
{
    return m->operations->deadline(m);
}

int membership_next(struct membership *m, struct membership_event *event, struct muster_error *err)
{
    int got = m->operations->next(m, event, err);
    if (got < 0)
        m->over = true;
    if (got <= 0)
        return got;
    switch (event->kind) {
    case MEMBERSHIP_EVENT_WORLD:
        m->current = event->world.id;
        break;
    case MEMBERSHIP_EVENT_STOP:
        m->current = event->stopped;
        break;
    case MEMBERSHIP_EVENT_EVICTION:
        event->own = agent_incarnation_equal(event->agent, m->incarnation);
        break;
    case MEMBERSHIP_EVENT_GO:
        break;
    default:
        m->over = true;
        break;
    }
    return got;
}

int membership_report(struct membership *m, struct world_id id, enum membership_report_kind kind,
                      const struct worker_failure *failure, struct muster_error *err)
{
    if (kind == MEMBERSHIP_REPORT_FAILED && !failure)
        return error_set(err, MUSTER_E_INVALID, "a report of FAILED needs its failure");
    if (m->over || m->left || !id.epoch || !world_id_equal(id, m->current))
        return 0;
    m->sequence++;
    if (m->operations->report(m, id, kind, failure, err)) {
        m->sequence--;
        return -1;
    }
    if (kind == MEMBERSHIP_REPORT_STOPPED)
        m->current = (struct world_id){0};
    return 0;
}

int membership_drain(struct membership *m, int exit_code, int64_t grace_ns, struct muster_error *err)
{
    if (m->left || m->over)
        return 0;
    if (!m->operations->drain)
        return error_set(err, MUSTER_E_STATE, "a job on one node has no other nodes to inform");
    return m->operations->drain(m, exit_code, grace_ns, err);
}

int membership_evict(struct membership *m, const struct membership_evict *request, struct muster_error *err)
{
    if (m->left || m->over)
        return error_set(err, MUSTER_E_STATE, "the job is over for this node");
    if (!m->operations->evict)
        return error_set(err, MUSTER_E_STATE, "the job has one node: no other could take its ranks");
    return m->operations->evict(m, request, err);
}

void membership_progress(const struct membership *m, char *out, size_t size)
{
    out[0] = '\0';
    if (m->operations->progress)
        m->operations->progress(m, out, size);
}

bool membership_has_news(const struct membership *m)
{
    return m->operations->has_news && m->operations->has_news(m);
}

void membership_miss(struct membership *m, int rank)
{
    if (m->operations->miss && !m->left && !m->over)
        m->operations->miss(m, rank);
}

void membership_ended(struct membership *m, int rank)
{
    if (m->operations->ended && !m->left && !m->over)
        m->operations->ended(m, rank);
}

uint64_t membership_notes_wanted(const struct membership *m)
{
    return m->operations->notes_wanted ? m->operations->notes_wanted(m) : 0;
}

void membership_note(struct membership *m, const char *data, size_t length)
{
    if (m->operations->note && !m->left)
        m->operations->note(m, data, length);
}

bool membership_take_note(struct membership *m, struct membership_note *out)
{
    return m->operations->take_note && m->operations->take_note(m, out);
}

int64_t membership_silence_ns(const struct membership *m)
{
    return m->operations->silence ? m->operations->silence(m) : 0;
}

int membership_move(struct membership *m, const char *host, struct muster_error *err)
{
    if (!m->operations->move || m->options.mode != MEMBERSHIP_CLIENT || !strcmp(host, m->options.host))
        return 0; /* the endpoint's agent is at its place, whatever agent serves now */
    char *copy = mem_strdup(host);
    if (!copy)
        return error_set(err, MUSTER_E_NOMEM, "no memory for an address");
    if (m->operations->move(m, copy, err)) {
        mem_free(copy);
        return -1;
    }
    mem_free((char *)m->options.host);
    m->options.host = copy;
    return 0;
}

const char *membership_server(const struct membership *m)
{
    return m->operations->server ? m->operations->server(m) : "";
}

void membership_serving(const struct membership *m, struct membership_serving *out)
{
    *out = (struct membership_serving){0};
    if (m->operations->serving)
        m->operations->serving(m, out);
}

bool membership_seeks(const struct membership *m)
{
    return m->operations->seeks && m->operations->seeks(m);
}

void membership_ask(struct membership *m, const char *address, uint16_t port)
{
    if (m->operations->ask && !m->left)
        m->operations->ask(m, address, port);
}

int membership_leave(struct membership *m, int exit_code, struct muster_error *err)
{
    if (m->left)
        return 0;
    if (m->operations->leave(m, exit_code, err))
        return -1;
    m->left = true;
    return 0;
}

void membership_part(struct membership *m, int64_t linger_ns, int64_t grace_ns)
{
    if (m->operations->part)
        m->operations->part(m, linger_ns > 0 ? linger_ns : 0, grace_ns > 0 ? grace_ns : 0);
}

int membership_parting(struct membership *m, bool *votes)
{
    *votes = false;
    return m->operations->parting ? m->operations->parting(m, votes) : 0;
}

void membership_destroy(struct membership *m, int64_t linger_ns)
{
    if (!m)
        return;
    m->operations->close(m, linger_ns > 0 ? linger_ns : 0);
    secret_wipe(&m->keys, sizeof m->keys);
    free_options(&m->options);
    mem_free(m);
}
