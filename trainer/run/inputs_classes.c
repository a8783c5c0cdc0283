/* inputs_classes.c - samples with a class, pictures and labelled texts: the sets of the settings, the lines
 * about them, and their dataset_info files. See inputs.h. */
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "runtime/config/train_encoder.h"
#include "trainer/labelled/labelled.h"
#include "trainer/pictures/pictures.h"
#include "trainer/run/inputs_internal.h"
#include "trainer/run/run.h"

/* One file of data.info_dir. */
static int write_info(const char *folder, const char *name, const struct buffer *text,
                      struct muster_error *err)
{
    scope_free char *path = mem_printf("%s/%s", folder, name);
    if (!path)
        return error_set(err, MUSTER_E_NOMEM, "no memory for data.info_dir");
    if (io_make_directories(folder, 0777, err) < 0 ||
        io_write_file_atomic(path, text->data, text->length, 0666, err) < 0)
        return error_wrap(err, "data.info_dir");
    return 0;
}

static bool wants_info(const struct train_config *config, int rank)
{
    return rank == 0 && config->data_info && *config->data_info;
}

/* ---- pictures ---- */

/* "0.4914, 0.4822, 0.4465", or one number for all channels. */
static int read_numbers(const char *key, const char *text, bool above_zero, int channels, float *out,
                        struct muster_error *err)
{
    int count = 0;
    const char *at = text;
    while (count < channels) {
        char *end;
        const float value = strtof(at, &end);
        if (end == at || !isfinite(value) || (above_zero && !(value > 0)))
            return error_set(err, MUSTER_E_INVALID,
                             "%s is '%s', which is no list of numbers%s: 0.5, 0.5, 0.5", key, text,
                             above_zero ? " above 0" : "");
        out[count++] = value;
        at = end + strspn(end, " ");
        if (!*at)
            break;
        at += *at == ',';
    }
    if (*at || (count != 1 && count != channels))
        return error_set(err, MUSTER_E_INVALID,
                         "%s is '%s'; it must have one number, or one for each of "
                         "model.input_channels %d",
                         key, text, channels);
    for (int i = count; i < channels; i++)
        out[i] = out[0];
    return 0;
}

static int write_pictures_info(const struct pictures *pictures, const char *folder, struct muster_error *err)
{
    scope_buffer json = {0}, archive = {0};
    if (pictures_info_json(pictures, &json))
        return error_set(err, MUSTER_E_NOMEM, "no memory for data.info_dir");
    if (pictures_info_archive(pictures, &archive, err) < 0)
        return error_wrap(err, "data.info_dir");
    return write_info(folder, "dataset_info.json", &json, err) < 0
               ? -1
               : write_info(folder, "dataset_info.pt", &archive, err);
}

static int open_pictures(struct inputs *inputs, struct train_config *c, int rank, struct muster_error *err)
{
    struct pictures_options o = {
        .path = c->path,
        .validation_path = c->validation_path,
        .kind = (enum picture_kind)c->dataset,
        .validation_share = c->validation_share,
        .seed = (uint64_t)c->seed,
        .classes = train_config_classes(c),
        .resize = (int)c->resize,
        .crop_area = c->crop_area,
        .augment = {.shape = {(int)c->input_channels, (int)c->input_size, (int)c->input_size},
                    .padding = (int)c->crop_padding,
                    .flips = c->flip}};
    if (read_numbers("data.mean", c->mean, false, o.augment.shape.channels, o.augment.mean, err) < 0 ||
        read_numbers("data.std", c->deviation, true, o.augment.shape.channels, o.augment.deviation, err) < 0)
        return -1;
    struct pictures *pictures = inputs->set = pictures_open(&o, err);
    if (!pictures)
        return -1;
    const struct pictures *held = pictures_validation(pictures);
    inputs->source = batch_source_pictures(pictures);
    if (held)
        inputs->held = batch_source_pictures(held);
    inputs->identity = pictures_identity(pictures);
    return wants_info(c, rank) ? write_pictures_info(pictures, c->data_info, err) : 0;
}

static void show_pictures(const struct inputs *inputs, const struct train_config *c,
                          const struct muster_trainer *trainer)
{
    const struct pictures *pictures = inputs->set;
    (void)trainer;
    printf("data: %s, %lld files, %lld pictures to train on, %lld held out, %d classes\n", c->path,
           (long long)pictures_files(pictures), (long long)inputs->source.samples,
           (long long)inputs->held.samples, pictures_classes(pictures));
    inputs_show_epochs(inputs, c, "pictures");
}

static int pictures_info(const struct inputs *inputs, struct buffer *out)
{
    return pictures_info_json(inputs->set, out);
}

static void close_pictures(void *set)
{
    pictures_destroy(set);
}

const struct input_kind input_pictures = {.unit = "pictures",
                                          .classifies = true,
                                          .open = open_pictures,
                                          .show = show_pictures,
                                          .info = pictures_info,
                                          .close = close_pictures};

/* ---- labelled texts ---- */

/* Texts of an encoder have its length at most. */
static int limit_length(struct train_config *c, const struct train_encoder *e, struct muster_error *err)
{
    static const char key[] = "training.sequence_length";
    char most[16];
    if (c->sequence_length <= e->positions)
        return 0;
    if (train_config_source(c, key) != KNOB_FROM_DEFAULT)
        return error_set(
            err, MUSTER_E_INVALID,
            "%s is %lld, and the model in %s has %d positions: set it to %d or less, longer texts are cut",
            key, (long long)c->sequence_length, c->model_path, e->positions, e->positions);
    (void)snprintf(most, sizeof most, "%d", e->positions); /* fits */
    return run_set(c, key, most, err);
}

/* The tokens that an encoder's tokenizer puts around a text. */
static int find_frame(const struct tokenizer *tokenizer, struct labelled_options *o, struct muster_error *err)
{
    static const char *const pairs[][2] = {{"[CLS]", "[SEP]"}, {"<s>", "</s>"}};
    const struct tokenizer_special special = tokenizer_special(tokenizer);
    o->begin = special.cls;
    o->end = special.sep;
    for (int i = 0; i < 2 && (o->begin < 0 || o->end < 0); i++) {
        o->begin = tokenizer_find(tokenizer, pairs[i][0]);
        o->end = tokenizer_find(tokenizer, pairs[i][1]);
    }
    o->framed = o->begin >= 0 && o->end >= 0;
    return o->framed || !tokenizer_path(tokenizer)
               ? 0
               : error_set(
                     err, MUSTER_E_INVALID,
                     "%s names no tokens that begin and end a text: tokenizer_config.json next to it has "
                     "cls_token and sep_token",
                     tokenizer_path(tokenizer));
}

static int refuse_labels(const struct labelled *set, const struct train_config *c,
                         const struct train_encoder *e, struct muster_error *err)
{
    scope_buffer theirs = {0}, ours = {0};
    for (int i = 0; i < labelled_labels(set) && i < 8; i++)
        (void)buffer_printf(&theirs, "%s%.40s", i ? ", " : "", labelled_label(set, i));
    for (int i = 0; i < e->labels && i < 8; i++)
        (void)buffer_printf(&ours, "%s%.40s", i ? ", " : "", e->label[i]);
    return error_set(
        err, MUSTER_E_INVALID,
        "the texts have the labels %s, and %s has %s: name the texts' labels in the order of the "
        "model's classes (model.labels), or change the texts",
        theirs.data ? theirs.data : "", c->labels ? "model.labels" : c->model_path,
        ours.data ? ours.data : "");
}

/* Labels that the model does not have become its labels, where it has none of its own. */
static int settle_labels(const struct labelled *set, struct train_config *c, const struct train_encoder *e,
                         struct muster_error *err)
{
    char count[16];
    const bool follows = labelled_follows(set), own = e->label[0] && (c->labels || !c->num_classes);
    if (!follows && own)
        return refuse_labels(set, c, e, err);
    const int labels = labelled_labels(set);
    (void)snprintf(count, sizeof count, "%d", follows && !c->num_classes ? e->labels : labels); /* fits */
    for (int i = 0; !follows && i < labels; i++)
        if (run_set(c, "model.labels", labelled_label(set, i), err) < 0)
            return -1;
    return run_set(c, "model.num_classes", count, err);
}

/* What the model in a folder has to say about its texts. labels: of train_encoder_read, for the options. */
static int ask_encoder(struct train_config *c, const struct tokenizer *tokenizer, struct train_encoder *e,
                       struct labelled_options *o, struct muster_error *err)
{
    if (train_encoder_read(c, e, err) < 0 || limit_length(c, e, err) < 0 || find_frame(tokenizer, o, err) < 0)
        return -1;
    const bool other = c->num_classes && !c->labels && c->num_classes != e->labels;
    o->classes = c->num_classes ? (int)c->num_classes : TRAIN_LABELS;
    o->label_count = other ? 0 : e->labels;
    o->labels = e->label[0] && !other ? (const char *const *)e->label : NULL;
    o->positions = (int)c->sequence_length;
    return 0;
}

static int open_labelled(struct inputs *inputs, struct train_config *c, int rank, struct muster_error *err)
{
    const bool encodes = c->architecture == TRAIN_ARCHITECTURE_ENCODER;
    struct train_encoder encoder __attribute__((cleanup(train_encoder_free))) = {0};
    struct inputs_tokenizing tokenizing = {.begun = clock_now(NULL)};
    const struct data_progress progress = {inputs_print_tokenized, &tokenizing};
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = inputs_find_tokenizer(inputs, c, err);
    if (!tokenizer)
        return -1;
    struct labelled_options options = {.path = c->path,
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
    if (encodes && ask_encoder(c, tokenizer, &encoder, &options, err) < 0)
        return -1;
    struct labelled *set = inputs->set = labelled_open(&options, err);
    if (!set || (encodes && settle_labels(set, c, &encoder, err) < 0))
        return -1;
    tokenizer_destroy(take_pointer(&tokenizer));
    (void)malloc_trim(0); /* its files were read through many small blocks */
    const struct labelled *held = labelled_validation(set);
    inputs->source = batch_source_labelled(set, (int)c->sequence_length, encoder.types);
    if (held)
        inputs->held = batch_source_labelled(held, (int)c->sequence_length, encoder.types);
    inputs->identity = labelled_identity(set);
    scope_buffer json = {0};
    if (!wants_info(c, rank))
        return 0;
    return labelled_info(set, &json) < 0 ? error_set(err, MUSTER_E_NOMEM, "no memory for data.info_dir")
                                         : write_info(c->data_info, "dataset_info.json", &json, err);
}

static double percent_above(int64_t a, int64_t b)
{
    return b ? 100 * ((double)a / (double)b - 1) : 0;
}

/* Positions that are computed after the ends of texts. */
static void show_padding(const struct labelled *set, const struct train_config *c,
                         const struct muster_trainer *trainer)
{
    const struct padding found = padding_count(set, c->global_batch, c->micro_batch);
    if (!muster_trainer_state_now(trainer).cuts_batches) {
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

static void show_labelled(const struct inputs *inputs, const struct train_config *c,
                          const struct muster_trainer *trainer)
{
    const struct labelled *set = inputs->set;
    printf("data: %s, %lld files, %lld texts to train on, %lld held out, %d classes (", c->path,
           (long long)labelled_files(set), (long long)labelled_samples(set), (long long)inputs->held.samples,
           labelled_labels(set));
    for (int i = 0; i < labelled_labels(set); i++) {
        scope_buffer label = {0}, shown = {0}; /* a label is the text of a file */
        (void)buffer_text(&label, labelled_label(set, i));
        (void)console_text(stdout, &label, &shown);
        printf("%s%s", i ? ", " : "", shown.data ? shown.data : "");
    }
    printf(")%s\n", labelled_cached(set) ? ", tokens of the cache" : "");
    inputs_show_tokenizer(inputs);
    if (labelled_cut(set))
        printf("%lld texts are longer than training.sequence_length %lld, and are cut\n",
               (long long)labelled_cut(set), (long long)c->sequence_length);
    if (trainer)
        show_padding(set, c, trainer);
    inputs_show_epochs(inputs, c, "texts");
}

static int texts_info(const struct inputs *inputs, struct buffer *out)
{
    return labelled_info(inputs->set, out);
}

static void close_labelled(void *set)
{
    labelled_destroy(set);
}

const struct input_kind input_labelled = {.unit = "texts",
                                          .classifies = true,
                                          .varies = true,
                                          .open = open_labelled,
                                          .show = show_labelled,
                                          .info = texts_info,
                                          .close = close_labelled};
