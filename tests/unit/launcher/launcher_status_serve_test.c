/* launcher_status_serve_test.c - status through real sockets: HTTP in a loop that turns or stands still, with
 * slow, silent and many clients; the local socket and its bounds. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "launcher/status/http_server.h"
#include "launcher/status/status_client.h"
#include "launcher/status/status_http.h"
#include "launcher/status/status_socket.h"
#include "proto/base/guard.h"
#include "tests/support/cmocka_all.h"

/* --- a loop in a thread, which can be told to end --- */

struct running_loop {
    struct loop loop;
    struct loop_source stop; /* an eventfd */
    bool stopped;
    pthread_t thread;
    atomic_int fills, workers;
};

static void stop_asked(void *context, uint32_t events)
{
    (void)events;
    ((struct running_loop *)context)->stopped = true;
}

static void *turn(void *context)
{
    struct running_loop *running = context;
    while (!running->stopped)
        assert_int_equal(loop_turn(&running->loop, INSTANT_NEVER, NULL), 0);
    return NULL;
}

static struct agent_status *fill(void *context)
{
    struct running_loop *running = context;
    int workers = atomic_load(&running->workers);
    struct agent_status *status = status_create(workers);
    atomic_fetch_add(&running->fills, 1);
    if (!status)
        return NULL;
    status->version = status->host = status->job_id = status->program = status->role = "x";
    status->pid = getpid();
    for (int i = 0; i < workers; i++)
        status->workers[i] =
            (struct status_worker){.rank = i, .local_rank = i, .step = -1, .beat_age_ns = -1};
    return status;
}

static void running_init(struct running_loop *running)
{
    memset(running, 0, sizeof *running);
    assert_int_equal(loop_init(&running->loop, NULL), 0);
    running->stop = (struct loop_source){eventfd(0, EFD_CLOEXEC), stop_asked, running};
    assert_int_equal(loop_add(&running->loop, &running->stop, EPOLLIN, NULL), 0);
}

static void running_start(struct running_loop *running)
{
    assert_int_equal(pthread_create(&running->thread, NULL, turn, running), 0);
}

static void running_stop(struct running_loop *running)
{
    const uint64_t one = 1;
    assert_int_equal(write(running->stop.fd, &one, sizeof one), sizeof one);
    assert_int_equal(pthread_join(running->thread, NULL), 0);
}

static void running_close(struct running_loop *running)
{
    close(running->stop.fd);
    loop_close(&running->loop);
}

/* --- HTTP --- */

static int dial(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* The whole answer to one request; returns its status. */
static int request(uint16_t port, const char *text, char *answer, size_t size)
{
    scope_close int fd = dial(port);
    size_t length = 0;
    int status = 0;
    assert_int_equal(send(fd, text, strlen(text), 0), strlen(text));
    for (;;) {
        ssize_t got = recv(fd, answer + length, size - 1 - length, 0);
        assert_true(got >= 0);
        if (got == 0)
            break;
        length += (size_t)got;
    }
    answer[length] = 0;
    assert_int_equal(sscanf(answer, "HTTP/1.1 %d", &status), 1);
    return status;
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

static struct http_server *serve(struct running_loop *running, struct status_http *http)
{
    struct muster_error err = {0};
    *http = (struct status_http){.fill = fill, .context = running};
    struct http_server *server = http_server_start(&(struct http_server_options){.loop = &running->loop,
                                                                                 .address = "127.0.0.1",
                                                                                 .admit = status_http_admit,
                                                                                 .answer = status_http_answer,
                                                                                 .context = http},
                                                   &err);
    if (!server)
        fail_msg("%s", err.text);
    return server;
}

static void need_library(void)
{
    struct muster_error err = {0};
    if (microhttpd_load(&err) < 0)
        skip_because("%s", err.text);
}

static void the_paths(void **state)
{
    (void)state;
    need_library();
    struct running_loop running;
    struct status_http http;
    char answer[16384];
    running_init(&running);
    struct http_server *server = serve(&running, &http);
    uint16_t port = http_server_port(server);
    running_start(&running);
    assert_int_equal(request(port, GET("/healthz"), answer, sizeof answer), 200);
    assert_non_null(strstr(answer, "\r\n\r\nok\n"));
    assert_int_equal(atomic_load(&running.fills), 0);
    assert_int_equal(request(port, GET("/metrics"), answer, sizeof answer), 200);
    assert_non_null(strstr(answer, "text/plain; version=0.0.4"));
    assert_non_null(strstr(answer, "\nmuster_world_size 0\n"));
    assert_int_equal(request(port, GET("/status?pretty=1"), answer, sizeof answer), 200);
    assert_non_null(strstr(answer, "application/json"));
    assert_int_equal(request(port, GET("/else"), answer, sizeof answer), 404);
    assert_int_equal(request(port, "DELETE /status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", answer,
                             sizeof answer),
                     405);
    assert_non_null(strstr(answer, "Allow: GET, HEAD"));
    /* a client that would keep the connection, and asks twice at once: answered, and hung up on */
    assert_int_equal(request(port,
                             "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n"
                             "GET /status HTTP/1.1\r\nHost: x\r\n\r\n",
                             answer, sizeof answer),
                     200);
    assert_null(strstr(answer, "application/json"));
    assert_int_equal(atomic_load(&running.fills), 2); /* one a question, none without */
    running_stop(&running);
    http_server_stop(server);
    running_close(&running);
}

static void a_loop_that_stands_still_answers_nobody(void **state)
{
    (void)state;
    need_library();
    struct running_loop running;
    struct status_http http;
    char answer[16384];
    running_init(&running);
    struct http_server *server = serve(&running, &http);
    scope_close int fd = dial(http_server_port(server));
    struct pollfd answered = {.fd = fd, .events = POLLIN};
    assert_int_equal(send(fd, GET("/healthz"), strlen(GET("/healthz")), 0), strlen(GET("/healthz")));
    assert_int_equal(poll(&answered, 1, 100), 0);
    running_start(&running); /* it goes on, and is well */
    assert_int_equal(poll(&answered, 1, 60 * 1000), 1);
    assert_true(recv(fd, answer, sizeof answer, 0) > 0);
    running_stop(&running);
    http_server_stop(server);
    running_close(&running);
}

static void clients_that_say_nothing(void **state)
{
    enum { IDLE = 200 }; /* below the limit: none of them may keep a probe out */
    (void)state;
    need_library();
    struct running_loop running;
    struct status_http http;
    char answer[16384];
    int idle[IDLE];
    running_init(&running);
    struct http_server *server = serve(&running, &http);
    running_start(&running);
    for (int i = 0; i < IDLE; i++) {
        idle[i] = dial(http_server_port(server));
        if (i % 2) /* a request that never ends */
            assert_int_equal(send(idle[i], "GET /metr", 9, 0), 9);
    }
    assert_int_equal(request(http_server_port(server), GET("/healthz"), answer, sizeof answer), 200);
    for (int i = 0; i < IDLE; i++) { /* each is dropped in the end, with or without an answer */
        const struct timeval patience = {.tv_sec = 120}; /* against a hang, if it is not */
        ssize_t got;
        assert_int_equal(setsockopt(idle[i], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
        while ((got = recv(idle[i], answer, sizeof answer, 0)) > 0)
            ;
        assert_true(got == 0 || errno == ECONNRESET);
        close(idle[i]);
    }
    running_stop(&running);
    http_server_stop(server);
    running_close(&running);
}

static void clients_that_do_not_read(void **state)
{
    enum { STUCK = 20, WORKERS = 20000 }; /* an answer that no pair of socket buffers holds */
    (void)state;
    need_library();
    struct running_loop running;
    struct status_http http;
    char answer[16384];
    int stuck[STUCK];
    running_init(&running);
    atomic_store(&running.workers, WORKERS);
    struct http_server *server = serve(&running, &http);
    running_start(&running);
    /* one after another: an answer may take a second, and a request has to be read within five */
    for (int i = 0; i < STUCK; i++) {
        stuck[i] = dial(http_server_port(server));
        assert_int_equal(send(stuck[i], GET("/status"), strlen(GET("/status")), 0), strlen(GET("/status")));
        while (atomic_load(&running.fills) <= i) /* each has its answer under way */
            assert_int_equal(request(http_server_port(server), GET("/healthz"), answer, sizeof answer), 200);
    }
    assert_int_equal(request(http_server_port(server), GET("/healthz"), answer, sizeof answer), 200);
    size_t length = 0; /* a client that begins to read gets all of it */
    for (ssize_t got; (got = recv(stuck[STUCK - 1], answer, sizeof answer - 1, 0)) > 0; length += (size_t)got)
        answer[got] = 0;
    assert_true(length > (size_t)WORKERS * 50);
    assert_non_null(strstr(answer, "}]}\n"));
    running_stop(&running);
    http_server_stop(server); /* waits for none of them */
    for (int i = 0; i < STUCK; i++)
        close(stuck[i]);
    running_close(&running);
}

static void a_port_that_is_taken(void **state)
{
    (void)state;
    need_library();
    struct muster_error err = {0};
    struct running_loop running;
    running_init(&running);
    struct http_server_options options = {.loop = &running.loop,
                                          .address = "127.0.0.1",
                                          .admit = status_http_admit,
                                          .answer = status_http_answer};
    struct http_server *server = http_server_start(&options, &err);
    assert_non_null(server);
    options.port = http_server_port(server);
    assert_null(http_server_start(&options, &err));
    assert_non_null(strstr(err.text, "is in use by pid"));
    options.address = "no-number";
    assert_null(http_server_start(&options, &err));
    assert_int_equal(err.code, MUSTER_E_INVALID);
    http_server_stop(server);
    running_close(&running);
}

/* --- the local socket --- */

static int dial_local(const struct status_name *name)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t length = strlen(name->text);
    memcpy(to.sun_path + 1, name->text, length);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(
        connect(fd, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)),
        0);
    return fd;
}

/* The agent of this process, among other agents on the machine. */
static struct status_name own_name(void)
{
    size_t count = 0;
    scope_free struct status_name *names = status_names_read(&count, NULL);
    assert_non_null(names);
    for (size_t i = 0; i < count; i++)
        if (names[i].pid == getpid())
            return names[i];
    fail_msg("the socket is not in /proc/net/unix");
    return (struct status_name){0};
}

static void repeat(void *context, const char *request, struct buffer *out)
{
    (void)context;
    buffer_printf(out, "asked: %s\n", request);
}

static void one_question_a_connection(void **state)
{
    (void)state;
    struct running_loop running;
    struct muster_error err = {0};
    scope_buffer answer = {0};
    pid_t pid = 0;
    running_init(&running);
    struct status_socket *server =
        status_socket_open(&(struct status_socket_options){.loop = &running.loop,
                                                           .agent_id = "0123456789abcdef",
                                                           .fill = fill,
                                                           .drain = repeat,
                                                           .context = &running},
                           &err);
    assert_non_null(server);
    running_start(&running);
    struct status_name name = own_name();
    assert_int_equal(status_ask(&name, STATUS_ASK_SUMMARY, 60 * NS_PER_S, &answer, &pid, &err), 0);
    assert_int_equal(pid, getpid());
    assert_non_null(strstr(answer.data, "\tWAITING\tx\n"));
    buffer_clear(&answer);
    assert_int_equal(status_ask(&name, STATUS_ASK_JSON, 60 * NS_PER_S, &answer, NULL, &err), 0);
    assert_int_equal(answer.data[0], '{');

    buffer_clear(&answer);
    assert_int_equal(
        status_ask_of(&name, STATUS_ASK_DRAIN, "7 spare node-1", 60 * NS_PER_S, &answer, NULL, &err), 0);
    assert_string_equal(answer.data, "asked: 7 spare node-1\n");

    atomic_store(&running.workers, 4096); /* more than a socket's buffer holds */
    buffer_clear(&answer);
    assert_int_equal(status_ask(&name, STATUS_ASK_JSON, 60 * NS_PER_S, &answer, NULL, &err), 0);
    assert_true(answer.length > 256 * 1024);
    assert_non_null(strstr(answer.data, "{\"rank\": 4095, \"local_rank\": 4095, \"pid\": 0, \"state\": "
                                        "\"absent\"}]}\n"));

    char endless[400]; /* longer than any question is */
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    const char *const wrong[] = {"nonsense\n", "tables\n", "\n", "drain\n", "table 7\n", endless};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char byte;
        scope_close int fd = dial_local(&name);
        assert_int_equal(send(fd, wrong[i], strlen(wrong[i]), 0), strlen(wrong[i]));
        assert_true(recv(fd, &byte, 1, 0) <= 0); /* hung up, without a word */
    }
    int silent[40]; /* more than there are places: the oldest give way */
    for (int i = 0; i < 40; i++)
        silent[i] = dial_local(&name);
    buffer_clear(&answer);
    assert_int_equal(status_ask(&name, STATUS_ASK_TABLE, 60 * NS_PER_S, &answer, NULL, &err), 0);
    assert_int_equal(send(silent[39], "table\n", 6, MSG_NOSIGNAL), 6);
    char byte;
    assert_int_equal(recv(silent[39], &byte, 1, 0), 1);
    for (int i = 0; i < 40; i++)
        close(silent[i]);
    running_stop(&running);

    buffer_clear(&answer); /* the loop has ended: the socket takes the question, nobody answers */
    assert_int_equal(status_ask(&name, STATUS_ASK_TABLE, 20 * NS_PER_MS, &answer, NULL, &err), -1);
    assert_int_equal(err.code, MUSTER_E_TIMEOUT);
    status_socket_close(server);
    assert_int_equal(status_ask(&name, STATUS_ASK_TABLE, NS_PER_S, &answer, NULL, &err), -1);
    assert_int_equal(err.code, MUSTER_E_PEER);
    running_close(&running);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_paths),
        cmocka_unit_test(a_loop_that_stands_still_answers_nobody),
        cmocka_unit_test(clients_that_say_nothing),
        cmocka_unit_test(clients_that_do_not_read),
        cmocka_unit_test(a_port_that_is_taken),
        cmocka_unit_test(one_question_a_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
