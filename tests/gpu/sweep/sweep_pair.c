/* sweep_pair.c - see sweep_pair.h. */
#include "tests/gpu/sweep/sweep_pair.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "rendezvous/tcpstore/tcpstore_server.h"

int muster_train_main(int argc, char *argv[]); /* trainer/run/muster_train.c */

static const char config[] = "training: {steps: 3, micro_batch: 1, global_batch: 4, sequence_length: 8, "
                             "learning_rate: 3.0e-3, warmup_steps: 2, threads: 1,\n"
                             "           timeout: 20, strategy: FULL_SHARD, checkpoint_every: 1, "
                             "checkpoint_dir: checkpoints, output: weights}\n"
                             "model: {layers: 1, channels: 16, heads: 2}\n"
                             "data: {path: text}\n"
                             "logging: {interval: 1, sample_length: 0}\n";
static const char prose[] = "the quick fox jumps over the hill and then it rests. ";

/* ---- before runs ---- */

int sweep_load(void)
{
    const char *const libraries[] = {getenv("MUSTER_CUDA_MODULE"), "libnccl.so.2", "libcublasLt.so.13"};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        if (!libraries[i] || !dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL)) {
            fprintf(stderr, "%s\n", libraries[i] ? dlerror() : "MUSTER_CUDA_MODULE is not set");
            return -1;
        }
    }
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    return 0;
}

static void serve_store(int port_to)
{
    struct tcpstore_server *server = NULL;
    struct muster_error err = {0};
    const struct tcpstore_server_options options = {.address = "127.0.0.1"};
    if (tcpstore_server_start(&options, &server, &err)) {
        fprintf(stderr, "the store: %s\n", err.text);
        _exit(1);
    }
    const uint16_t port = tcpstore_server_port(server);
    if (write(port_to, &port, sizeof port) == sizeof port)
        for (;;)
            (void)pause();
    _exit(1);
}

uint16_t sweep_store(void)
{
    int ends[2];
    uint16_t port = 0;
    if (pipe2(ends, O_CLOEXEC))
        return 0;
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            serve_store(ends[1]);
        _exit(1);
    }
    (void)close(ends[1]);
    if (pid < 0 || read(ends[0], &port, sizeof port) != sizeof port)
        port = 0;
    (void)close(ends[0]);
    return port;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    (void)status, (void)kind;
    return at->level ? remove(path) : 0;
}

int sweep_folder(const char *folder)
{
    struct muster_error err = {0};
    char path[SWEEP_PATH + 32];
    scope_buffer text = {0};
    if (io_make_directories(folder, 0700, &err) ||
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT)) {
        fprintf(stderr, "%s: %s\n", folder, err.code ? err.text : strerror(errno));
        return -1;
    }
    for (int i = 0; i < 12; i++)
        buffer_text(&text, prose);
    (void)snprintf(path, sizeof path, "%s/text", folder);
    int failed = io_write_file_atomic(path, text.data, text.length, 0600, &err);
    (void)snprintf(path, sizeof path, "%s/config.yaml", folder);
    failed = failed || io_write_file_atomic(path, config, sizeof config - 1, 0600, &err);
    if (failed)
        fprintf(stderr, "%s\n", err.text);
    return failed ? -1 : 0;
}

/* ---- a rank ---- */

static void set_number(const char *name, long long value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%lld", value);
    setenv(name, text, 1);
}

/* Never returns. */
static void be_rank(const struct sweep_run *run, int rank, int output)
{
    char comm[32];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("MASTER_PORT", run->store);
    set_number("MUSTER_ROUND", run->number);
    set_number("TORCHELASTIC_RESTART_COUNT", run->restart);
    setenv("FAKE_CUDA_REPORT", "left-%r", 1);
    if (*run->fault)
        setenv("FAKE_CUDA_FAIL", run->fault, 1);
    if (run->counts)
        setenv("FAKE_CUDA_COUNT", "count-%r", 1);
    (void)snprintf(comm, sizeof comm, "--comm=%s", run->comm);
    char *words[6 + 2 * SWEEP_SETS] = {(char *)"muster-train", (char *)"config.yaml", (char *)"--device=cuda",
                                       comm};
    int count = 4;
    if (run->graphs)
        words[count++] = (char *)"--cuda-graphs";
    for (int i = 0; run->sets && i < SWEEP_SETS && run->sets[i]; i++) {
        words[count++] = (char *)"--set";
        words[count++] = (char *)(uintptr_t)run->sets[i];
    }
    if (dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0 || chdir(run->folder))
        _exit(99);
    exit(muster_train_main(count, words)); /* with the handlers at exit: the fakes' reports */
}

/* ---- a pair ---- */

static void read_left(const char *folder, int rank, struct sweep_left *left)
{
    char path[SWEEP_PATH + 32], name[64];
    long value;
    (void)snprintf(path, sizeof path, "%s/left-%d", folder, rank);
    scope_fclose FILE *file = fopen(path, "re");
    const struct {
        const char *name;
        long *to;
    } rows[] = {{"leaked_allocations", &left->allocations},
                {"leaked_streams", &left->streams},
                {"leaked_events", &left->events},
                {"leaked_graphs", &left->graphs},
                {"leaked_communicators", &left->communicators},
                {"dead_communicator_uses", &left->dead_uses},
                {"leaked_products", &left->products}};
    size_t found = 0;
    while (file && fscanf(file, "%63s %ld", name, &value) == 2) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            if (!strcmp(name, rows[i].name)) {
                *rows[i].to = value;
                found++;
            }
        }
    }
    left->reported = found == sizeof rows / sizeof *rows;
    (void)unlink(path);
}

/* The fakes say so when they refuse the call. */
static bool is_refused(const int outputs[SWEEP_RANKS])
{
    for (int rank = 0; rank < SWEEP_RANKS; rank++) {
        char text[SWEEP_TEXT];
        const ssize_t got = pread(outputs[rank], text, sizeof text - 1, 0);
        text[got > 0 ? got : 0] = '\0';
        if (strstr(text, SWEEP_REFUSED))
            return true;
    }
    return false;
}

/* Waits for both; a rank that has not ended at the limit is killed. */
static void await(const struct sweep_run *run, const pid_t pids[SWEEP_RANKS], const int outputs[SWEEP_RANKS],
                  struct sweep_rank ranks[SWEEP_RANKS])
{
    struct instant start = clock_now(NULL), limit = instant_add(start, 6 * run->limit_ns), now = start;
    bool open[SWEEP_RANKS] = {true, true}, refused = false;
    int left = SWEEP_RANKS;
    while (left) {
        clock_sleep_until(instant_add(now, 4 * NS_PER_MS));
        now = clock_now(NULL);
        if (!refused && *run->fault && is_refused(outputs)) {
            refused = true;
            start = now;
            limit = instant_min(limit, instant_add(now, run->limit_ns));
        }
        const bool late = instant_reached(now, limit);
        for (int rank = 0; rank < SWEEP_RANKS; rank++) {
            if (open[rank] && late)
                (void)kill(pids[rank], SIGKILL);
            if (!open[rank] || waitpid(pids[rank], &ranks[rank].status, late ? 0 : WNOHANG) != pids[rank])
                continue;
            open[rank] = false;
            left--;
            ranks[rank].ended = !late;
            ranks[rank].ns = instant_diff_ns(clock_now(NULL), start);
        }
    }
}

void sweep_pair(const struct sweep_run *run, struct sweep_rank ranks[SWEEP_RANKS])
{
    pid_t pids[SWEEP_RANKS];
    int outputs[SWEEP_RANKS];
    memset(ranks, 0, SWEEP_RANKS * sizeof *ranks);
    for (int rank = 0; rank < SWEEP_RANKS; rank++) {
        outputs[rank] = memfd_create("output", MFD_CLOEXEC);
        (void)fflush(NULL);
        pids[rank] = fork();
        if (pids[rank] == 0)
            be_rank(run, rank, outputs[rank]);
        if (pids[rank] < 0 || outputs[rank] < 0) {
            fprintf(stderr, "a rank cannot be started: %s\n", strerror(errno));
            exit(2);
        }
    }
    await(run, pids, outputs, ranks);
    for (int rank = 0; rank < SWEEP_RANKS; rank++) {
        const ssize_t got = pread(outputs[rank], ranks[rank].said, SWEEP_TEXT - 1, 0);
        ranks[rank].said[got > 0 ? got : 0] = '\0';
        (void)close(outputs[rank]);
        read_left(run->folder, rank, &ranks[rank].left);
    }
}

const char *sweep_line(const char *text, const char *has, const char *and_has, char line[SWEEP_TEXT])
{
    while (*text) {
        const size_t length = strcspn(text, "\n");
        memcpy(line, text, length);
        line[length] = '\0';
        if (strstr(line, has) && strstr(line, and_has))
            return line;
        text += length + (text[length] == '\n');
    }
    return strcpy(line, "");
}
