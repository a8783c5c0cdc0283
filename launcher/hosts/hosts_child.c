/* hosts_child.c - see hosts_child.h. */
#include "launcher/hosts/hosts_child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/hosts/hosts_node.h"
#include "launcher/process/find_program.h"
#include "launcher/process/spawn.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

extern char **environ;

static int no_memory(struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM, "no memory to start a host");
}

/* --- the agent --- */

/* A file of this process alone that holds the secret: no path leads to it but the agent's own. */
static int secret_file(const char *secret, struct muster_error *err)
{
    scope_close int fd = memfd_create("muster-secret", MFD_CLOEXEC);
    if (fd < 0 || fchmod(fd, 0600) < 0)
        return error_errno(err, "cannot make a file in memory for the secret");
    if (io_write_all(fd, secret, strlen(secret), "the secret", err) < 0)
        return -1;
    return take_fd(&fd);
}

static int set_number(struct text_list *env, const char *name, int64_t value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%lld", (long long)value);
    return text_list_set(env, name, text);
}

static int set_pair(struct text_list *env, const char *pair)
{
    scope_free char *name = mem_strndup(pair, strcspn(pair, "="));
    return name ? text_list_set(env, name, strchr(pair, '=') + 1) : -1;
}

/* This host's own environment, the variables that the starting host sent, and the place in the job. */
static int agent_environment(const struct hosts_message *m, struct text_list *env)
{
    for (char **entry = environ; *entry; entry++)
        if (strchr(*entry, '=') && **entry != '=' && set_pair(env, *entry) < 0)
            return -1;
    for (size_t i = 0; i < m->env.count; i++)
        if (set_pair(env, m->env.items[i]) < 0)
            return -1;
    const struct host_entry *own = &m->hosts.entries[0];
    if (own->slots && set_number(env, "PET_NPROC_PER_NODE", own->slots) < 0)
        return -1;
    return set_number(env, "PET_NODE_RANK", m->first_rank) < 0 ||
                   text_list_set(env, "MUSTER_SECRET_FILE", "/proc/self/fd/3") < 0 ||
                   text_list_set(env, HOSTS_PLACED_ENV, "1") < 0
               ? -1
               : 0;
}

int hosts_child_start_agent(struct hosts_child *child, const struct hosts_place *place,
                            struct muster_error *err)
{
    const struct hosts_message *m = place->message;
    scope_text_list env = {0}, argv = {0};
    scope_close int secret = secret_file(m->secret, err);
    int exit_code;
    if (secret < 0)
        return -1;
    bool made = agent_environment(m, &env) == 0 && text_list_take(&argv, mem_strdup("muster")) == 0 &&
                text_list_take(&argv, mem_strdup(m->subcommand)) == 0;
    for (size_t i = 0; made && i < m->argv.count; i++)
        made = text_list_take(&argv, mem_strdup(m->argv.items[i])) == 0;
    if (!made)
        return no_memory(err);
    const struct spawn_options options = {.path = place->program,
                                          .argv = argv.items,
                                          .envp = env.items,
                                          .out_fd = STDOUT_FILENO,
                                          .err_fd = STDERR_FILENO,
                                          .extra_fds = {secret},
                                          .extra_count = 1,
                                          .ignored = place->ignored,
                                          .directory = m->directory};
    *child = (struct hosts_child){.name = m->hosts.entries[0].name, .control = -1, .is_agent = true};
    child->pid = spawn_worker(&options, &exit_code, err);
    return child->pid < 0 ? error_wrap(err, "in %s", m->directory) : 0;
}

/* --- a connection --- */

/* A login shell of any kind reads this. The same path first: a shared file system. */
int hosts_ssh_words(const struct hosts_message *m, const char *host, const char *program,
                    struct text_list *out)
{
    static const char *const options[] = {"-T",
                                          "-x",
                                          "-oBatchMode=yes",
                                          "-oConnectTimeout=20",
                                          "-oServerAliveInterval=5",
                                          "-oServerAliveCountMax=4",
                                          "-oControlMaster=no",
                                          "-oControlPath=none",
                                          "-oEscapeChar=none",
                                          "--"};
    scope_buffer path = {0};
    buffer_shell_word(&path, program);
    for (const char *word = m->ssh + strspn(m->ssh, " "); *word; word += strspn(word, " ")) {
        if (text_list_take(out, mem_strndup(word, strcspn(word, " "))) < 0)
            return -1;
        word += strcspn(word, " ");
    }
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (text_list_take(out, mem_strdup(options[i])) < 0)
            return -1;
    return path.failed || text_list_take(out, mem_strdup(host)) < 0 ||
                   text_list_take(out, mem_printf("test -x %s && exec %s host-node || exec muster host-node",
                                                  path.data, path.data)) < 0
               ? -1
               : 0;
}

/* The message to the host below. Texts are borrowed; only the list of hosts is its own. */
static int write_message(const struct hosts_message *m, int first, int count, struct buffer *out)
{
    struct hosts_message below = *m;
    below.first_rank = m->first_rank + first;
    below.hosts = (struct host_list){m->hosts.entries + first, count};
    return hosts_message_write(&below, out);
}

/* A pipe that takes the whole message at once, so that nothing has to wait for ssh. */
static int control_pipe(const struct buffer *message, int ends[2], struct muster_error *err)
{
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_errno(err, "cannot make a pipe (ulimit -n limits them)");
    (void)fcntl(ends[1], F_SETPIPE_SZ, (int)message->length + 8192);
    (void)fcntl(ends[1], F_SETFL, O_NONBLOCK);
    if (write(ends[1], message->data, message->length) == (ssize_t)message->length)
        return 0;
    (void)close(ends[0]); /* nothing was read */
    (void)close(ends[1]); /* and nothing will be */
    return error_set(err, MUSTER_E_LIMIT,
                     "the environment and the command are more than a pipe takes here (%zu bytes)",
                     message->length);
}

static int open_stream(struct hosts_child *child, int stream, struct pump *pump, int *writer,
                       struct muster_error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_errno(err, "cannot make a pipe (ulimit -n limits them)");
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK); /* ours alone */
    const struct pump_stream_options options = {.fd = ends[0], .stream = stream, .console = true};
    child->streams[stream - 1] = pump_add(pump, &options, err);
    *writer = ends[1];
    return child->streams[stream - 1] ? 0 : -1;
}

/* ssh reads from descriptor 0, which is ours for the moment of the start. */
static pid_t spawn_ssh(const struct spawn_options *options, int input, struct muster_error *err)
{
    int exit_code;
    scope_close int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    if (kept < 0 || dup2(input, STDIN_FILENO) < 0)
        return error_errno(err, "cannot pass on a descriptor");
    pid_t pid = spawn_worker(options, &exit_code, err);
    return dup2(kept, STDIN_FILENO) < 0 ? error_errno(err, "cannot take back a descriptor") : pid;
}

int hosts_child_connect(struct hosts_child *child, const struct hosts_place *place, int first, int count,
                        struct muster_error *err)
{
    const struct hosts_message *m = place->message;
    scope_text_list argv = {0};
    scope_buffer message = {.limit = HOSTS_MESSAGE_LIMIT};
    scope_close int out = -1, error = -1, input = -1;
    int ends[2] = {-1, -1};
    *child = (struct hosts_child){.name = m->hosts.entries[first].name, .control = -1};
    if (hosts_ssh_words(m, child->name, place->program, &argv) < 0 ||
        write_message(m, first, count, &message) < 0)
        return no_memory(err);
    scope_free char *ssh = strchr(argv.items[0], '/') ? mem_strdup(argv.items[0])
                                                      : find_program(argv.items[0], getenv("PATH"), err);
    if (!ssh)
        return err->code ? -1 : no_memory(err);
    if (control_pipe(&message, ends, err) < 0)
        return -1;
    input = ends[0];
    child->control = ends[1];
    if (open_stream(child, STDOUT_FILENO, place->pump, &out, err) < 0 ||
        open_stream(child, STDERR_FILENO, place->pump, &error, err) < 0)
        return -1;
    const struct spawn_options options = {.path = ssh,
                                          .argv = argv.items,
                                          .envp = environ,
                                          .out_fd = out,
                                          .err_fd = error,
                                          .ignored = place->ignored};
    child->pid = spawn_ssh(&options, input, err);
    return child->pid < 0 ? -1 : 0;
}

void hosts_child_tell(const struct hosts_child *child, const char *line)
{
    if (child->control >= 0 && child->pid > 0)
        (void)!write(child->control, line, strlen(line)); /* see the header */
}

void hosts_child_close(struct hosts_child *child)
{
    child->pid = 0;
    if (child->control >= 0)
        (void)close(child->control); /* a pipe */
    child->control = -1;
    for (int i = 0; i < 2; i++) {
        pump_close(child->streams[i]);
        child->streams[i] = NULL;
    }
}
