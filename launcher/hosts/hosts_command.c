/* hosts_command.c - see hosts_command.h. */
#include "launcher/hosts/hosts_command.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "launcher/hosts/hosts_child.h"
#include "launcher/hosts/hosts_node.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/exit_code.h"
#include "rendezvous/security/secret.h"

extern char **environ;

enum { FILE_LIMIT = 1 << 20, PATIENCE_MARGIN_S = 20 };

bool hosts_wanted(const struct run_config *config)
{
    return (config->hosts || config->hostfile) && !getenv(HOSTS_PLACED_ENV);
}

/* --- the message to all hosts --- */

/* Variables that are about the program, not about this machine or a job that we are in. */
static bool is_passed_on(const char *entry)
{
    static const char *const begins[] = {"NCCL_",        "TORCH",
                                         "OMP_",         "MKL_",
                                         "KMP_",         "PYTHON",
                                         "CUDA_",        "GLOO_",
                                         "HF_",          "WANDB",
                                         "UCX_",         "FI_",
                                         "LOGLEVEL=",    "PATH=",
                                         "VIRTUAL_ENV=", "LD_LIBRARY_PATH=",
                                         "PET_",         "MUSTER_",
                                         "ACCELERATE_",  "FSDP_",
                                         "MEGATRON_LM_", "PARALLELISM_CONFIG_"};
    static const char *const kept_back[] = {
        "TORCHELASTIC_",  "MUSTER_AGENT_ID=",    "MUSTER_ROUND=",     "MUSTER_HEARTBEAT_",
        "MUSTER_NOTICE_", "MUSTER_SECRET_FILE=", "PET_NODE_RANK=",    "PET_NPROC_PER_NODE=",
        "PET_NNODES=",    "PET_MASTER_ADDR=",    "MUSTER_BIND_ADDR=", "PET_LOCAL_ADDR="};
    for (size_t i = 0; i < sizeof kept_back / sizeof *kept_back; i++)
        if (!strncmp(entry, kept_back[i], strlen(kept_back[i])))
            return false;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (!strncmp(entry, begins[i], strlen(begins[i])))
            return true;
    return false;
}

static int fill_environment(struct hosts_message *m)
{
    const int nodes = m->hosts.count;
    for (char **entry = environ; *entry; entry++)
        if (is_passed_on(*entry) && strchr(*entry, '=') && text_list_take(&m->env, mem_strdup(*entry)) < 0)
            return -1;
    if (text_list_take(&m->env, mem_printf("PET_NNODES=%d", nodes)) < 0)
        return -1;
    return nodes > 1 ? text_list_take(&m->env, mem_printf("PET_MASTER_ADDR=%s",
                                                          host_entry_address(&m->hosts.entries[0])))
                     : 0;
}

static int make_secret(struct hosts_message *m, struct muster_error *err)
{
    struct job_secret secret;
    char line[SECRET_TEXT_SIZE];
    if (getrandom(secret.bytes, sizeof secret.bytes, 0) != sizeof secret.bytes)
        return error_errno(err, "cannot get %zu random bytes", sizeof secret.bytes);
    secret_format(&secret, line);
    m->secret = mem_printf("%s\n", line);
    secret_wipe(line, sizeof line);
    secret_wipe(&secret, sizeof secret);
    return m->secret ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory");
}

/* Where the hosts are the world, nothing else is to say how large it is. */
static int check_flags(const struct run_config *config, struct muster_error *err)
{
    static const char *const settled[] = {"nnodes", "node-rank", "rdzv-endpoint", "standalone",
                                          "secret-file"};
    const struct knob_table *table = config_table();
    for (size_t i = 0; i < sizeof settled / sizeof *settled; i++) {
        const struct knob *knob = knob_find(table, settled[i], strlen(settled[i]), false, NULL);
        if (knob && config->sources[knob - table->knobs] == KNOB_FROM_FLAG)
            return error_set(err, MUSTER_E_INVALID, "--%s with --hosts or --hostfile: the hosts decide that",
                             settled[i]);
    }
    return 0;
}

static int read_hosts(const struct run_config *config, struct host_list *hosts, struct muster_error *err)
{
    scope_buffer text = {0};
    if (config->hosts && config->hostfile)
        return error_set(err, MUSTER_E_INVALID,
                         "--hosts and --hostfile name the same thing: give one of them");
    if (config->hosts)
        return host_list_parse(config->hosts, hosts, err) < 0 ? error_wrap(err, "--hosts") : 0;
    if (io_read_file(config->hostfile, FILE_LIMIT, &text, err) < 0)
        return -1;
    return host_list_parse_file(config->hostfile, text.data ? text.data : "", text.length, hosts, err);
}

static int fill_message(const struct run_config *config, int argc, char *const argv[],
                        struct hosts_message *m, struct muster_error *err)
{
    char directory[PATH_MAX];
    if (check_flags(config, err) < 0 || read_hosts(config, &m->hosts, err) < 0 || make_secret(m, err) < 0)
        return -1;
    if (!getcwd(directory, sizeof directory))
        return error_errno(err, "cannot read the working directory");
    m->directory = mem_strdup(directory);
    m->subcommand = mem_strdup(config->command == COMMAND_LAUNCH ? "launch" : "run");
    m->ssh = mem_strdup(config->ssh && *config->ssh ? config->ssh : "ssh");
    bool made = m->directory && m->subcommand && m->ssh && fill_environment(m) == 0;
    for (int i = 0; made && i < argc; i++)
        made = text_list_take(&m->argv, mem_strdup(argv[i])) == 0;
    return made ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory");
}

/* --- the starting host --- */

static int show(const struct hosts_message *m, struct muster_error *err)
{
    char program[PATH_MAX];
    scope_buffer out = {0};
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0)
        return error_errno(err, "cannot read /proc/self/exe");
    program[length] = '\0';
    for (int i = 0; i < m->hosts.count; i++) {
        scope_text_list words = {0};
        const struct host_entry *host = &m->hosts.entries[i];
        if (hosts_ssh_words(m, host->name, program, &words) < 0)
            return error_set(err, MUSTER_E_NOMEM, "no memory");
        buffer_printf(&out, "node %d of %d, ", i, m->hosts.count);
        if (host->slots)
            buffer_printf(&out, "%lld workers:", (long long)host->slots);
        else
            buffer_text(&out, "as many workers as --nproc-per-node:");
        for (size_t k = 0; k < words.count; k++) {
            buffer_text(&out, " ");
            buffer_shell_word(&out, words.items[k]);
        }
        buffer_text(&out, "\n");
    }
    return out.failed ? error_set(err, MUSTER_E_NOMEM, "no memory")
                      : io_write_all(STDOUT_FILENO, out.data, out.length, "output", err);
}

int hosts_run(const struct run_config *config, int argc, char *const argv[], const struct log_sink *log,
              struct muster_error *err)
{
    struct hosts_message message = {0};
    int code = fill_message(config, argc, argv, &message, err);
    const struct hosts_node node = {
        .message = &message, .upstream = -1, .patience_s = config->shutdown_timeout_s + PATIENCE_MARGIN_S};
    if (!code && config->dry_run)
        code = show(&message, err);
    else if (!code)
        code = hosts_node_run(&node, log);
    if (message.secret)
        secret_wipe(message.secret, strlen(message.secret));
    hosts_message_free(&message);
    return code;
}

/* --- a host of the job --- */

/* The orders, and lines after them, as far as they have arrived. */
static int read_orders(int fd, struct hosts_message *m, struct muster_error *err)
{
    scope_buffer data = {.limit = HOSTS_MESSAGE_LIMIT + 64};
    for (;;) {
        size_t used;
        int state = hosts_message_read(data.data, data.length, m, &used, err);
        if (state) {
            if (data.data)
                secret_wipe(data.data, data.capacity);
            return state < 0 ? -1 : 0;
        }
        hosts_message_free(m);
        char *room = buffer_reserve(&data, 1); /* no byte after the message is read */
        ssize_t got = room ? TEMP_FAILURE_RETRY(read(fd, room, 1)) : -1;
        if (got <= 0)
            return error_set(err, MUSTER_E_PEER, "the starting host has gone before it sent its orders");
        data.length += (size_t)got;
    }
}

int hosts_node_main(const char *shown, int argc, char *argv[])
{
    struct muster_error err = {0};
    struct hosts_message message;
    int log_fd = STDERR_FILENO, code = EXIT_CODE_FAILURE;
    struct log_sink log = {
        .write = log_write_to_fd, .context = &log_fd, .threshold = LOG_LEVEL_INFO, .who = shown};
    scope_close int upstream = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10);
    (void)argv;
    if (argc || isatty(STDIN_FILENO)) {
        log_error(&log, "host-node is what muster run --hosts starts on each host; it has no flags");
        return EXIT_CODE_USAGE;
    }
    if (upstream < 0 || read_orders(upstream, &message, &err) < 0) {
        log_error(&log, "%s", *err.text ? err.text : "no standard input");
        return EXIT_CODE_NODE;
    }
    const struct hosts_node node = {
        .message = &message, .has_agent = true, .upstream = upstream, .patience_s = 1e6};
    code = hosts_node_run(&node, &log);
    hosts_message_free(&message);
    return code;
}
