/* run_labelled.c - a run on labelled texts: the set by its settings, and what is printed of it. See run.h. */
#include <malloc.h>
#include <stdio.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "trainer/labelled/labelled.h"
#include "trainer/run/run.h"

bool run_has_labels(const struct run *run)
{
    return train_config_reads_labels(&run->config);
}

/* dataset_info.json. */
static int write_info(const struct run *run, struct muster_error *err)
{
    const char *folder = run->config.data_info;
    scope_buffer json = {0};
    if (run->rank || !folder || !*folder)
        return 0;
    scope_free char *path = mem_printf("%s/dataset_info.json", folder);
    if (!path || labelled_info(run->labelled, &json) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for data.info_dir");
    if (io_make_directories(folder, 0777, err) < 0 ||
        io_write_file_atomic(path, json.data, json.length, 0666, err) < 0)
        return error_wrap(err, "data.info_dir");
    return 0;
}

int run_labelled_open(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    struct run_tokenizing tokenizing = {.begun = clock_now(NULL)};
    const struct data_progress progress = {run_print_tokenized, &tokenizing};
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = run_tokenizer_open(run, err);
    if (!tokenizer)
        return -1;
    const struct labelled_options options = {.path = c->path,
                                             .validation_path = c->validation_path,
                                             .validation_share = c->validation_share,
                                             .seed = (uint64_t)c->seed,
                                             .text_key = c->text_key,
                                             .label_key = c->label_key,
                                             .tokenizer = tokenizer,
                                             .cache_dir = c->cache_dir,
                                             .progress = &progress,
                                             .positions = (int)c->sequence_length,
                                             .vocabulary = train_config_gives_sizes(c) ? c->vocabulary : 0,
                                             .classes = train_config_classes(c),
                                             .length_buckets = c->length_buckets,
                                             .step = c->global_batch};
    run->labelled = labelled_open(&options, err);
    if (!run->labelled)
        return -1;
    tokenizer_destroy(take_pointer(&tokenizer));
    (void)malloc_trim(0); /* its files were read through many small blocks */
    return write_info(run, err) < 0 ? -1 : run_count_steps(run, labelled_samples(run->labelled), err);
}

static double percent_above(int64_t a, int64_t b)
{
    return b ? 100 * ((double)a / (double)b - 1) : 0;
}

/* What is computed behind the ends of texts; not where all micro-batches have all positions, or nothing is
 * trained (preprocess). */
static void show_padding(const struct run *run)
{
    const struct train_config *c = &run->config;
    if (!run->trainer)
        return;
    const struct padding found = padding_count(run->labelled, c->global_batch, c->micro_batch);
    if (!muster_trainer_state_now(run->trainer).cuts_batches) {
        if (c->length_buckets)
            printf("data.length_buckets saves nothing here: all micro-batches have all positions, with "
                   "training.cuda_graphs, and where gradients of an embedding are rows "
                   "(training.embedding_gradient: dense)\n");
        return;
    }
    printf(
        "padding: %lld texts have %lld tokens, and their micro-batches compute %lld positions, %.0f%% more",
        (long long)found.samples, (long long)found.tokens, (long long)found.computed,
        percent_above(found.computed, found.tokens));
    if (c->length_buckets)
        printf("; without data.length_buckets %lld, %.0f%% more", (long long)found.drawn,
               percent_above(found.drawn, found.tokens));
    printf("\n");
}

void run_labelled_show(const struct run *run)
{
    const struct train_config *c = &run->config;
    const struct labelled *set = run->labelled, *held = labelled_validation(set);
    printf("data: %s, %lld files, %lld texts to train on, %lld held out, %d classes (", c->path,
           (long long)labelled_files(set), (long long)labelled_samples(set),
           held ? (long long)labelled_samples(held) : 0LL, labelled_labels(set));
    for (int i = 0; i < labelled_labels(set); i++)
        printf("%s%s", i ? ", " : "", labelled_label(set, i));
    printf(")%s\n", labelled_cached(set) ? ", tokens of the cache" : "");
    if (run->tokenizer.path)
        printf("tokenizer: %s, %s, %lld tokens\n", run->tokenizer.path, run->tokenizer.kind,
               (long long)run->tokenizer.vocabulary);
    if (labelled_cut(set))
        printf("%lld texts are longer than training.sequence_length %lld, and are cut\n",
               (long long)labelled_cut(set), (long long)c->sequence_length);
    show_padding(run);
    if (c->epochs > 0)
        printf("epochs: %g of %lld texts are %lld steps\n", c->epochs, (long long)labelled_samples(set),
               (long long)c->steps);
}
