/* hosts_node.c - see hosts_node.h: the loop of a node. */
#include "launcher/hosts/hosts_node.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/hosts/hosts_child.h"
#include "launcher/loop/loop.h"
#include "launcher/process/children.h"
#include "launcher/process/spawn.h"
#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"

enum { LINE_LIMIT = 64, SSH_FAILED = 255 };

/* settle_ns: for the verdict that the others get by themselves, after an agent's own end; lost_ns: the same
 * where a node is lost, of which the rendezvous learns within a second if it has formed, and else never. */
static const int64_t ping_every_ns = 3 * NS_PER_S, silence_ns = 40 * NS_PER_S, settle_ns = 5 * NS_PER_S,
                     lost_ns = 1200 * NS_PER_MS;

struct node {
    const struct hosts_node *spec;
    struct log_sink log;
    struct loop loop;
    struct loop_source signals, upstream;
    struct pump *pump;
    sigset_t ignored;
    char program[PATH_MAX];
    struct children ended;
    struct hosts_child children[1 + HOSTS_FANOUT];
    int count;
    struct buffer heard; /* an unfinished line of the node above */
    struct instant ping_at, silent_at, stop_at, kill_at;
    bool told;     /* to end, by a signal */
    bool cut;      /* there is nobody above any more */
    int exit_code; /* the first that is not 0 */
};

/* --- ends --- */

static bool is_over(const struct node *n)
{
    for (int i = 0; i < n->count; i++)
        if (n->children[i].pid > 0)
            return false;
    return true;
}

/* The agent's guardian ends its workers; the end of an ssh is the end of all hosts below it. */
static void node_kill_all(struct node *n)
{
    for (int i = 0; i < n->count; i++)
        if (n->children[i].pid > 0)
            (void)kill(n->children[i].pid, SIGKILL);
}

static void be_cut(struct node *n, const char *why)
{
    if (n->cut)
        return;
    n->cut = true;
    loop_remove(&n->loop, &n->upstream);
    if (!is_over(n))
        log_warning(&n->log, "%s: this host's part of the job is ended", why);
    node_kill_all(n);
}

static void tell_to_end(struct node *n, int number)
{
    if (!n->told)
        n->kill_at = instant_add(clock_now(NULL), (int64_t)(n->spec->patience_s * (double)NS_PER_S));
    n->told = true;
    char line[16];
    (void)snprintf(line, sizeof line, "s%d\n", number);
    for (int i = 0; i < n->count; i++) {
        if (n->children[i].is_agent && n->children[i].pid > 0)
            (void)kill(n->children[i].pid, number); /* not reaped: the number is its own */
        hosts_child_tell(&n->children[i], line);
    }
}

/* The remaining nodes are no job: they are told to end, after their own verdict had its time. cut: a
 * connection was cut, so there is no verdict. */
static void note_end(struct node *n, const struct hosts_child *child, const struct child_end *end)
{
    const bool killed = end->code != CLD_EXITED;
    int code = killed ? EXIT_CODE_SIGNAL_BASE + end->status : end->status;
    const bool cut = !child->is_agent && (code == SSH_FAILED || killed) && !n->cut;
    if (cut)
        log_error(&n->log, "host %s: the connection ended with ssh's exit code %d", child->name, code);
    else if (child->is_agent && killed && !n->cut)
        log_error(&n->log, "host %s: its agent was killed by signal %d (%s)", child->name, end->status,
                  strsignal(end->status));
    if (cut || (child->is_agent && killed))
        code = EXIT_CODE_NODE;
    if (!code)
        return;
    if (!n->exit_code)
        n->exit_code = code;
    const int64_t time_ns = cut ? 0 : code == EXIT_CODE_NODE ? lost_ns : settle_ns;
    n->stop_at = instant_min(n->stop_at, instant_add(clock_now(NULL), time_ns));
}

static void reap(struct node *n)
{
    for (;;) {
        struct child_end end;
        if (!children_next(&n->ended, &end))
            return;
        for (int i = 0; i < n->count; i++) {
            struct hosts_child *child = &n->children[i];
            if (child->pid != end.pid)
                continue;
            hosts_child_close(child);
            note_end(n, child, &end);
        }
    }
}

/* --- lines from above --- */

static void upstream_ready(void *context, uint32_t events)
{
    struct node *n = context;
    char data[512];
    (void)events;
    ssize_t got = read(n->upstream.fd, data, sizeof data);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        be_cut(n, "the starting host has gone");
        return;
    }
    buffer_append(&n->heard, data, (size_t)got);
    for (char *newline; n->heard.data && (newline = memchr(n->heard.data, '\n', n->heard.length));) {
        *newline = '\0';
        char *end;
        long number = *n->heard.data == 's' ? strtol(n->heard.data + 1, &end, 10) : 0;
        n->silent_at = instant_add(clock_now(NULL), silence_ns);
        if (number > 0 && number < NSIG)
            tell_to_end(n, (int)number);
        buffer_consume(&n->heard, (size_t)(newline - n->heard.data) + 1);
    }
    if (n->heard.length > LINE_LIMIT || n->heard.failed)
        be_cut(n, "the starting host sends an unknown line");
}

static void signals_ready(void *context, uint32_t events)
{
    struct node *n = context;
    struct signalfd_siginfo info;
    (void)events;
    while (read(n->signals.fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            reap(n);
        else
            tell_to_end(n, (int)info.ssi_signo);
    }
}

static void pass_time(struct node *n, struct instant now)
{
    if (instant_reached(now, pump_deadline(n->pump)))
        pump_tick(n->pump, now);
    if (instant_reached(now, n->ping_at)) {
        n->ping_at = instant_add(now, ping_every_ns);
        for (int i = 0; i < n->count; i++)
            hosts_child_tell(&n->children[i], ".\n");
    }
    if (instant_reached(now, n->silent_at)) {
        n->silent_at = INSTANT_NEVER;
        be_cut(n, "the starting host is silent");
    }
    if (instant_reached(now, n->stop_at)) {
        n->stop_at = INSTANT_NEVER;
        if (!is_over(n))
            tell_to_end(n, SIGTERM);
    }
    if (instant_reached(now, n->kill_at)) {
        n->kill_at = INSTANT_NEVER;
        log_warning(&n->log, "not everything ended after the signal: killed");
        node_kill_all(n);
    }
}

/* --- life --- */

static int node_watch(struct node *n, struct muster_error *err)
{
    static const int taken[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    sigset_t wanted;
    spawn_ignored_signals(&n->ignored);
    sigemptyset(&wanted);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (sigismember(&n->ignored, taken[i]) == 0 || taken[i] == SIGTERM)
            sigaddset(&wanted, taken[i]);
    n->signals = (struct loop_source){-1, signals_ready, n};
    if (loop_add_signals(&n->loop, &n->signals, &wanted, err) < 0)
        return -1;
    if (n->spec->upstream < 0)
        return 0;
    n->upstream = (struct loop_source){n->spec->upstream, upstream_ready, n};
    n->silent_at = instant_add(clock_now(NULL), silence_ns);
    return loop_add(&n->loop, &n->upstream, EPOLLIN, err);
}

static int node_start(struct node *n, struct muster_error *err)
{
    const struct hosts_message *m = n->spec->message;
    const struct hosts_place place = {m, n->program, &n->ignored, n->pump};
    int own = n->spec->has_agent ? 1 : 0, first = 0, count = 0;
    if (own && hosts_child_start_agent(&n->children[n->count++], &place, err) < 0)
        return -1;
    for (int i = 0; i < hosts_divide(m->hosts.count - own, i, &first, &count); i++)
        if (hosts_child_connect(&n->children[n->count++], &place, own + first, count, err) < 0)
            return -1;
    return 0;
}

static int node_run(struct node *n, struct muster_error *err)
{
    while (!is_over(n)) {
        struct instant next =
            instant_min(instant_min(n->ping_at, n->silent_at), instant_min(n->stop_at, n->kill_at));
        if (loop_turn(&n->loop, instant_min(next, pump_deadline(n->pump)), err) < 0)
            return -1;
        pass_time(n, clock_now(NULL));
    }
    return 0;
}

static int prepare_node(struct node *n, struct muster_error *err)
{
    ssize_t length = readlink("/proc/self/exe", n->program, sizeof n->program - 1);
    scope_close int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (length < 0 || nothing < 0 || dup2(nothing, STDIN_FILENO) < 0)
        return error_errno(err, "cannot use /proc/self/exe and /dev/null");
    n->program[length] = '\0';
    return node_watch(n, err);
}

int hosts_node_run(const struct hosts_node *spec, const struct log_sink *log)
{
    struct muster_error err = {0};
    struct node n = {.spec = spec,
                     .log = *log,
                     .signals.fd = -1,
                     .ping_at = instant_add(clock_now(NULL), ping_every_ns),
                     .silent_at = INSTANT_NEVER,
                     .stop_at = INSTANT_NEVER,
                     .kill_at = INSTANT_NEVER};
    bool looped = children_init(&n.ended, &err) == 0 && loop_init(&n.loop, &err) == 0;
    if (looped)
        n.pump = pump_create(&(struct pump_options){.loop = &n.loop, .style = {LOG_FORMAT_TEXT, ""}}, &err);
    if (n.pump) {
        n.log.write = pump_log;
        n.log.context = n.pump;
    }
    if (!n.pump || prepare_node(&n, &err) < 0 || node_start(&n, &err) < 0 || node_run(&n, &err) < 0) {
        log_error(&n.log, "%s", err.text);
        n.exit_code = err.code == MUSTER_E_NOT_FOUND ? EXIT_CODE_NOT_FOUND : EXIT_CODE_FAILURE;
    }
    /* Everything that is not over yet ends with us. */
    node_kill_all(&n);
    for (int i = 0; i < n.count; i++) {
        while (n.children[i].pid > 0 && waitpid(n.children[i].pid, NULL, 0) < 0 && errno == EINTR)
            ;
        hosts_child_close(&n.children[i]);
    }
    if (n.pump)
        (void)pump_destroy(n.pump); /* output lost on a stuck console cannot be reported either */
    if (n.signals.fd >= 0)
        (void)close(n.signals.fd);
    if (looped)
        loop_close(&n.loop);
    buffer_free(&n.heard);
    return n.cut && !n.exit_code ? EXIT_CODE_NODE : n.exit_code;
}
