/* tcpstore_server_test.c - TCPStore server and client over loopback, with threads. */
#include "rendezvous/tcpstore/tcpstore_server.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/store/kv_memory.h"
#include "rendezvous/tcpstore/tcpstore_client.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "tests/support/free_port.h"
#include "tests/support/rank_threads.h"

#define LONG_NS  (240 * NS_PER_S) /* never reached where things work */
#define SHORT_NS (100 * NS_PER_MS)

static struct tcpstore_server *server_at(const char *address)
{
    struct tcpstore_server_options options = {.address = address};
    struct tcpstore_server *server = NULL;
    struct muster_error err = {0};
    if (tcpstore_server_start(&options, &server, &err))
        fail_msg("%s", err.text);
    return server;
}

static struct tcpstore_client *client_of(const struct tcpstore_server *server, struct muster_error *err)
{
    struct tcpstore_client_options options = {
        .host = "127.0.0.1", .port = tcpstore_server_port(server), .timeout_ns = LONG_NS};
    return tcpstore_client_connect(&options, err);
}

static struct tcpstore_client *must_connect(const struct tcpstore_server *server)
{
    struct muster_error err = {0};
    struct tcpstore_client *c = client_of(server, &err);
    if (!c)
        fail_msg("%s", err.text);
    return c;
}

static void must(int result, const struct muster_error *err)
{
    if (result)
        fail_msg("%s", err->text);
}

static void says(const struct muster_error *err, int code, const char *part)
{
    assert_int_equal(err->code, code);
    if (!strstr(err->text, part))
        fail_msg("\"%s\" does not say \"%s\"", err->text, part);
}

static int count_threads(void)
{
    int count = -2; /* . and .. */
    DIR *directory = opendir("/proc/self/task");
    while (directory && readdir(directory))
        count++;
    if (directory)
        (void)closedir(directory);
    return count;
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory))
        count++;
    if (directory)
        (void)closedir(directory);
    return count;
}

/* Waits until the server's numbers are as expected. For any thread: it asserts nothing. */
static int await(struct tcpstore_server *server, bool (*holds)(const struct tcpstore_server_stats *))
{
    struct tcpstore_server_stats stats;
    struct instant deadline = instant_add(clock_now(NULL), LONG_NS);
    do {
        if (instant_reached(clock_now(NULL), deadline) || tcpstore_server_stats(server, &stats, NULL))
            return -1;
        sched_yield();
    } while (!holds(&stats));
    return 0;
}

static bool one_parked(const struct tcpstore_server_stats *stats)
{
    return stats->store.parked == 1;
}

static bool none_connected(const struct tcpstore_server_stats *stats)
{
    return stats->connections == 0;
}

static bool one_dropped(const struct tcpstore_server_stats *stats)
{
    return stats->dropped == 1;
}

static void every_call(void **state)
{
    (void)state;
    GUARD(guard_tcpstore_server) struct tcpstore_server *server = server_at("127.0.0.1");
    GUARD(guard_tcpstore_client) struct tcpstore_client *c = must_connect(server);
    struct muster_error err = {0};
    scope_buffer out = {0};
    int64_t number = 0;
    bool flag = true;
    must(tcpstore_client_set(c, "a", "x\0y", 3, &err), &err);
    must(tcpstore_client_get(c, "a", &out, LONG_NS, &err), &err);
    assert_int_equal(out.length, 3);
    assert_memory_equal(out.data, "x\0y", 3);
    must(tcpstore_client_add(c, "n", 40, NULL, &err), &err);
    must(tcpstore_client_add(c, "n", 2, &number, &err), &err);
    assert_int_equal(number, 42);
    must(tcpstore_client_check(c, (const char *[]){"a", "none"}, 2, &flag, &err), &err);
    assert_false(flag);
    must(tcpstore_client_wait(c, (const char *[]){"a", "n"}, 2, LONG_NS, &err), &err);
    struct store_bytes empty = {NULL, 0}, one = {"one", 3}, two = {"two", 3};
    must(tcpstore_client_compare_set(c, "c", empty, one, &out, &err), &err);
    assert_string_equal(out.data, "one");
    must(tcpstore_client_compare_set(c, "c", two, empty, &out, &err), &err);
    assert_string_equal(out.data, "one");
    must(tcpstore_client_append(c, "c", "+", 1, &err), &err);
    must(tcpstore_client_get(c, "c", &out, 0, &err), &err); /* no time at all, but it is there */
    assert_string_equal(out.data, "one+");
    must(tcpstore_client_multi_set(c, (const char *[]){"m1", "m2"}, (struct store_bytes[]){one, empty}, 2,
                                   &err),
         &err);
    struct buffer values[2] = {{0}};
    must(tcpstore_client_multi_get(c, (const char *[]){"m1", "m2"}, 2, values, LONG_NS, &err), &err);
    assert_string_equal(values[0].data, "one");
    assert_int_equal(values[1].length, 0);
    buffer_free(&values[0]);
    buffer_free(&values[1]);
    must(tcpstore_client_num_keys(c, &number, &err), &err);
    assert_int_equal(number, 5);
    must(tcpstore_client_delete(c, "a", &flag, &err), &err);
    assert_true(flag);
    must(tcpstore_client_delete(c, "a", &flag, &err), &err);
    assert_false(flag);
    must(tcpstore_client_barrier(c, "alone", 1, LONG_NS, &err), &err);
}

static void big_values(void **state)
{
    (void)state;
    enum { VALUE = 8 << 20 };
    GUARD(guard_tcpstore_server) struct tcpstore_server *server = server_at("127.0.0.1");
    GUARD(guard_tcpstore_client) struct tcpstore_client *c = must_connect(server);
    struct muster_error err = {0};
    scope_buffer out = {0};
    scope_free char *value = mem_calloc(1, VALUE + 1);
    for (size_t i = 0; i < VALUE; i++)
        value[i] = (char)(i * 2654435761u >> 13);
    must(tcpstore_client_set(c, "big", value, VALUE, &err), &err);
    must(tcpstore_client_get(c, "big", &out, LONG_NS, &err), &err);
    assert_int_equal(out.length, VALUE);
    assert_memory_equal(out.data, value, VALUE);
    assert_int_equal(tcpstore_client_set(c, "big", value, VALUE + 1, &err), -1);
    says(&err, MUSTER_E_LIMIT, "set \"big\"");
    says(&err, MUSTER_E_LIMIT, "a value of 8388609 bytes: at most 8388608 are allowed");
    must(tcpstore_client_get(c, "big", &out, LONG_NS, &err), &err); /* nothing was sent: still in step */
}

static void prefixes_and_both_families(void **state)
{
    (void)state;
    GUARD(guard_tcpstore_server) struct tcpstore_server *server = server_at(NULL);
    struct muster_error err = {0};
    scope_buffer out = {0};
    struct tcpstore_client_options options = {
        .host = "localhost", .port = tcpstore_server_port(server), .prefix = "job/0", .timeout_ns = LONG_NS};
    GUARD(guard_tcpstore_client) struct tcpstore_client *named = tcpstore_client_connect(&options, &err);
    if (!named)
        fail_msg("%s", err.text);
    GUARD(guard_tcpstore_client) struct tcpstore_client *plain = must_connect(server);
    must(tcpstore_client_set(named, "k", "v", 1, &err), &err);
    must(tcpstore_client_get(plain, "job/0/k", &out, LONG_NS, &err), &err);
    assert_string_equal(out.data, "v");
}

static void a_wait_that_times_out_leaves_the_client_usable(void **state)
{
    (void)state;
    GUARD(guard_tcpstore_server) struct tcpstore_server *server = server_at("127.0.0.1");
    GUARD(guard_tcpstore_client) struct tcpstore_client *c = must_connect(server);
    struct muster_error err = {0};
    scope_buffer out = {0};
    char where[64];
    struct instant start = clock_now(NULL);
    assert_int_equal(tcpstore_client_get(c, "late", &out, SHORT_NS, &err), -1);
    assert_true(instant_diff_ns(clock_now(NULL), start) >= SHORT_NS);
    (void)snprintf(where, sizeof where, "TCPStore at 127.0.0.1:%u: get of \"late\", after ",
                   tcpstore_server_port(server));
    says(&err, MUSTER_E_TIMEOUT, where);
    assert_int_equal(tcpstore_client_wait(c, (const char *[]){"one", "two", "three"}, 3, 0, &err), -1);
    says(&err, MUSTER_E_TIMEOUT, "wait for \"one\" and 2 more");
    must(tcpstore_client_set(c, "late", "now", 3, &err), &err);
    must(tcpstore_client_get(c, "late", &out, LONG_NS, &err), &err);
    assert_string_equal(out.data, "now");
}

enum { RANKS = 8, TURNS = 30 };

static int gather_and_meet(int rank, int world_size, void *context)
{
    struct muster_error err = {0};
    scope_buffer out = {0};
    GUARD(guard_tcpstore_client) struct tcpstore_client *c = client_of(context, &err);
    char key[32], text[32];
    int failed = !c;
    for (int turn = 0; turn < TURNS && !failed; turn++) {
        (void)snprintf(key, sizeof key, "%d", rank);
        (void)snprintf(text, sizeof text, "%d of %d", turn, rank);
        failed = tcpstore_client_set(c, key, text, strlen(text), &err);
        failed = failed || tcpstore_client_barrier(c, "written", world_size, LONG_NS, &err);
        for (int other = 0; other < world_size && !failed; other++) {
            (void)snprintf(key, sizeof key, "%d", other);
            (void)snprintf(text, sizeof text, "%d of %d", turn, other);
            failed = tcpstore_client_get(c, key, &out, LONG_NS, &err);
            if (!failed && strcmp(out.data, text) != 0) {
                fprintf(stderr, "rank %d: \"%s\", not \"%s\"\n", rank, out.data, text);
                return -1;
            }
        }
        failed = failed || tcpstore_client_barrier(c, "read", world_size, LONG_NS, &err);
    }
    if (failed)
        fprintf(stderr, "rank %d: %s\n", rank, err.text);
    return failed;
}

static void many_clients_meet_again_and_again(void **state)
{
    (void)state;
    GUARD(guard_tcpstore_server) struct tcpstore_server *server = server_at("127.0.0.1");
    assert_int_equal(rank_threads_run(RANKS, gather_and_meet, server), 0);
    assert_int_equal(await(server, none_connected), 0);
    struct tcpstore_server_stats stats;
    struct muster_error err = {0};
    must(tcpstore_server_stats(server, &stats, &err), &err);
    assert_int_equal(stats.accepted, RANKS);
    assert_int_equal(stats.dropped, 0);
    assert_int_equal(stats.store.keys, RANKS + 2); /* a barrier leaves its counter */
}

enum { STREAMED = 20000, STREAM_KEYS = 10 };

/* A long stream of requests without a reply, under which the server naps, and then its remains. */
static int stream_and_look(int rank, int world_size, void *context)
{
    struct muster_error err = {0};
    scope_buffer out = {0};
    GUARD(guard_tcpstore_client) struct tcpstore_client *c = client_of(context, &err);
    char key[32], text[32];
    int failed = !c;
    (void)world_size;
    for (int i = 0; i < STREAMED && !failed; i++) {
        (void)snprintf(key, sizeof key, "%d of %d", i % STREAM_KEYS, rank);
        (void)snprintf(text, sizeof text, "%d", i);
        failed = tcpstore_client_set(c, key, text, strlen(text), &err);
    }
    for (int i = STREAMED - STREAM_KEYS; i < STREAMED && !failed; i++) {
        (void)snprintf(key, sizeof key, "%d of %d", i % STREAM_KEYS, rank);
        (void)snprintf(text, sizeof text, "%d", i);
        failed = tcpstore_client_get(c, key, &out, LONG_NS, &err);
        if (!failed && strcmp(out.data, text) != 0) {
            fprintf(stderr, "rank %d: \"%s\", not \"%s\"\n", rank, out.data, text);
            return -1;
        }
    }
    if (failed)
        fprintf(stderr, "rank %d: %s\n", rank, err.text);
    return failed;
}

static void streams_without_a_reply(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS; ranks *= RANKS) {
        GUARD(guard_tcpstore_server) struct tcpstore_server *server = server_at("127.0.0.1");
        assert_int_equal(rank_threads_run(ranks, stream_and_look, server), 0);
        struct tcpstore_server_stats stats;
        struct muster_error err = {0};
        must(tcpstore_server_stats(server, &stats, &err), &err);
        assert_int_equal(stats.store.keys, ranks * STREAM_KEYS);
        assert_true(stats.requests >= (uint64_t)ranks * STREAMED);
    }
}

/* Rank 0 starts a new round as soon as rank 1 is parked. */
static int park_and_be_told(int rank, int world_size, void *context)
{
    struct muster_error err = {0};
    (void)world_size;
    if (rank == 0)
        return await(context, one_parked) || tcpstore_server_new_round(context, &err) ? -1 : 0;
    GUARD(guard_tcpstore_client) struct tcpstore_client *c = client_of(context, &err);
    scope_buffer out = {0};
    if (!c || tcpstore_client_set(c, "stale", "id", 2, &err) ||
        !tcpstore_client_get(c, "never", &out, LONG_NS, &err))
        return -1;
    if (err.code != MUSTER_E_PEER || !strstr(err.text, "get of \"never\""))
        return -1;
    if (!tcpstore_client_set(c, "k", "v", 1, &err) || err.code != MUSTER_E_STATE)
        return -1;
    return 0;
}

static void a_new_round_is_empty_and_alone(void **state)
{
    (void)state;
    GUARD(guard_tcpstore_server) struct tcpstore_server *server = server_at("127.0.0.1");
    assert_int_equal(rank_threads_run(2, park_and_be_told, server), 0);
    GUARD(guard_tcpstore_client) struct tcpstore_client *c = must_connect(server);
    struct tcpstore_server_stats stats;
    struct muster_error err = {0};
    bool present = true;
    must(tcpstore_client_check(c, (const char *[]){"stale"}, 1, &present, &err), &err);
    assert_false(present);
    must(tcpstore_server_stats(server, &stats, &err), &err);
    assert_int_equal(stats.connections, 1);
    assert_int_equal(stats.store.round, 1);
    assert_int_equal(stats.store.parked, 0);
}

/* Until it serves it has no thread, and who comes waits in the backlog. */
static void who_comes_early_is_served_later(void **state)
{
    (void)state;
    struct tcpstore_server_options options = {.address = "127.0.0.1"};
    struct tcpstore_server *server GUARD(guard_tcpstore_server) = NULL;
    struct muster_error err = {0};
    struct tcpstore_server_stats stats;
    int threads = count_threads();
    must(tcpstore_server_listen(&options, &server, &err), &err);
    must(tcpstore_server_stats(server, &stats, &err), &err); /* answered here */
    struct pollfd knock = {.fd = tcpstore_server_fd(server), .events = POLLIN};
    assert_int_equal(poll(&knock, 1, 0), 0);
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(tcpstore_server_port(server))};
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    scope_close int early = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(early, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(poll(&knock, 1, 120000), 1);
    must(tcpstore_server_new_round(server, &err), &err); /* it meant the round before */
    char byte;
    assert_true(read(early, &byte, 1) <= 0);
    assert_int_equal(count_threads(), threads);
    must(tcpstore_server_serve(server, &err), &err);
    must(tcpstore_server_serve(server, &err), &err);
    assert_int_equal(count_threads(), threads + 1);
    GUARD(guard_tcpstore_client) struct tcpstore_client *client = must_connect(server);
    must(tcpstore_client_set(client, "key", "value", 5, &err), &err);
    struct tcpstore_server *idle = NULL; /* which ends without having served */
    must(tcpstore_server_listen(&options, &idle, &err), &err);
    tcpstore_server_destroy(idle);
}

static void an_occupied_port_names_its_holder(void **state)
{
    (void)state;
    GUARD(guard_tcpstore_server) struct tcpstore_server *server = server_at(NULL);
    struct tcpstore_server_options options = {.port = tcpstore_server_port(server)};
    struct tcpstore_server *second = NULL;
    struct muster_error err = {0};
    char port[32], pid[32];
    (void)snprintf(port, sizeof port, "port %u is in use by", options.port);
    (void)snprintf(pid, sizeof pid, "pid %d (", (int)getpid());
    assert_int_equal(tcpstore_server_start(&options, &second, &err), -1);
    says(&err, MUSTER_E_IO, port);
    says(&err, MUSTER_E_IO, pid);
    options.address = "127.0.0.1";
    assert_int_equal(tcpstore_server_start(&options, &second, &err), -1);
    says(&err, MUSTER_E_IO, pid);
    options.address = "localhost";
    assert_int_equal(tcpstore_server_start(&options, &second, &err), -1);
    says(&err, MUSTER_E_INVALID, "\"localhost\": not a numeric address");
    assert_null(second);
}

static int raw_socket(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

struct lines {
    int count;
    char last[256];
};

static void keep_line(void *context, enum log_level level, const char *line)
{
    struct lines *lines = context;
    (void)level;
    lines->count++;
    (void)snprintf(lines->last, sizeof lines->last, "%s", line);
}

static void other_programs_are_dropped_and_named(void **state)
{
    (void)state;
    struct lines lines = {0};
    struct log_sink log = {keep_line, &lines, LOG_LEVEL_DEBUG, NULL};
    struct tcpstore_server_options options = {.address = "127.0.0.1", .log = &log};
    struct tcpstore_server *server = NULL;
    struct muster_error err = {0};
    char byte;
    must(tcpstore_server_start(&options, &server, &err), &err);
    scope_close int http = raw_socket(tcpstore_server_port(server));
    assert_int_equal(write(http, "GET / HTTP/1.1\r\n\r\n", 18), 18);
    assert_true(recv(http, &byte, 1, 0) <= 0);
    assert_int_equal(await(server, one_dropped), 0);
    for (int i = 0; i < 30; i++) {
        scope_close int probe = raw_socket(tcpstore_server_port(server));
        assert_int_equal(write(probe, "x", 1), 1);
        assert_true(recv(probe, &byte, 1, 0) <= 0);
    }
    tcpstore_server_destroy(server);      /* and its thread: now the lines may be read */
    assert_in_range(lines.count, 10, 20); /* not 31 */
    assert_non_null(strstr(lines.last, "closed the connection of 127.0.0.1 port "));
    assert_non_null(strstr(lines.last, "first byte is 0x78, and the bytes after it are neither"));
}

static void silent_peers_are_dropped(void **state)
{
    (void)state;
    struct tcpstore_server_options options = {.address = "127.0.0.1", .greeting_ns = 50 * NS_PER_MS};
    struct tcpstore_server *server = NULL;
    struct muster_error err = {0};
    char byte;
    must(tcpstore_server_start(&options, &server, &err), &err);
    scope_close int silent = raw_socket(tcpstore_server_port(server));
    assert_true(recv(silent, &byte, 1, 0) <= 0);
    tcpstore_server_destroy(server);
}

/* The oldest of too many that say nothing goes, however long it might have waited; who spoke stays. */
static void silent_peers_make_room(void **state)
{
    (void)state;
    enum { TOLERATED = 4, PEERS = 12 };
    struct tcpstore_server_options options = {
        .address = "127.0.0.1", .silent = TOLERATED, .greeting_ns = 600 * NS_PER_S};
    struct tcpstore_server *server = NULL;
    struct tcpstore_server_stats stats;
    struct muster_error err = {0};
    int peers[PEERS];
    char byte;
    must(tcpstore_server_start(&options, &server, &err), &err);
    GUARD(guard_tcpstore_client) struct tcpstore_client *first = client_of(server, &err);
    must(first ? 0 : -1, &err);
    for (int i = 0; i < PEERS; i++)
        peers[i] = raw_socket(tcpstore_server_port(server));
    for (int i = 0; i < PEERS - TOLERATED; i++)
        assert_true(recv(peers[i], &byte, 1, 0) <= 0);
    GUARD(guard_tcpstore_client) struct tcpstore_client *second = client_of(server, &err);
    must(second ? tcpstore_client_set(second, "in", "", 0, &err) : -1, &err);
    must(tcpstore_client_set(first, "still in", "", 0, &err), &err);
    must(tcpstore_server_stats(server, &stats, &err), &err);
    assert_in_range(stats.connections, 2 + TOLERATED - 1,
                    2 + TOLERATED); /* the second was silent for a moment */
    for (int i = 0; i < PEERS; i++)
        close(peers[i]);
    tcpstore_client_destroy(first);
    tcpstore_client_destroy(second);
    first = second = NULL;
    tcpstore_server_destroy(server);
}

static int come_or_go(int rank, int world_size, void *context)
{
    struct tcpstore_server *server = ((void **)context)[0];
    struct tcpstore_client *first = ((void **)context)[1];
    struct muster_error err = {0};
    (void)world_size;
    if (rank == 0) {
        clock_sleep_until(
            instant_add(clock_now(NULL), SHORT_NS)); /* so that the other one meets a full server */
        tcpstore_client_destroy(first);
        return 0;
    }
    GUARD(guard_tcpstore_client) struct tcpstore_client *c = client_of(server, &err);
    return c && !tcpstore_client_set(c, "in", "", 0, &err) ? 0 : -1;
}

static void a_full_server_serves_the_next_when_one_leaves(void **state)
{
    (void)state;
    struct tcpstore_server_options options = {.address = "127.0.0.1", .connections = 1};
    struct tcpstore_server *server = NULL;
    struct muster_error err = {0};
    must(tcpstore_server_start(&options, &server, &err), &err);
    void *both[] = {server, must_connect(server)};
    assert_int_equal(rank_threads_run(2, come_or_go, both), 0);
    tcpstore_server_destroy(server);
}

enum { HELD = 8 };

static bool all_connected(const struct tcpstore_server_stats *stats)
{
    return stats->connections == HELD;
}

/* A connection that the server closes lives on in a process that was started in the meantime, until that
 * executes its program: the server must have forgotten it all the same. */
static void a_process_that_starts_holds_no_closed_connection(void **state)
{
    (void)state;
    struct tcpstore_server *server = server_at("127.0.0.1");
    struct muster_error err = {0};
    int raw[HELD];
    for (int i = 0; i < HELD; i++)
        raw[i] = raw_socket(tcpstore_server_port(server));
    assert_int_equal(await(server, all_connected), 0);
    pid_t holder = fork();
    if (holder == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    assert_true(holder > 0);
    for (int i = 0; i < HELD; i++)
        assert_int_equal(shutdown(raw[i], SHUT_RDWR), 0);
    int closed = await(server, none_connected);
    struct tcpstore_client *c = must_connect(server);
    for (int i = 0; i < 100; i++)
        must(tcpstore_client_set(c, "k", "v", 1, &err), &err);
    tcpstore_client_destroy(c);
    for (int i = 0; i < HELD; i++)
        close(raw[i]);
    tcpstore_server_destroy(server);
    (void)kill(holder, SIGKILL);
    assert_int_equal(waitpid(holder, NULL, 0), holder);
    assert_int_equal(closed, 0);
}

static void nobody_there(void **state)
{
    (void)state;
    struct tcpstore_client_options options = {
        .host = "127.0.0.1", .port = test_free_port(), .timeout_ns = SHORT_NS};
    struct muster_error err = {0};
    char where[64];
    (void)snprintf(where, sizeof where, "cannot connect to the TCPStore at 127.0.0.1:%u: ", options.port);
    assert_null(tcpstore_client_connect(&options, &err));
    says(&err, MUSTER_E_TIMEOUT, where);
    says(&err, MUSTER_E_TIMEOUT, "Connection refused");
    options.port = 0;
    assert_null(tcpstore_client_connect(&options, &err));
    says(&err, MUSTER_E_INVALID, "needs a host and a port");
}

static void nothing_leaks(void **state)
{
    (void)state;
    int before = open_descriptors();
    faults_begin();
    for (int i = 0; i < 3; i++) {
        struct tcpstore_server *server = server_at("127.0.0.1");
        struct tcpstore_client *a = must_connect(server), *b = must_connect(server);
        struct muster_error err = {0};
        must(tcpstore_client_set(a, "k", "v", 1, &err), &err);
        int raw = raw_socket(tcpstore_server_port(server));
        if (i == 1)
            must(tcpstore_server_new_round(server, &err), &err);
        tcpstore_server_destroy(server); /* with three connected */
        assert_int_equal(tcpstore_client_num_keys(b, &(int64_t){0}, &err), -1);
        assert_true(err.code == MUSTER_E_PEER || err.code == MUSTER_E_IO);
        tcpstore_client_destroy(a);
        tcpstore_client_destroy(b);
        close(raw);
    }
    assert_int_equal(faults_end(), 0);
    assert_int_equal(open_descriptors(), before);
}

static int start_and_stop(void *context)
{
    struct tcpstore_server_options options = {.address = context};
    struct tcpstore_server *server = NULL;
    if (tcpstore_server_start(&options, &server, NULL))
        return -1;
    tcpstore_server_destroy(server);
    return 0;
}

static int short_session(void *context)
{
    const struct tcpstore_client_options *options = context;
    GUARD(guard_tcpstore_client) struct tcpstore_client *c = tcpstore_client_connect(options, NULL);
    scope_buffer out = {0};
    if (!c || tcpstore_client_set(c, "k", "v", 1, NULL) || tcpstore_client_get(c, "k", &out, LONG_NS, NULL) ||
        tcpstore_client_barrier(c, "b", 1, LONG_NS, NULL))
        return -1;
    return 0;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    faults_sweep(start_and_stop, (void *)"127.0.0.1");
    /* The client's server is another process, so that only the client's memory fails. */
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct tcpstore_server_options options = {.address = "127.0.0.1"};
        struct tcpstore_server *server = NULL;
        uint16_t port = 0;
        char ignored;
        close(ends[0]);
        if (!tcpstore_server_start(&options, &server, NULL))
            port = tcpstore_server_port(server);
        if (write(ends[1], &port, sizeof port) != sizeof port)
            _exit(1);
        (void)!read(ends[1], &ignored, 1); /* until the parent closes its end */
        tcpstore_server_destroy(server);
        _exit(0);
    }
    close(ends[1]);
    struct tcpstore_client_options options = {.host = "127.0.0.1", .timeout_ns = LONG_NS};
    assert_int_equal(read(ends[0], &options.port, sizeof options.port), sizeof options.port);
    faults_sweep(short_session, &options);
    close(ends[0]);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void ignore_signal(int number)
{
    (void)number;
}

static void signals_disturb_nothing(void **state)
{
    (void)state;
    GUARD(guard_tcpstore_server) struct tcpstore_server *server = server_at("127.0.0.1");
    struct sigaction action = {.sa_handler = ignore_signal},
                     before; /* no SA_RESTART: calls are interrupted */
    struct itimerval storm = {{0, 1000}, {0, 1000}}, calm = {{0, 0}, {0, 0}};
    struct muster_error err = {0};
    scope_buffer out = {0};
    scope_free char *value = mem_calloc(1, 1 << 20);
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &storm, NULL), 0);
    GUARD(guard_tcpstore_client) struct tcpstore_client *c = must_connect(server);
    for (int i = 0; i < 50; i++) {
        must(tcpstore_client_set(c, "k", value, 1 << 20, &err), &err);
        must(tcpstore_client_get(c, "k", &out, LONG_NS, &err), &err);
        assert_int_equal(out.length, 1 << 20);
    }
    assert_int_equal(tcpstore_client_get(c, "none", &out, SHORT_NS, &err), -1);
    assert_int_equal(err.code, MUSTER_E_TIMEOUT);
    assert_int_equal(setitimer(ITIMER_REAL, &calm, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
}

/* The runtime's use of kv_store: each rank writes its address, and reads all addresses. */
static int bootstrap(const struct kv_store *kv, int rank, int world_size)
{
    struct muster_error err = {0};
    scope_buffer out = {0};
    char key[32];
    int64_t arrived = 0;
    (void)snprintf(key, sizeof key, "addr/%d", rank);
    int failed = kv->set(kv->ctx, key, &rank, sizeof rank, &err);
    for (int other = 0; other < world_size && !failed; other++) {
        (void)snprintf(key, sizeof key, "addr/%d", other);
        failed = kv->get(kv->ctx, key, &out, LONG_NS, &err) || out.length != sizeof rank ||
                 memcmp(out.data, &other, sizeof other) != 0;
    }
    failed = failed || kv->add(kv->ctx, "arrived", 1, &arrived, &err) || arrived < 1 || arrived > world_size;
    if (!failed && kv->get(kv->ctx, "never", &out, NS_PER_MS, &err) != -1)
        failed = 1;
    if (failed || err.code != MUSTER_E_TIMEOUT)
        fprintf(stderr, "rank %d: %s\n", rank, err.text);
    return failed || err.code != MUSTER_E_TIMEOUT ? -1 : 0;
}

static int bootstrap_in_memory(int rank, int world_size, void *context)
{
    struct kv_store kv = kv_memory_store(context);
    return bootstrap(&kv, rank, world_size);
}

static int bootstrap_over_tcp(int rank, int world_size, void *context)
{
    GUARD(guard_tcpstore_client) struct tcpstore_client *c = client_of(context, NULL);
    if (!c)
        return -1;
    struct kv_store kv = tcpstore_client_kv(c);
    return bootstrap(&kv, rank, world_size);
}

static void the_runtimes_face(void **state)
{
    (void)state;
    struct kv_memory *memory = kv_memory_create(NULL);
    assert_int_equal(rank_threads_run(RANKS, bootstrap_in_memory, memory), 0);
    kv_memory_destroy(memory);
    GUARD(guard_tcpstore_server) struct tcpstore_server *server = server_at("127.0.0.1");
    assert_int_equal(rank_threads_run(RANKS, bootstrap_over_tcp, server), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call),
        cmocka_unit_test(big_values),
        cmocka_unit_test(prefixes_and_both_families),
        cmocka_unit_test(a_wait_that_times_out_leaves_the_client_usable),
        cmocka_unit_test(many_clients_meet_again_and_again),
        cmocka_unit_test(streams_without_a_reply),
        cmocka_unit_test(a_new_round_is_empty_and_alone),
        cmocka_unit_test(who_comes_early_is_served_later),
        cmocka_unit_test(an_occupied_port_names_its_holder),
        cmocka_unit_test(other_programs_are_dropped_and_named),
        cmocka_unit_test(silent_peers_are_dropped),
        cmocka_unit_test(silent_peers_make_room),
        cmocka_unit_test(a_full_server_serves_the_next_when_one_leaves),
        cmocka_unit_test(a_process_that_starts_holds_no_closed_connection),
        cmocka_unit_test(nobody_there),
        cmocka_unit_test(nothing_leaks),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(signals_disturb_nothing),
        cmocka_unit_test(the_runtimes_face),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
