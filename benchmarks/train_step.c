/* train_step - steps of GPT-2 124M; on the CPU in turns with its own matrix products alone, in one process.
 *
 *     train_step [--batch 4] [--positions 64] [--threads 2] [--layers 12] [--channels 768] [--heads 12]
 *                [--vocab 50257] [--weights PATH] [--device cpu|cuda]
 *                [--matmul fp32|openblas|onednn|tf32|bf16|fp16|values] [--graphs 0|1] [--recompute 0|1]
 *                [--head plain|chunks|padded] [--memory 0|1]
 *
 * Writes its initial parameters to PATH, if there is one, prints a line about the code that it uses, then
 * reads lines from stdin and answers each with "STEP_NS PRODUCTS_NS LOSS": first a whole optimizer step of
 * the trainer (one rank, one micro-batch), then the same matrix products alone: the same calls with the same
 * shapes in the same order on the same thread, every layer with weights, inputs and outputs of its own, so
 * that nothing is warmer than in the step. On a GPU products are not measured, PRODUCTS_NS is 0. At end of
 * file it ends. train_cpu.py and train_gpu.py take the medians.
 *
 * --matmul bf16 or fp16, on a GPU: values and weights are of that type, gradients are summed in fp32. values:
 * the same of bf16 on a CPU, where bf16 rounds the factors of products alone.
 * --head, on a GPU: how the products of the head are cut. padded: rows of logits with a multiple of 32
 * elements, in chunks of the device's size, as muster-train has it. chunks: rows of the vocabulary's length.
 * plain: also in chunks of 64 MiB.
 * --memory 1, on a GPU: the last line is "memory PLANNED KEPT USED", in bytes of the device: of the plan's
 * arenas, allowed for libraries, and taken by the process since the trainer was made.
 * MUSTER_BENCH_CLOCK=processor: both are the process's processor time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/narrow.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "runtime/device/device_module.h"
#include "runtime/files/files.h"
#include "runtime/model/architectures.h"
#include "runtime/model/head.h"
#include "runtime/train/trainer.h"

struct settings {
    int batch, positions, threads, layers, channels, heads, vocab, graphs, recompute, memory;
    const char *weights; /* NULL: not written */
    const char *device;  /* "cpu", "cuda" */
    /* "fp32", "tf32", "bf16", "fp16"; on CPUs "openblas", "onednn" (fp32 by these alone) and "values" (of
     * bf16) */
    const char *matmul;
    const char *head; /* "plain", "chunks", "padded" */
};

/* One product's arrays: in (N,C), weight (OC,C), out (N,OC) and the three gradients in their places. */
struct product {
    int C, OC;
    void *in, *weight, *out; /* of the kernels' values */
    float *dweight;
};
enum { BLOCK_PRODUCTS = 4 };

struct products {
    const struct kernels *kernels;
    int N, blocks, head_rows;
    struct product *list; /* blocks * BLOCK_PRODUCTS, then the head */
    int count;
    int64_t taken_ns;
};

/* Of the process, or elapsed. */
static bool is_processor_time(void)
{
    const char *clock = getenv("MUSTER_BENCH_CLOCK");
    return clock && !strcmp(clock, "processor");
}

static int64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(is_processor_time() ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC,
                        &t); /* Linux has both */
    return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

/* Not zero, not denormal, and every page touched. */
static void fill(void *to, enum dtype dtype, size_t count, size_t period, float step)
{
    for (size_t i = 0; i < count; i++) {
        const float value = ((float)(i % period) - (float)(period / 2)) * step;
        if (dtype == DTYPE_F32)
            ((float *)to)[i] = value;
        else
            ((uint16_t *)to)[i] = narrow_to_bf16(value);
    }
}

static int product_make(struct product *p, int N, int rows, int C, int OC, enum dtype value)
{
    const size_t size = (size_t)dtype_size(value);
    *p = (struct product){.C = C, .OC = OC};
    p->in = mem_calloc((size_t)N * (size_t)C, size);
    p->out = mem_calloc((size_t)rows * (size_t)OC, size);
    p->weight = mem_calloc((size_t)OC * (size_t)C, size);
    p->dweight = mem_calloc((size_t)OC * (size_t)C, sizeof(float));
    if (!p->in || !p->out || !p->weight || !p->dweight)
        return -1;
    fill(p->in, value, (size_t)N * (size_t)C, 31, 0.01f);
    fill(p->out, value, (size_t)rows * (size_t)OC, 29, 0.01f);
    fill(p->weight, value, (size_t)OC * (size_t)C, 37, 0.001f);
    fill(p->dweight, DTYPE_F32, (size_t)OC * (size_t)C, 37, 0.001f);
    return 0;
}

static int products_make(struct products *all, const struct gpt2_config *c, int N,
                         const struct kernels *kernels)
{
    int C = c->channels;
    *all = (struct products){.kernels = kernels, .N = N, .blocks = c->layers};
    all->head_rows = head_rows(N, c->vocab, kernels->value, 0);
    all->count = c->layers * BLOCK_PRODUCTS + 1;
    all->list = mem_calloc((size_t)all->count, sizeof *all->list);
    const int shapes[BLOCK_PRODUCTS][2] = {{C, 3 * C}, {C, C}, {C, 4 * C}, {4 * C, C}};
    for (int i = 0; all->list && i < all->count - 1; i++) {
        const int *shape = shapes[i % BLOCK_PRODUCTS];
        if (product_make(&all->list[i], N, N, shape[0], shape[1], kernels->value))
            return -1;
    }
    return all->list
               ? product_make(&all->list[all->count - 1], N, all->head_rows, C, c->vocab, kernels->value)
               : -1;
}

static void products_free(struct products *all)
{
    for (int i = 0; all->list && i < all->count; i++) {
        mem_free(all->list[i].in);
        mem_free(all->list[i].out);
        mem_free(all->list[i].weight);
        mem_free(all->list[i].dweight);
    }
    mem_free(all->list);
}

/* Runs on the compute stream. out stands for dout in backward and in for din: values do not matter. */
static void products_run(void *argument)
{
    struct products *all = argument;
    const struct kernels *k = all->kernels;
    const struct product *head = &all->list[all->count - 1];
    const int64_t start = now_ns();
    for (int i = 0; i < all->count - 1; i++) {
        const struct product *p = &all->list[i];
        k->linear_forward(p->out, p->in, p->weight, NULL, all->N, p->C, p->OC, p->OC, NULL);
    }
    for (int first = 0; first < all->N; first += all->head_rows) {
        int rows = all->N - first < all->head_rows ? all->N - first : all->head_rows;
        void *in = (char *)head->in + (size_t)first * (size_t)head->C * (size_t)dtype_size(k->value);
        k->linear_forward(head->out, in, head->weight, NULL, rows, head->C, head->OC, head->OC, NULL);
        k->linear_backward_weight(head->dweight, NULL, head->out, in, rows, head->C, head->OC, head->OC,
                                  first > 0, NULL);
        k->linear_backward_input(in, head->out, head->weight, rows, head->C, head->OC, head->OC, 0, NULL);
    }
    for (int i = all->count - 2; i >= 0; i--) {
        const struct product *p = &all->list[i];
        k->linear_backward_weight(p->dweight, NULL, p->out, p->in, all->N, p->C, p->OC, p->OC, 0, NULL);
        k->linear_backward_input(p->in, p->out, p->weight, all->N, p->C, p->OC, p->OC, 0, NULL);
    }
    all->taken_ns = now_ns() - start;
    /* what backward left in `in` is large: start the next round from small values again, outside the time */
    for (int i = 0; i < all->count; i++)
        fill(all->list[i].in, k->value, (size_t)all->N * (size_t)all->list[i].C, 31, 0.01f);
}

GUARD_DEFINE(trainer, struct trainer *, trainer_destroy);

static bool on_cpu(const struct settings *s)
{
    return !strcmp(s->device, "cpu");
}

/* A device like another one, with its kernels' head cut in another way; one a process. */
static struct {
    struct device_ops ops;
    const struct device_ops *real;
    struct kernels kernels;
    bool plain;
} cut;

static const struct kernels *cut_kernels(struct device *device)
{
    cut.kernels = *cut.real->kernels(device);
    cut.kernels.row_multiple = 1;
    if (cut.plain)
        cut.kernels.chunk_bytes = 64 << 20;
    return &cut.kernels;
}

static const struct device_ops *cut_device(const struct device_ops *real, const char *head)
{
    if (!strcmp(head, "padded"))
        return real;
    cut.real = real;
    cut.ops = *real;
    cut.ops.kernels = cut_kernels;
    cut.plain = !strcmp(head, "plain");
    return &cut.ops;
}

/* On a GPU; products of bf16 on a CPU have values of fp32. */
static enum dtype values_of(const struct settings *s)
{
    return on_cpu(s)                    ? (!strcmp(s->matmul, "values") ? DTYPE_BF16 : DTYPE_F32)
           : !strcmp(s->matmul, "bf16") ? DTYPE_BF16
           : !strcmp(s->matmul, "fp16") ? DTYPE_F16
                                        : DTYPE_F32;
}

static struct trainer *make_trainer(const struct model *model, const struct settings *s,
                                    struct muster_error *err)
{
    struct device_chosen chosen;
    if (device_choose(on_cpu(s) ? DEVICE_CPU : DEVICE_CUDA, &chosen, err))
        return NULL;
    const struct trainer_options options = {
        .plan = {.strategy = STRATEGY_NO_SHARD,
                 .mesh = MESH(1, 1, 1),
                 .shape = {s->batch, s->positions},
                 .micro_batches = 1,
                 .clip = true,
                 .train = true,
                 .param_dtype = values_of(s),
                 .recompute = {.kind = s->recompute ? RECOMPUTE_ALL : RECOMPUTE_NONE}},
        .device = cut_device(chosen.ops, s->head),
        .tf32 = !strcmp(s->matmul, "tf32"),
        .values = values_of(s),
        .loss_scale = {.fixed = 1024},
        .products = !on_cpu(s)                       ? KERNELS_AUTO
                    : !strcmp(s->matmul, "bf16")     ? KERNELS_BF16
                    : !strcmp(s->matmul, "onednn")   ? KERNELS_ONEDNN
                    : !strcmp(s->matmul, "openblas") ? KERNELS_OPENBLAS
                                                     : KERNELS_AUTO,
        .graphs = s->graphs,
        .world_size = 1,
        .threads = s->threads,
        .timeout_ns = 60 * NS_PER_S,
        .seed = 1,
    };
    return trainer_create(model, &options, err);
}

/* Batches that the peers can form as well: support/gpt2_peer.py. */
static int32_t batch_value(uint64_t round, int which, size_t i, int vocab)
{
    return (int32_t)(((2 * round + (uint64_t)which) * 1000003 + (uint64_t)i * 7919) % (uint64_t)vocab);
}

/* products: of no list where they are not measured */
static int rounds(struct trainer *trainer, struct products *products, int vocab, struct muster_error *err)
{
    size_t count = (size_t)products->N;
    scope_free int32_t *tokens = mem_calloc(count, sizeof *tokens),
                       *targets = mem_calloc(count, sizeof *targets);
    if (!tokens || !targets)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a batch");
    const struct trainer_step_values values = {.learning_rate = 1e-4,
                                               .weight_decay = 0.1,
                                               .beta1 = 0.9,
                                               .beta2 = 0.95,
                                               .epsilon = 1e-8,
                                               .clip_norm = 1,
                                               .global_tokens = products->N};
    char line[64];
    for (uint64_t round = 0; fgets(line, sizeof line, stdin); round++) {
        struct trainer_stats stats;
        for (size_t i = 0; i < count; i++) {
            tokens[i] = batch_value(round, 0, i, vocab);
            targets[i] = batch_value(round, 1, i, vocab);
        }
        const int64_t start = now_ns();
        if (trainer_step(trainer, &(struct batch){{tokens, targets}}, &values, &stats, err))
            return -1;
        const int64_t step_ns = is_processor_time() ? now_ns() - start : stats.step_ns;
        if ((products->list && trainer_run(trainer, products_run, products, err)))
            return -1;
        if (printf("%lld %lld %.9g\n", (long long)step_ns, (long long)products->taken_ns, stats.loss) < 0 ||
            fflush(stdout))
            return error_errno(err, "standard output");
    }
    return 0;
}

/* The device's memory, seen through a device of its own. */
struct look {
    const struct device_ops *ops;
    struct device *device; /* NULL: memory is not asked for */
    int64_t before;
};

static int look_begin(struct look *look, const struct settings *s, struct muster_error *err)
{
    struct device_chosen chosen;
    if (!s->memory)
        return 0;
    if (device_choose(DEVICE_CUDA, &chosen, err))
        return -1;
    look->ops = chosen.ops;
    look->device = look->ops->open(0, 1, err);
    look->before = look->device ? look->ops->memory_available(look->device) : 0;
    return look->device ? 0 : -1;
}

static void look_end(struct look *look)
{
    if (look->device)
        look->ops->close(look->device);
}

static int look_print(const struct look *look, struct trainer *trainer, struct muster_error *err)
{
    if (!look->device)
        return 0;
    const int64_t *arenas = trainer_plan(trainer)->arena_bytes;
    const int64_t kept = look->ops->memory_kept ? look->ops->memory_kept(look->device, false) : 0;
    const int64_t used = look->before - look->ops->memory_available(look->device);
    return printf("memory %lld %lld %lld\n", (long long)(arenas[MEMORY_DEVICE] + arenas[MEMORY_COMM]),
                  (long long)kept, (long long)used) < 0
               ? error_errno(err, "standard output")
               : 0;
}

static int run(const struct settings *s, struct muster_error *err)
{
    const struct gpt2_config config = {.layers = s->layers,
                                       .channels = s->channels,
                                       .heads = s->heads,
                                       .vocab = s->vocab,
                                       .max_positions = 1024};
    __attribute__((cleanup(look_end))) struct look look = {0};
    if (look_begin(&look, s, err))
        return -1;
    GUARD(guard_model) struct model *model = gpt2_create(&config, err);
    GUARD(guard_trainer) struct trainer *trainer = model ? make_trainer(model, s, err) : NULL;
    if (!trainer || (s->weights && files_save(trainer, s->weights, err)))
        return -1;
    if (printf("%s, %s\n", trainer_kernels(trainer)->name,
               on_cpu(s) ? kernels_cpu_library(trainer_kernels(trainer)) : "") < 0 ||
        fflush(stdout))
        return error_errno(err, "standard output");
    struct products products = {.N = s->batch * s->positions};
    int failed = on_cpu(s) && products_make(&products, &config, products.N, trainer_kernels(trainer))
                     ? error_set(err, MUSTER_E_NOMEM, "no memory for the products' arrays")
                     : rounds(trainer, &products, config.vocab, err);
    products_free(&products);
    return failed ? failed : look_print(&look, trainer, err);
}

static int read_settings(int argc, char **argv, struct settings *s)
{
    const struct {
        const char *name;
        int *value;
    } flags[] = {{"--batch", &s->batch},   {"--positions", &s->positions}, {"--threads", &s->threads},
                 {"--layers", &s->layers}, {"--graphs", &s->graphs},       {"--recompute", &s->recompute},
                 {"--vocab", &s->vocab},   {"--channels", &s->channels},   {"--heads", &s->heads},
                 {"--memory", &s->memory}};
    const struct {
        const char *name, **value;
    } words[] = {
        {"--weights", &s->weights}, {"--device", &s->device}, {"--matmul", &s->matmul}, {"--head", &s->head}};
    const size_t flag_count = sizeof flags / sizeof *flags, word_count = sizeof words / sizeof *words;
    for (int i = 1; i < argc; i += 2) {
        int64_t value;
        size_t flag = 0, word = 0;
        while (word < word_count && strcmp(words[word].name, argv[i]))
            word++;
        while (flag < flag_count && strcmp(flags[flag].name, argv[i]))
            flag++;
        if (i + 1 == argc || (word == word_count && flag == flag_count))
            return -1;
        if (word < word_count)
            *words[word].value = argv[i + 1];
        else if (text_int64(argv[i + 1], &value) && value >= 0 && value <= 1 << 20)
            *flags[flag].value = (int)value;
        else
            return -1;
    }
    const bool known = !strcmp(s->head, "plain") || !strcmp(s->head, "chunks") || !strcmp(s->head, "padded");
    const bool gpus_own = strcmp(s->head, "padded") || s->memory;
    return s->batch && s->positions && s->threads && s->layers && s->channels && s->heads && s->vocab &&
                   known && (!gpus_own || !on_cpu(s))
               ? 0
               : -1;
}

int main(int argc, char **argv)
{
    struct settings s = {.batch = 4,
                         .positions = 64,
                         .threads = 2,
                         .layers = 12,
                         .channels = 768,
                         .heads = 12,
                         .vocab = 50257,
                         .device = "cpu",
                         .matmul = "fp32",
                         .head = "padded"};
    struct muster_error err = {0};
    if (read_settings(argc, argv, &s)) {
        fprintf(stderr,
                "usage: train_step [--batch N] [--positions N] [--threads N] [--layers N] [--channels N] "
                "[--heads N]"
                " [--vocab N] [--weights PATH] [--device cpu|cuda] [--matmul "
                "fp32|openblas|onednn|tf32|bf16|fp16|values]"
                " [--graphs 0|1] [--recompute 0|1] [--head plain|chunks|padded] [--memory 0|1] < lines\n");
        return 2;
    }
    if (run(&s, &err)) {
        fprintf(stderr, "train_step: %s\n", err.text);
        return 1;
    }
    return 0;
}
