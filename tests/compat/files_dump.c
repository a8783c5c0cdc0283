/* files_dump - a model from files through a trainer into files, with its logits, for hf_files_test.py.
 *
 *     files_dump IN OUT FORMAT DTYPE SHARD_BYTES KERNELS RANKS STRATEGY [TOKENS LOGITS]
 *     files_dump --names IN                    the model's parameters, a line each
 *     files_dump --greedy IN COUNT TOKEN...    the tokens that follow, by the fast kernels and with what they
 * keep
 *
 * IN: what files_open takes. OUT: what files_export takes, "-" for none; FORMAT hf, pth or safetensors, DTYPE
 * f32 or bf16. KERNELS f32 (the fast ones) or f64 (the reference). Ranks are threads. TOKENS: one sequence of
 * i32; LOGITS gets (T, vocabulary) of the kernels' type, position by position, or, where its name ends in
 * ".loss", the mean loss of predicting each token from those before it, as text. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "rendezvous/store/kv_memory.h"
#include "runtime/files/files.h"
#include "runtime/model/logits.h"
#include "runtime/train/generate.h"
#include "tests/support/rank_threads.h"

struct dump {
    const char *in, *out, *tokens_path, *logits_path;
    struct files_export what;
    const struct kernels *kernels;
    enum strategy strategy;
    int ranks, T;
    int32_t *tokens;
    struct kv_store store;
    const char *const *prompt; /* of --greedy; NULL: none */
    int prompt_count, count;
};

GUARD_DEFINE(trainer, struct trainer *, trainer_destroy);

static int read_tokens(struct dump *d, struct muster_error *err)
{
    struct stat status;
    scope_fclose FILE *file = fopen(d->tokens_path, "rb");
    if (!file || fstat(fileno(file), &status))
        return error_errno(err, "%s", d->tokens_path);
    d->T = (int)(status.st_size / 4);
    d->tokens = mem_calloc((size_t)d->T + 1, sizeof *d->tokens);
    if (!d->tokens || fread(d->tokens, sizeof *d->tokens, (size_t)d->T, file) != (size_t)d->T)
        return error_set(err, MUSTER_E_IO, "%s: cannot be read", d->tokens_path);
    return 0;
}

/* ---- logits ---- */

struct pass {
    const struct dump *d;
    const struct model *model;
    void **weights, *work, *logits;
};

static void run_pass(void *context)
{
    struct pass *p = context;
    int64_t row = model_vocabulary(p->model) * dtype_size(p->d->kernels->value);
    const struct step_scalars none = {0};
    for (int t = 1; t <= p->d->T; t++)
        model_logits(p->model, p->d->kernels, (const void *const *)p->weights, p->d->tokens, &none,
                     (struct shape){1, t}, p->work, (char *)p->logits + (t - 1) * row, NULL);
}

static int keep(void *context, int param, const void *values, struct muster_error *err)
{
    struct pass *p = context;
    size_t bytes =
        (size_t)param_elements(&p->model->params[param]) * (size_t)dtype_size(p->d->kernels->value);
    if (!(p->weights[param] = mem_calloc(bytes, 1)))
        return error_set(err, MUSTER_E_NOMEM, "no memory for the parameters");
    memcpy(p->weights[param], values, bytes);
    return 0;
}

static int write_logits(const struct dump *d, struct trainer *trainer, int rank, struct muster_error *err)
{
    const struct model *model = trainer_model(trainer);
    size_t bytes = (size_t)d->T * (size_t)model_vocabulary(model) * (size_t)dtype_size(d->kernels->value);
    struct pass p = {.d = d, .model = model};
    p.weights = mem_calloc((size_t)model->param_count, sizeof *p.weights);
    p.work = mem_calloc((size_t)model_logits_work(model, d->kernels, (struct shape){1, d->T}), 1);
    p.logits = mem_calloc(bytes, 1);
    int result =
        !p.weights || !p.work || !p.logits ? error_set(err, MUSTER_E_NOMEM, "no memory for logits") : 0;
    if (!result)
        result = trainer_each_param(trainer, rank ? NULL : keep, &p, err);
    if (!result && !rank) {
        result = trainer_run(trainer, run_pass, &p, err);
        scope_fclose FILE *file = fopen(d->logits_path, "wb");
        if (!result && (!file || fwrite(p.logits, 1, bytes, file) != bytes || fflush(file)))
            result = error_errno(err, "%s", d->logits_path);
    }
    for (int i = 0; p.weights && i < model->param_count; i++)
        mem_free(p.weights[i]);
    mem_free(p.weights);
    mem_free(p.work);
    mem_free(p.logits);
    return result;
}

static int write_loss(const struct dump *d, struct trainer *trainer, int rank, struct muster_error *err)
{
    double loss;
    scope_free int32_t *targets = mem_calloc((size_t)d->T, sizeof *targets);
    if (!targets)
        return error_set(err, MUSTER_E_NOMEM, "no memory for targets");
    for (int t = 0; t < d->T; t++)
        targets[t] = t + 1 < d->T ? d->tokens[t + 1] : -1;
    if (trainer_evaluate(trainer, &(struct batch){{d->tokens, targets}}, &loss, err))
        return -1;
    scope_fclose FILE *file = rank ? NULL : fopen(d->logits_path, "w");
    return !rank && (!file || fprintf(file, "%.12f\n", loss) < 0) ? error_errno(err, "%s", d->logits_path)
                                                                  : 0;
}

static int write_greedy(const struct dump *d, struct trainer *trainer, struct muster_error *err)
{
    scope_free int32_t *prompt = mem_calloc((size_t)d->prompt_count, sizeof *prompt);
    scope_free int32_t *tokens = mem_calloc((size_t)d->count, sizeof *tokens);
    if (!prompt || !tokens)
        return error_set(err, MUSTER_E_NOMEM, "no memory for tokens");
    for (int i = 0; i < d->prompt_count; i++)
        prompt[i] = atoi(d->prompt[i]);
    struct generate_options options = {
        .prompt = prompt, .prompt_count = d->prompt_count, .count = d->count, .end = -1};
    if (trainer_generate(trainer, &options, tokens, err))
        return -1;
    for (int64_t i = 0; i < options.drawn; i++)
        printf("%d\n", tokens[i]);
    return 0;
}

/* ---- one rank ---- */

static int run_rank(const struct dump *d, int rank, struct muster_error *err)
{
    GUARD(guard_files) struct files *files = files_open(d->in, err);
    const struct architecture *architecture = files ? files_architecture(files) : NULL;
    GUARD(guard_model) struct model *model = architecture ? architecture_model(architecture, err) : NULL;
    if (!model || files_match(files, model, architecture, err))
        return -1;
    if (d->prompt && !d->count) {
        for (int i = 0; i < model->param_count; i++)
            printf("%s\n", model->params[i].name);
        return 0;
    }
    struct trainer_options options = {
        .plan = {.strategy = d->strategy,
                 .shape = {1, d->T ? d->T : 1},
                 .mesh = MESH(1, 1, d->ranks),
                 .micro_batches = 1,
                 .prefetch_forward = 2,
                 .prefetch_backward = 2,
                 .train = true},
        .rank = rank,
        .world_size = d->ranks,
        .local_rank = rank,
        .local_world_size = d->ranks,
        .threads = 1,
        .kernels = d->kernels,
        .store = d->ranks > 1 ? &d->store : NULL,
        .timeout_ns = 60 * NS_PER_S,
    };
    GUARD(guard_trainer) struct trainer *trainer = trainer_create(model, &options, err);
    if (!trainer || files_load(files, trainer, err))
        return -1;
    if (d->prompt)
        return write_greedy(d, trainer, err);
    bool loss = d->logits_path && strlen(d->logits_path) > 5 &&
                !strcmp(d->logits_path + strlen(d->logits_path) - 5, ".loss");
    if (d->T && (loss ? write_loss : write_logits)(d, trainer, rank, err))
        return -1;
    struct files_export what = d->what;
    what.architecture = architecture;
    what.folder = files_folder(files);
    return strcmp(d->out, "-") ? files_export(trainer, d->out, &what, err) : 0;
}

static int rank_body(int rank, int ranks, void *context)
{
    struct muster_error err = {0};
    (void)ranks;
    if (!run_rank(context, rank, &err))
        return 0;
    fprintf(stderr, "rank %d: %s\n", rank, err.text);
    return -1;
}

static int run_ranks(struct dump *d, struct muster_error *err)
{
    struct kv_memory *memory = kv_memory_create(err);
    if (!memory)
        return -1;
    d->store = kv_memory_store(memory);
    int failed = rank_threads_run(d->ranks, rank_body, d);
    kv_memory_destroy(memory);
    return failed ? error_set(err, MUSTER_E_STATE, "a rank failed") : 0;
}

int main(int argc, char **argv)
{
    static const char *const formats[] = {"safetensors", "hf", "pth"}; /* enum files_format */
    struct muster_error err = {0};
    if (argc > 2 && !strncmp(argv[1], "--", 2)) {
        struct dump words = {.in = argv[2],
                             .out = "-",
                             .ranks = 1,
                             .kernels = kernels_cpu((unsigned)-1),
                             .prompt = (const char *const *)argv + 4,
                             .prompt_count = argc - 4,
                             .count = argc > 4 ? atoi(argv[3]) : 0};
        return run_ranks(&words, &err) ? 1 : 0;
    }
    if (argc != 9 && argc != 11) {
        fprintf(stderr,
                "usage: files_dump IN OUT FORMAT DTYPE SHARD_BYTES KERNELS RANKS STRATEGY [TOKENS LOGITS]\n");
        return 2;
    }
    struct dump d = {.in = argv[1], .out = argv[2], .ranks = atoi(argv[7])};
    while (d.what.format < FILES_FORMAT_COUNT && strcmp(formats[d.what.format], argv[3]))
        d.what.format++;
    d.what.dtype = strcmp(argv[4], "bf16") ? DTYPE_F32 : DTYPE_BF16;
    d.what.shard_bytes = atoll(argv[5]);
    d.kernels = strcmp(argv[6], "f64") ? kernels_cpu((unsigned)-1) : kernels_ref_f64();
    while (d.strategy < STRATEGY_COUNT && strcmp(strategy_name(d.strategy), argv[8]))
        d.strategy++;
    d.tokens_path = argc == 11 ? argv[9] : NULL;
    d.logits_path = argc == 11 ? argv[10] : NULL;
    int failed = (d.tokens_path && read_tokens(&d, &err)) || run_ranks(&d, &err);
    mem_free(d.tokens);
    if (failed)
        fprintf(stderr, "files_dump: %s\n", err.text);
    return failed;
}
