/* crowd.c - a world of N agents forms over real sockets on the loopback: one process serves, others play all
 * other agents. Prints one line of numbers for rendezvous.py.
 *
 *     crowd ours|bare|tcp AGENTS [--secret] [--elastic] [--hold SECONDS] [--slow PERCENT]
 *
 * "wall_ns N server_cpu_ns N agents_cpu_ns N server_kb N hold_cpu_ns N messages N joins N": from the first
 * connect to the last WORLD (ours) or echo (bare, tcp); the processor time of both sides in between; the
 * server's resident memory then; its processor time while the world was held; messages in both directions,
 * and JOINs, until the last WORLD. --slow: the server runs for that share of the time only. */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "benchmarks/worlds/crowd.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "rendezvous/roster/roster.h"

enum {
    PATIENCE_S = 300,
    PLAYED = 8000, /* agents of one process: each has two descriptors, and 20,000 are a common limit */
    SLICE_MS = 20, /* a slow server runs for a share of each */
};

static void must(int failed, const struct muster_error *err)
{
    errno = 0;
    if (failed)
        crowd_die(err->text);
}

static struct crowd_usage ask(int control)
{
    struct crowd_usage usage;
    if (write(control, "u", 1) != 1 || read(control, &usage, sizeof usage) != sizeof usage)
        crowd_die("the server has ended");
    return usage;
}

static void sleep_ms(int64_t ms)
{
    clock_sleep_until(instant_add(clock_now(NULL), ms * NS_PER_MS));
}

static void check_players(void)
{
    if (waitpid(-1, NULL, WNOHANG) > 0)
        exit(1); /* it has said why */
}

/* Whether `count` reached `all` in time. */
static bool await(const atomic_int *count, int all, const struct crowd *crowd, pid_t server)
{
    struct instant limit = instant_add(clock_now(NULL), PATIENCE_S * NS_PER_S);
    while (atomic_load(count) < all && !instant_reached(clock_now(NULL), limit)) {
        check_players();
        if (!crowd->percent) {
            sleep_ms(1);
            continue;
        }
        (void)kill(server, SIGSTOP); /* a child of ours, not waited for: both signals reach it */
        sleep_ms(SLICE_MS * (100 - crowd->percent) / 100);
        (void)kill(server, SIGCONT);
        sleep_ms(SLICE_MS * crowd->percent / 100);
    }
    return atomic_load(count) >= all;
}

static void run(const struct crowd *crowd)
{
    int control, players = 0;
    struct crowd_shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        crowd_die("mmap");
    pid_t server = crowd_serve(crowd, &control);
    for (int first = 1; first < crowd->agents; first += PLAYED, players++)
        crowd_play(crowd, shared, first, crowd->agents - first < PLAYED ? crowd->agents - first : PLAYED);
    while (atomic_load(&shared->ready) < players) {
        check_players();
        sleep_ms(1);
    }
    struct crowd_usage before = ask(control);
    struct instant start = clock_now(NULL);
    atomic_store(&shared->phase, CROWD_FORMS);
    if (!await(&shared->formed, players, crowd, server)) {
        (void)fprintf(stderr, "crowd: %d of %d have received it\n", atomic_load(&shared->done),
                      crowd->agents - 1);
        errno = 0;
        crowd_die("not all agents have received it in time");
    }
    int64_t wall = instant_diff_ns(clock_now(NULL), start);
    int64_t messages = atomic_load(&shared->messages), joins = atomic_load(&shared->joins);
    struct crowd_usage then = ask(control);
    atomic_store(&shared->phase, CROWD_HELD);
    sleep_ms((int64_t)crowd->hold_s * 1000);
    struct crowd_usage last = ask(control);
    (void)printf(
        "wall_ns %lld server_cpu_ns %lld agents_cpu_ns %lld server_kb %lld hold_cpu_ns %lld messages %lld "
        "joins %lld\n",
        (long long)wall, (long long)(then.cpu_ns - before.cpu_ns), (long long)atomic_load(&shared->cpu_ns),
        (long long)then.resident_kb, (long long)(last.cpu_ns - then.cpu_ns), (long long)messages,
        (long long)joins);
    (void)fflush(stdout);
    _exit(0); /* thousands of sockets are not closed one by one */
}

static uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) < 0)
        crowd_die("cannot find a free port");
    (void)close(fd);
    return ntohs(address.sin_port);
}

static void make_keys(struct crowd *crowd)
{
    struct job_secret secret;
    struct muster_error err;
    if (getrandom(&secret, sizeof secret, 0) != sizeof secret)
        crowd_die("getrandom");
    must(secret_derive(&secret, "crowd", &crowd->keys, &err), &err);
}

static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        crowd_die("getrlimit");
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        crowd_die("setrlimit");
}

static int usage(void)
{
    (void)fprintf(stderr, "usage: crowd ours|bare|tcp AGENTS [--secret] [--elastic] [--hold SECONDS] "
                          "[--slow PERCENT]\n");
    return 2;
}

int main(int argc, char *argv[])
{
    static const char *const kinds[] = {[CROWD_OURS] = "ours", [CROWD_BARE] = "bare", [CROWD_TCP] = "tcp"};
    static struct crowd crowd;
    int64_t number;
    int kind = 0;
    while (argc >= 3 && kind < 3 && strcmp(argv[1], kinds[kind]) != 0)
        kind++;
    if (argc < 3 || kind == 3 || !text_int64(argv[2], &number) || number < 2 || number > ROSTER_MEMBER_LIMIT)
        return usage();
    crowd.kind = (enum crowd_kind)kind;
    crowd.agents = (int)number;
    for (int i = 3; i < argc; i++) {
        if (!strcmp(argv[i], "--secret"))
            crowd.keyed = true;
        else if (!strcmp(argv[i], "--elastic"))
            crowd.elastic = true;
        else if (!strcmp(argv[i], "--hold") && i + 1 < argc && text_int64(argv[i + 1], &number) &&
                 number >= 0 && number <= 3600)
            crowd.hold_s = (int)number, i++;
        else if (!strcmp(argv[i], "--slow") && i + 1 < argc && text_int64(argv[i + 1], &number) &&
                 number >= 1 && number <= 99)
            crowd.percent = (int)number, i++;
        else
            return usage();
    }
    raise_descriptors();
    if (crowd.keyed)
        make_keys(&crowd);
    crowd.port = free_port();
    run(&crowd);
}
