/* run.c - what every part of a run may call: the model, the world and the trainer of its settings. See run.h.
 */
#include "trainer/run/run.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/log.h"
#include "proto/base/mem.h"
#include "runtime/config/train_settings.h"
#include "trainer/data/data.h"

/* A folder or file with the name of an architecture ("llama") is meant as such: muster_model_open would take
 * the name for the architecture. */
static bool is_architecture_name(const char *path)
{
    static const char key[] = "model.architecture";
    const struct knob *knob = knob_find(train_config_table(), key, sizeof key - 1, false, NULL);
    for (const char *const *choice = knob->choices; *choice; choice++)
        if (!strcmp(*choice, path))
            return true;
    return false;
}

/* A model whose files give its sizes. */
static int open_path(struct run *run, char *const *settings, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    scope_free char *here = is_architecture_name(c->model_path) ? mem_printf("./%s", c->model_path) : NULL;
    char **own = train_settings_of_files(c);
    size_t count = 0, more = 0;
    while (settings[count])
        count++;
    while (own && own[more])
        more++;
    scope_free const char **texts = own ? mem_calloc(count + more + 1, sizeof *texts) : NULL;
    if (texts) {
        memcpy(texts, settings, count * sizeof *texts);
        memcpy(texts + count, own, more * sizeof *texts);
        run->model = muster_model_open(here ? here : c->model_path, texts, err);
    } else {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the settings");
    }
    train_settings_free(own);
    if (!run->model)
        return -1;
    const char *found = muster_model_architecture(run->model);
    if (c->architecture == TRAIN_ARCHITECTURE_AUTO || c->architecture == TRAIN_ARCHITECTURE_ENCODER ||
        !strcmp(found, train_config_architecture(c)))
        return 0;
    return error_set(err, MUSTER_E_INVALID, "model.path %s is a %s, but model.architecture is %s",
                     c->model_path, found, train_config_architecture(c));
}

int run_open_model(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const bool sizes = train_config_gives_sizes(c);
    if (run->model) /* the stage before has opened it */
        return 0;
    char **texts = train_settings_joined(c, sizes ? "model" : NULL, "lora");
    int result = 0;
    if (!texts)
        result = error_set(err, MUSTER_E_NOMEM, "no memory for the settings");
    else if (!sizes)
        result = open_path(run, texts, err);
    else
        run->model = muster_model_open(train_config_architecture(c), (const char *const *)texts, err);
    train_settings_free(texts);
    if (!result && run->model && (run->packs || c->packing == DATA_PACKED))
        result = muster_model_pack(run->model, err) < 0 ? error_wrap(err, "data.packing packed") : 0;
    return run->model ? result : -1;
}

int run_open_world(struct run *run, struct muster_error *err)
{
    const struct muster_world_options options = {.size = sizeof options,
                                                 .timeout_ms = (int64_t)(run->config.timeout_s * 1000)};
    run->world = muster_world_open(&options, err);
    if (!run->world)
        return -1;
    run->rank = muster_world_rank(run->world);
    run->world_size = muster_world_size(run->world);
    return 0;
}

void run_unite(struct run *run)
{
    if (run->whole) {
        muster_world_close(&run->world);
        run->world = take_pointer(&run->whole);
    }
    run->rank = muster_world_rank(run->world);
    run->world_size = muster_world_size(run->world);
}

/* The launcher sees a rank that lives, and whose steps it need not watch. 1: the others have ended; 0: ranks
 * were lost or have come, and the world is whole again. */
static int wait_for_others(struct run *run, struct muster_error *err)
{
    int ended = muster_notice_listen(err) < 0 ? -1 : 0; /* it ends with the others */
    if (!ended && muster_world_stay_spare(run->whole, err) < 0)
        return -1;
    muster_kept_free(take_pointer(&run->kept)); /* the others go on without it */
    while (!ended) {
        ended = muster_heartbeat(-1, err) < 0 ? -1 : muster_world_ended(run->whole, NS_PER_S / 4, err);
        /* the store is lost with its node */
        const int joined = ended > 0 ? 0 : muster_world_rejoin(run->whole, ended < 0 ? 5 * NS_PER_S : 0, err);
        if (joined) {
            run_unite(run);
            return joined > 0 ? 0 : -1;
        }
    }
    return ended;
}

/* Whether ranks that are left wait: one answer on all ranks, which may have different variables. */
static int may_wait(struct run *run, struct muster_error *err)
{
    const int spare = run->config.mesh_spare;
    double wait = spare == TRAIN_SPARE_AUTO ? muster_world_elastic(run->world) : spare == TRAIN_SPARE_TRUE;
    return muster_world_reduce(run->world, &wait, 1, MUSTER_MAX, err) < 0 ? -1 : wait > 0;
}

/* Ranks without a state wait first, then the last one of the ranks whose state most others have, too.
 * numbers: [size] of muster_kept_number, and 1. */
static bool waits(double *numbers, int size, int64_t left, int rank)
{
    for (; left; left--) {
        int last = -1, most = 0;
        for (int i = 0; i < size; i++) {
            int equal = numbers[i] ? 0 : size + 1;
            for (int j = 0; numbers[i] > 0 && j < size; j++)
                equal += numbers[j] == numbers[i];
            if (numbers[i] >= 0 && equal >= most) {
                last = i;
                most = equal;
            }
        }
        if (last == rank)
            return true;
        numbers[last] = -1; /* it waits */
    }
    return false;
}

/* 1: this rank is left out; 0: it trains. */
static int leave_spares(struct run *run, int64_t left, struct muster_error *err)
{
    scope_free double *numbers = mem_calloc((size_t)run->world_size, sizeof *numbers);
    if (muster_world_agree(run->world,
                           numbers ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory to leave ranks out"),
                           err) < 0)
        return -1;
    numbers[run->rank] = 1 + muster_kept_number(run->kept);
    if (muster_world_reduce(run->world, numbers, run->world_size, MUSTER_SUM, err) < 0)
        return -1;
    const bool spare = waits(numbers, run->world_size, left, run->rank);
    const long long all = run->world_size;
    struct muster_world *part = muster_world_split(run->world, spare, run->rank, err);
    if (!part)
        return -1;
    run->whole = run->world;
    run->world = part;
    run->rank = muster_world_rank(part);
    run->world_size = muster_world_size(part);
    if (!spare && run->rank == 0)
        printf("mesh.spare: %lld of %lld ranks wait%s, as mesh.pipeline %lld takes %lld\n", (long long)left,
               all, left == 1 ? "s" : "", (long long)run->config.mesh_pipeline, all - (long long)left);
    (void)fflush(stdout);
    return spare;
}

int run_leave_spares(struct run *run, struct muster_error *err)
{
    for (int ended = 0; !ended;) {
        const int64_t stages = run->config.mesh_pipeline, left = run->world_size % stages;
        if (!left || run->world_size < stages)
            return 0;
        /* ranks that are new come first: a communicator that waits for them is not let go */
        const int wait = muster_world_agree(run->world, 0, err) < 0 ? -1 : may_wait(run, err);
        if (wait <= 0)
            return wait;
        const int spare = leave_spares(run, left, err);
        if (spare <= 0)
            return spare;
        ended = wait_for_others(run, err);
        if (ended < 0)
            return -1;
    }
    return 1;
}

int run_end(struct run *run, struct muster_error *err)
{
    return run->rank ? 0 : muster_world_end(run->whole, err);
}

int run_open_trainer(struct run *run, struct muster_error *err)
{
    char **texts = train_settings_texts(&run->config, "training");
    const int failed = texts ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for the settings");
    if (muster_world_agree(run->world, failed, err) == 0)
        run->trainer = muster_trainer_open(run->world, run->model, (const char *const *)texts, err);
    train_settings_free(texts);
    return run->trainer ? 0 : -1;
}

struct muster_trainer_state run_state(const struct run *run)
{
    return muster_trainer_state_now(run->trainer);
}

bool run_saves(const struct run *run)
{
    return run->config.output && *run->config.output;
}

bool run_keeps_checkpoints(const struct run *run)
{
    return run->config.checkpoint_dir && *run->config.checkpoint_dir;
}

const char *run_param_name(const struct run *run, int param)
{
    return param < 0 ? "no single parameter" : muster_trainer_parameter_name(run->trainer, param);
}

int run_set(struct train_config *config, const char *key, const char *value, struct muster_error *err)
{
    const struct knob_table *table = train_config_table();
    const struct knob *knob = knob_find(table, key, strlen(key), false, NULL);
    return knob_set(table, config, config->sources, knob, value, KNOB_FROM_RULE, key, err);
}

void run_free(struct run *run)
{
    muster_trainer_close(&run->trainer);
    muster_kept_free(run->kept);
    muster_model_free(run->model);
    muster_world_close(&run->world);
    muster_world_close(&run->whole);
    train_config_free(&run->config);
}

/* ---- the console ---- */

static bool line_open; /* a progress line without its end is on the terminal */

void console_progress(const char *line, size_t length, bool last)
{
    struct winsize size;
    const bool terminal = isatty(STDOUT_FILENO) && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size),
               over = terminal && length < size.ws_col;
    printf(over ? "\r%s\033[K" : "%s", line);
    line_open = over && !last;
    if (!line_open)
        printf("\n");
    (void)fflush(stdout); /* a closed console does not stop the training */
}

void console_line_end(void)
{
    if (line_open) {
        printf("\n");
        (void)fflush(stdout); /* errors are printed on standard error */
    }
    line_open = false;
}

const struct log_sink *console_warnings(void)
{
    static int fd = STDERR_FILENO;
    static const struct log_sink sink = {
        .write = log_write_to_fd, .context = &fd, .threshold = LOG_LEVEL_WARNING, .who = "muster-train"};
    return &sink;
}

FILE *console_take_output(struct muster_error *err)
{
    const int fd = dup(STDOUT_FILENO);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        (void)error_errno(err, "cannot duplicate standard output");
        if (out)
            (void)fclose(out);
        else if (fd >= 0)
            (void)close(fd);
        return NULL;
    }
    return out;
}

int console_text(FILE *to, const struct buffer *text, struct buffer *out)
{
    return isatty(fileno(to)) ? buffer_printable(out, text->data, text->length)
                              : buffer_append(out, text->data, text->length);
}
