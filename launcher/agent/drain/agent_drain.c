/* agent_drain.c - the requests of muster drain, each known by the number that its command has chosen. See
 * agent_drain.h. */
#include "launcher/agent/drain/agent_drain.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "launcher/agent/agent_membership.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"

/* Commands at one time; the oldest is forgotten for a further one, and begins again. */
enum { REQUESTS = 4 };

static const int64_t again_ns = 200 * NS_PER_MS,
                     last_word_ns =
                         200 * NS_PER_MS; /* for a command that has asked here to learn of the end */

struct request {
    uint64_t number; /* 0: free */
    char node[MEMBERSHIP_NAME_LIMIT];
    bool without_spare;
    struct agent_incarnation agent; /* as the server has named it */
    bool answered, own;             /* own: it is this agent */
    enum membership_eviction state; /* answered */
    char text[MUSTER_ERROR_TEXT];
    struct instant asked_at;
};

struct agent_drain {
    struct request requests[REQUESTS];
    struct instant go_at; /* this agent leaves; never: nobody has asked for it, or it does already */
};

static bool is_final(const struct request *request)
{
    return request->answered && (request->state == EVICTION_LEFT || request->state == EVICTION_REFUSED);
}

static struct request *find(struct agent_drain *drain, uint64_t number)
{
    for (int i = 0; i < REQUESTS; i++)
        if (drain->requests[i].number == number)
            return &drain->requests[i];
    return NULL;
}

static struct request *begin_request(struct agent_drain *drain, uint64_t number, bool without_spare,
                                     const char *node)
{
    struct request *place = &drain->requests[0];
    for (int i = 1; i < REQUESTS; i++)
        if (drain->requests[i].asked_at.ns < place->asked_at.ns)
            place = &drain->requests[i];
    *place = (struct request){.number = number, .without_spare = without_spare};
    (void)snprintf(place->node, sizeof place->node, "%s", node);
    return place;
}

static void send_on(struct agent *agent, struct request *request, struct instant now)
{
    const struct membership_evict evict = {.number = request->number,
                                           .node = request->node,
                                           .without_spare = request->without_spare,
                                           .agent = request->agent};
    struct muster_error err = {0};
    request->asked_at = now;
    if (agent_membership_evict(agent, &evict, &err) == 0)
        return;
    request->answered = true;
    request->state = EVICTION_REFUSED;
    (void)snprintf(request->text, sizeof request->text, "%s", err.text);
}

void agent_drain_ask(struct agent *agent, const char *line, struct buffer *out)
{
    char how[8];
    int node = 0;
    unsigned long long number = 0;
    const struct instant now = clock_now(NULL);
    if (sscanf(line, "%llu %7s %n", &number, how, &node) != 2 || !number || !node || !line[node] ||
        strlen(line + node) >= MEMBERSHIP_NAME_LIMIT) {
        buffer_printf(out, "refused \"%.60s\" is not a request of this version\n", line);
        return;
    }
    struct request *request = find(agent->drain, number);
    if (!request)
        request = begin_request(agent->drain, number, !strcmp(how, "alone"), line + node);
    /* An agent that leaves by its own request has no server to ask any more: the last answer stands. */
    const bool goes = request->own && agent->group.leaving;
    if (!is_final(request) && !goes && instant_diff_ns(now, request->asked_at) >= again_ns)
        send_on(agent, request, now);
    const char *word = request->answered ? membership_eviction_name(request->state) : "asked";
    if (request->own && !is_final(request)) {
        word = "ends";
        if (agent->drain->go_at.ns != INSTANT_NEVER.ns)
            agent->drain->go_at = now; /* the command knows it now */
    }
    buffer_printf(out, "%s %s\n", word, request->answered ? request->text : "the server has not answered");
}

/* --- the part --- */

static int agent_drain_create(struct agent *agent, struct muster_error *err)
{
    agent->drain = mem_calloc(1, sizeof *agent->drain);
    if (!agent->drain)
        return error_set(err, MUSTER_E_NOMEM, "no memory for requests of muster drain");
    agent->drain->go_at = INSTANT_NEVER;
    return 0;
}

static struct instant agent_drain_deadline(const struct agent *agent)
{
    return agent->drain->go_at;
}

static void agent_drain_tick(struct agent *agent, struct instant now)
{
    if (!instant_reached(now, agent->drain->go_at))
        return;
    agent->drain->go_at = INSTANT_NEVER;
    if (!agent->group.leaving)
        agent_emit(agent, &(struct agent_event){.kind = AGENT_SIGNAL, .code = SIGTERM});
}

static void begin_to_go(struct agent *agent, const char *why)
{
    struct agent_drain *drain = agent->drain;
    const struct instant now = clock_now(NULL);
    if (agent->group.leaving || drain->go_at.ns != INSTANT_NEVER.ns)
        return;
    log_info(&agent->log, "this node leaves the job: %s", why);
    drain->go_at = now;
    for (int i = 0; i < REQUESTS; i++)
        if (drain->requests[i].number && drain->requests[i].own)
            drain->go_at = instant_add(now, last_word_ns);
}

static void take_answer(struct agent *agent, const struct membership_event *answer)
{
    struct request *request = answer->number ? find(agent->drain, answer->number) : NULL;
    if (!request || is_final(request))
        return;
    request->answered = true;
    request->state = answer->eviction;
    request->agent = answer->agent;
    request->own = answer->own;
    (void)snprintf(request->text, sizeof request->text, "%s", answer->reason);
}

static void agent_drain_event(struct agent *agent, const struct agent_event *event)
{
    if (event->kind == AGENT_EVICTION)
        take_answer(agent, event->membership);
    else if (event->kind == AGENT_GO)
        begin_to_go(agent, event->text);
}

static void agent_drain_destroy(struct agent *agent)
{
    mem_free(agent->drain);
    agent->drain = NULL;
}

const struct agent_part agent_drain_part = {"drain",          agent_drain_create, agent_drain_deadline,
                                            agent_drain_tick, agent_drain_event,  agent_drain_destroy};
