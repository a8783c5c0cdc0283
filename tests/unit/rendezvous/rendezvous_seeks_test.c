/* rendezvous_seeks_test.c - agents that take their server for lost, again and again, at random instants: each
 * job ends, with success. Three nodes of an elastic job over loopback, in one process, with workers that
 * exist in the reports alone.
 *
 *     rendezvous_seeks_test FIRST LAST    the seeds; without: 1 to 4
 *
 * With a third of the votes thrown away, about 1 job in 200 ends without one of its agents. That agent seeks,
 * is lost after 0.5 s, and the others end the job in that moment: the server is gone before the agent finds
 * it. A server that did not stay for a lost node left an agent in 1 job of 4. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/membership.h"
#include "rendezvous/moving/moving_internal.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/free_port.h"

enum { NODES = 3, ROOM = NODES + 1, PATIENCE_S = 60 };

static uint64_t first_seed = 1, last_seed = 4;

struct node {
    struct membership *membership; /* NULL: it has left */
    struct world_id world;         /* of its workers; 0,0: it has none */
    bool done, stops;
    struct instant stopped_at; /* stops: its workers have ended then */
    struct instant wakes_at;   /* it is starved until then */
    struct muster_error err;
};

struct job {
    uint64_t random, seed;
    uint16_t ports[ROOM];
    struct node nodes[ROOM];
    pthread_t closing[ROOM]; /* an end waits for the other nodes */
    bool closes[ROOM], ends;
    const struct log_sink *log;
};

static uint64_t draw(struct job *job, uint64_t below)
{
    job->random = job->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (job->random >> 33) % below;
}

static void open_node(struct job *job, int i, int most)
{
    static const char *const names[ROOM] = {"a", "b", "c", "d"};
    const struct membership_options options = {.mode = i ? MEMBERSHIP_CLIENT : MEMBERSHIP_SERVER,
                                               .job_id = "job",
                                               .agent_name = names[i],
                                               .node_rank = -1,
                                               .min_nodes = 2,
                                               .max_nodes = most,
                                               .elastic = true,
                                               .local_world_size = 1,
                                               .role = "trainer",
                                               .max_restarts = 1000,
                                               .host = "127.0.0.1",
                                               .port = job->ports[0],
                                               .store_addr = names[i],
                                               .store_port = 29500,
                                               .join_timeout_ns = PATIENCE_S * NS_PER_S,
                                               .last_call_ns = 8 * NS_PER_S,
                                               .regroup_ns = NS_PER_S,
                                               .vote_port = job->ports[i],
                                               .vote_addr = "127.0.0.1",
                                               .vote_host = "127.0.0.1",
                                               .log = job->log};
    job->nodes[i] = (struct node){.membership = membership_open(&options, &job->nodes[i].err)};
    if (!job->nodes[i].membership)
        fail_msg("%s", job->nodes[i].err.text);
}

static void *close_node(void *membership)
{
    membership_destroy(membership, 2 * NS_PER_S);
    return NULL;
}

static void report(struct job *job, int i, enum membership_report_kind kind)
{
    struct node *node = &job->nodes[i];
    if (membership_report(node->membership, node->world, kind, NULL, &node->err))
        fail_msg("seed %" PRIu64 ", node %d: %s", job->seed, i, node->err.text);
}

static void on_event(struct job *job, int i, const struct membership_event *event)
{
    struct node *node = &job->nodes[i];
    switch (event->kind) {
    case MEMBERSHIP_EVENT_WORLD:
        node->world = event->world.id;
        node->done = node->stops = false;
        report(job, i, MEMBERSHIP_REPORT_RUNNING);
        break;
    case MEMBERSHIP_EVENT_STOP:
        node->world = event->stopped;
        node->stops = true;
        node->stopped_at = instant_add(clock_now(NULL), (int64_t)draw(job, 60) * NS_PER_MS);
        break;
    case MEMBERSHIP_EVENT_VERDICT:
        if (event->exit_code)
            fail_msg("seed %" PRIu64 ", node %d: %s", job->seed, i, event->reason);
        job->closes[i] = !pthread_create(&job->closing[i], NULL, close_node, node->membership);
        assert_true(job->closes[i]);
        node->membership = NULL;
        break;
    default:
        break;
    }
}

/* Its workers end. */
static void work(struct job *job, int i)
{
    struct node *node = &job->nodes[i];
    if (!node->world.epoch)
        return;
    if (node->stops && instant_reached(clock_now(NULL), node->stopped_at)) {
        report(job, i, MEMBERSHIP_REPORT_STOPPED);
        node->world = (struct world_id){0};
        node->stops = false;
    } else if (!node->stops && job->ends && !node->done) {
        node->done = true;
        report(job, i, MEMBERSHIP_REPORT_DONE);
    }
}

static void turn(struct job *job)
{
    struct pollfd fds[ROOM];
    struct membership_event event;
    for (int i = 0; i < ROOM; i++) {
        struct node *node = &job->nodes[i];
        fds[i] = (struct pollfd){.fd = -1};
        if (!instant_reached(clock_now(NULL), node->wakes_at))
            continue;
        for (int got;
             node->membership && (got = membership_next(node->membership, &event, &node->err)) != 0;) {
            if (got < 0)
                fail_msg("seed %" PRIu64 ", node %d: %s", job->seed, i, node->err.text);
            on_event(job, i, &event);
        }
        if (node->membership)
            work(job, i);
        fds[i] =
            (struct pollfd){.fd = node->membership ? membership_fd(node->membership) : -1, .events = POLLIN};
    }
    (void)poll(fds, ROOM, 2);
}

static void run_for(struct job *job, int64_t ns)
{
    const struct instant limit = instant_add(clock_now(NULL), ns);
    do
        turn(job);
    while (!instant_reached(clock_now(NULL), limit));
}

/* The agent takes its server for lost, which it is not. */
static void seek(struct job *job, int i)
{
    struct takeover_actions actions;
    if (!job->nodes[i].membership)
        return;
    struct transport *c = job->nodes[i].membership->transport;
    takeover_gone(&c->rules, TAKEOVER_BROKEN, clock_now(NULL), &actions);
    moving_act(c, &actions);
    if (!draw(job, 4))
        job->nodes[i].wakes_at = instant_add(clock_now(NULL), (int64_t)draw(job, 300) * NS_PER_MS);
}

static bool is_there(const struct job *job)
{
    bool there = false;
    for (int i = 0; i < ROOM; i++)
        there |= job->nodes[i].membership != NULL;
    return there;
}

static void finish(struct job *job)
{
    const struct instant limit = instant_add(clock_now(NULL), PATIENCE_S * NS_PER_S);
    job->ends = true;
    while (is_there(job)) {
        if (instant_reached(clock_now(NULL), limit))
            fail_msg("seed %" PRIu64 ": the job stands still", job->seed);
        turn(job);
    }
    for (int i = 0; i < ROOM; i++)
        if (job->closes[i])
            assert_int_equal(pthread_join(job->closing[i], NULL), 0);
}

static void play(uint64_t seed)
{
    static const int pauses_ms[] = {0, 10, 50, 200, 600};
    struct job job = {.random = seed, .seed = seed};
    for (int i = 0; i < NODES; i++)
        job.ports[i] = test_free_port();
    for (int i = 0; i < NODES; i++)
        open_node(&job, i, NODES);
    while (!job.nodes[0].world.epoch || !job.nodes[1].world.epoch || !job.nodes[2].world.epoch)
        turn(&job);
    for (uint64_t left = 1 + draw(&job, 5); left; left--) {
        run_for(&job, (int64_t)draw(&job, 1 + (uint64_t)pauses_ms[draw(&job, 5)]) * NS_PER_MS);
        for (int i = 0; i < NODES; i++)
            if (draw(&job, 2))
                seek(&job, i);
    }
    run_for(&job, (int64_t)draw(&job, 200) * NS_PER_MS);
    job.ends = true;
    if (draw(&job, 2)) {
        run_for(&job, (int64_t)draw(&job, 30) * NS_PER_MS);
        seek(&job, 1 + (int)draw(&job, 2)); /* at the exit barrier */
    }
    finish(&job);
}

static void note_warning(void *context, enum log_level level, const char *line)
{
    if (level == LOG_LEVEL_WARNING && strstr(line, "this node cannot vote"))
        (void)snprintf(context, 256, "%.255s", line);
}

/* The node runs as a member, and says that it cannot vote. */
static void the_port_of_a_voter_is_taken(void **state)
{
    char said[256] = "", expected[128];
    const struct log_sink log = {.write = note_warning, .context = said};
    struct job job = {.seed = 1, .random = 1, .log = &log};
    for (int i = 0; i < NODES; i++)
        job.ports[i] = test_free_port();
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(job.ports[1]), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)state;
    assert_int_equal(bind(holder, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(holder, 1), 0);
    for (int i = 0; i < NODES; i++)
        open_node(&job, i, NODES);
    while (!job.nodes[1].world.epoch || !said[0])
        turn(&job);
    (void)snprintf(expected, sizeof expected, "port %u, which was reserved for it: ", (unsigned)job.ports[1]);
    assert_non_null(strstr(said, expected));
    finish(&job);
    assert_int_equal(close(holder), 0);
}

static struct takeover *rules_of(struct job *job, int i)
{
    return &job->nodes[i].membership->transport->rules;
}

static void open_two_and_a_spare(struct job *job)
{
    for (int i = 0; i < ROOM; i++)
        job->ports[i] = test_free_port();
    open_node(job, 0, 2);
    open_node(job, 1, 2);
    while (!job->nodes[0].world.epoch || !job->nodes[1].world.epoch)
        turn(job);
    open_node(job, 2, 2);
}

/* Two nodes, and two spares: the first spare takes a lost node's place, and the other one becomes a voter. It
 * gets no world, and hears of its vote at once: the next loss may be the first spare's. */
static void a_spare_that_becomes_a_voter_with_a_new_world_opens_its_door(void **state)
{
    struct job job = {.seed = 1, .random = 1};
    (void)state;
    open_two_and_a_spare(&job);
    while (rules_of(&job, 0)->known.voter_count != 3) /* the first spare */
        turn(&job);
    open_node(&job, 3, 2);
    run_for(&job, 50 * NS_PER_MS);
    membership_destroy(job.nodes[1].membership, 0);
    job.nodes[1] = (struct node){0};
    const struct instant limit = instant_add(clock_now(NULL), PATIENCE_S * NS_PER_S);
    while (!job.nodes[2].world.epoch || !job.nodes[3].membership->transport->door.transport) {
        if (instant_reached(clock_now(NULL), limit))
            fail_msg("the second spare does not know that it votes");
        turn(&job);
    }
    assert_int_equal(rules_of(&job, 3)->known.round, rules_of(&job, 0)->known.round);
    assert_true(record_find_voter(&rules_of(&job, 3)->known, rules_of(&job, 3)->self.incarnation) == 2);
    finish(&job);
}

/* Two nodes are left, of which the serving one goes on without the other: it is the only voter again. */
static void a_spare_that_is_lost_votes_no_more(void **state)
{
    struct job job = {.seed = 1, .random = 1};
    (void)state;
    open_two_and_a_spare(&job);
    while (rules_of(&job, 0)->known.voter_count != 3 || rules_of(&job, 1)->known.voter_count != 3)
        turn(&job);
    membership_destroy(job.nodes[2].membership, 0);
    job.nodes[2] = (struct node){0};
    const struct instant limit = instant_add(clock_now(NULL), PATIENCE_S * NS_PER_S);
    while (rules_of(&job, 0)->known.voter_count != 1 || rules_of(&job, 1)->known.voter_count != 1) {
        if (instant_reached(clock_now(NULL), limit))
            fail_msg("the lost spare is a voter still");
        turn(&job);
    }
    open_node(&job, 3, 2);
    while (rules_of(&job, 1)->known.voter_count != 3) {
        if (instant_reached(clock_now(NULL), limit))
            fail_msg("the next spare is no voter");
        turn(&job);
    }
    finish(&job);
}

static void a_job_ends_however_often_its_agents_seek(void **state)
{
    (void)state;
    for (uint64_t seed = first_seed; seed <= last_seed; seed++)
        play(seed);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_port_of_a_voter_is_taken),
        cmocka_unit_test(a_spare_that_becomes_a_voter_with_a_new_world_opens_its_door),
        cmocka_unit_test(a_spare_that_is_lost_votes_no_more),
        cmocka_unit_test(a_job_ends_however_often_its_agents_seek)};
    if (argc == 3) {
        first_seed = strtoull(argv[1], NULL, 10);
        last_seed = strtoull(argv[2], NULL, 10);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
