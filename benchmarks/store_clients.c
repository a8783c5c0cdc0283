/* store_clients.c - threads with clients in C, with their orders on standard input: the counterpart of
 * support/store_clients.py for store.py, with the same arguments and lines.
 *
 *     store_clients FIRST THREADS ALL NAME=PORT...
 *
 * Thread i is client FIRST + i of ALL. A NAME that begins with "zeromq" is spoken to over ZeroMQ, any other
 * with our TCPStore client. A line "SERVER OPERATION COUNT TURN" is answered by "ready" once every thread
 * waits for the start; the next line starts them, and "START_NS END_NS" answers when all have made COUNT
 * calls. */
#include "benchmarks/store_clients.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/text.h"

enum { SERVERS = 8, CLIENTS = 64 };

static const char value[] = "sixteen bytes...";

struct server {
    const char *name;
    const struct store_calls *calls;
    uint16_t port;
};

struct job {
    int server; /* index */
    char operation[24];
    int64_t count;
    char turn[24];
};

static struct {
    struct server servers[SERVERS];
    int server_count;
    int first, threads, clients;
    pthread_barrier_t begin, start, end;
    struct job job;
    struct instant began[CLIENTS], ended[CLIENTS];
} crew;

void store_clients_die(const char *what, const char *why)
{
    (void)fprintf(stderr, "store_clients: %s: %s\n", what, why);
    exit(1);
}

struct work {
    const struct store_calls *calls;
    void *client;
    int rank;
    char key[16]; /* its own, with a value */
    struct buffer got;
};

static void work_set(const struct work *w, const struct job *job)
{
    for (int64_t i = 0; i < job->count; i++)
        w->calls->set(w->client, w->key, value);
    w->calls->settle(w->client);
}

static void work_get(struct work *w, const struct job *job)
{
    for (int64_t i = 0; i < job->count; i++)
        w->calls->get(w->client, w->key, &w->got);
    if (w->got.length != sizeof value - 1)
        store_clients_die("get", "another value came");
}

static void work_add(const struct work *w, const struct job *job)
{
    char key[20];
    (void)snprintf(key, sizeof key, "n%s", w->key);
    for (int64_t i = 0; i < job->count; i++)
        (void)w->calls->add(w->client, key, 1);
}

/* A token goes round: one SET and one released WAIT a hop, and one client at a time is awake. */
static void work_wake(const struct work *w, const struct job *job)
{
    char key[64];
    for (int64_t i = 0; i < job->count; i++) {
        int64_t turn = w->rank ? i : i - 1;
        (void)snprintf(key, sizeof key, "w%s.%" PRId64 ".%d", job->turn, turn, w->rank);
        if (turn >= 0)
            w->calls->wait(w->client, key);
        (void)snprintf(key, sizeof key, "w%s.%" PRId64 ".%d", job->turn, i, (w->rank + 1) % crew.clients);
        w->calls->set(w->client, key, "");
    }
    (void)snprintf(key, sizeof key, "w%s.%" PRId64 ".0", job->turn, job->count - 1);
    if (w->rank == 0)
        w->calls->wait(w->client, key);
}

static void work_barrier(const struct work *w, const struct job *job)
{
    char key[64];
    for (int64_t i = 0; i < job->count; i++) {
        (void)snprintf(key, sizeof key, "b%s.%" PRId64, job->turn, i);
        w->calls->barrier(w->client, key, crew.clients);
    }
}

/* Everybody's small value to everybody: all at once, or one get after the other. */
static void work_gather(struct work *w, const struct job *job, bool at_once)
{
    char names[CLIENTS][64], mine[32];
    const char *keys[CLIENTS];
    struct buffer values[CLIENTS] = {0};
    (void)snprintf(mine, sizeof mine, "value of %d", w->rank);
    for (int64_t i = 0; i < job->count; i++) {
        for (int k = 0; k < crew.clients; k++) {
            (void)snprintf(names[k], sizeof names[k], "g%s.%" PRId64 ".%d", job->turn, i, k);
            keys[k] = names[k];
        }
        if (at_once) {
            w->calls->gather(w->client, keys, (size_t)crew.clients, (size_t)w->rank, mine, values);
            continue;
        }
        w->calls->set(w->client, keys[w->rank], mine);
        for (int k = 0; k < crew.clients; k++)
            w->calls->get(w->client, keys[k], &values[k]);
    }
    for (int k = 0; k < crew.clients; k++) {
        (void)snprintf(mine, sizeof mine, "value of %d", k);
        if (!values[k].data || strcmp(values[k].data, mine) != 0)
            store_clients_die("gather", "another value came");
        buffer_free(&values[k]);
    }
}

static void work(struct work *w, const struct job *job)
{
    const char *operation = job->operation;
    if (!strcmp(operation, "set"))
        work_set(w, job);
    else if (!strcmp(operation, "get"))
        work_get(w, job);
    else if (!strcmp(operation, "add"))
        work_add(w, job);
    else if (!strcmp(operation, "wake"))
        work_wake(w, job);
    else if (!strcmp(operation, "barrier"))
        work_barrier(w, job);
    else if (!strcmp(operation, "gather") || !strcmp(operation, "gather_gets"))
        work_gather(w, job, operation[6] == '\0');
    else
        store_clients_die("no such operation", operation);
}

static void *thread_main(void *argument)
{
    int index = (int)(intptr_t)argument;
    struct work works[SERVERS];
    for (int i = 0; i < crew.server_count; i++) {
        struct work *w = &works[i];
        *w = (struct work){.calls = crew.servers[i].calls, .rank = crew.first + index};
        w->client = w->calls->connect(crew.servers[i].port);
        (void)snprintf(w->key, sizeof w->key, "key%04d", w->rank);
        w->calls->set(w->client, w->key, value);
        w->calls->settle(w->client);
    }
    (void)pthread_barrier_wait(&crew.begin); /* connected */
    for (;;) {
        (void)pthread_barrier_wait(&crew.begin);
        (void)pthread_barrier_wait(&crew.start);
        crew.began[index] = clock_now(NULL);
        work(&works[crew.job.server], &crew.job);
        crew.ended[index] = clock_now(NULL);
        (void)pthread_barrier_wait(&crew.end);
    }
    return NULL;
}

static void run_job(const char *line)
{
    char name[24], next[8];
    struct job *job = &crew.job;
    if (sscanf(line, "%23s %23s %" SCNd64 " %23s", name, job->operation, &job->count, job->turn) != 4)
        store_clients_die("not a job", line);
    for (job->server = 0; strcmp(crew.servers[job->server].name, name) != 0; job->server++) {
        if (job->server + 1 == crew.server_count)
            store_clients_die("no such server", name);
    }
    (void)pthread_barrier_wait(&crew.begin);
    puts("ready");
    if (!fgets(next, sizeof next, stdin))
        exit(0);
    (void)pthread_barrier_wait(&crew.start);
    (void)pthread_barrier_wait(&crew.end);
    struct instant began = crew.began[0], ended = crew.ended[0];
    for (int i = 1; i < crew.threads; i++) {
        began = instant_min(began, crew.began[i]);
        if (instant_reached(crew.ended[i], ended))
            ended = crew.ended[i];
    }
    printf("%" PRId64 " %" PRId64 "\n", began.ns, ended.ns);
}

static int number_of(const char *text, int64_t low, int64_t high)
{
    int64_t number = 0;
    if (!text_int64(text, &number) || number < low || number > high)
        store_clients_die("not a number of the right size", text);
    return (int)number;
}

int main(int argc, char **argv)
{
    if (argc < 5 || argc > 4 + SERVERS)
        store_clients_die("usage", "store_clients FIRST THREADS ALL NAME=PORT...");
    crew.clients = number_of(argv[3], 1, CLIENTS);
    crew.threads = number_of(argv[2], 1, crew.clients);
    crew.first = number_of(argv[1], 0, crew.clients - crew.threads);
    for (int i = 4; i < argc; i++) {
        char *port = strchr(argv[i], '=');
        if (!port)
            store_clients_die("not NAME=PORT", argv[i]);
        *port++ = '\0';
        bool zeromq = !strncmp(argv[i], "zeromq", 6);
        crew.servers[crew.server_count++] = (struct server){
            argv[i], zeromq ? &store_calls_zmq : &store_calls_tcp, (uint16_t)number_of(port, 1, UINT16_MAX)};
    }
    unsigned parties = (unsigned)crew.threads + 1;
    if (pthread_barrier_init(&crew.begin, NULL, parties) ||
        pthread_barrier_init(&crew.start, NULL, parties) || pthread_barrier_init(&crew.end, NULL, parties))
        store_clients_die("pthread_barrier_init", "failed");
    for (int i = 0; i < crew.threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, thread_main, (void *)(intptr_t)i))
            store_clients_die("pthread_create", "failed");
    }
    char line[128];
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)pthread_barrier_wait(&crew.begin);
    puts("ready");
    while (fgets(line, sizeof line, stdin))
        run_job(line);
    return 0;
}
