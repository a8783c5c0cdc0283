/* train_config_check.c - see train_config_check.h; rules about several keys at once. */
#include "runtime/config/train_config_check.h"

#include <string.h>

#include "proto/base/error.h"
#include "runtime/config/train_effects.h"
#include "runtime/files/files.h"

static const char *text_of(const char *text)
{
    return text ? text : "";
}

/* A file of parameters has no state of the optimizer. */
static int check_resume(const char *name, const struct train_config *c, struct muster_error *err)
{
    if (!train_config_is_parameters(c->resume))
        return 0;
    return error_set(
        err, MUSTER_E_INVALID,
        "%straining.resume %s has parameters alone, and no step or optimizer to go on from: set "
        "model.path to it, which begins with them, or training.resume to a folder of checkpoints",
        name, c->resume);
}

/* The length is given once. */
static int check_length(const char *name, const struct train_config *c, struct muster_error *err)
{
    const enum knob_source steps = train_config_source(c, "training.steps");
    const bool given = steps != KNOB_FROM_DEFAULT && steps != KNOB_FROM_RULE;
    if (c->epochs > 0 && given)
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.epochs %g and training.steps %lld are both set; name one", name,
                         c->epochs, (long long)c->steps);
    if (c->epochs > 0 && c->tokens > 0)
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.epochs %g and training.tokens %lld are both set; name one", name,
                         c->epochs, (long long)c->tokens);
    if (c->tokens > 0 && train_config_token_steps(c) > 1000000000)
        return error_set(err, MUSTER_E_LIMIT, "%straining.tokens %lld are %lld steps; at most 1e9", name,
                         (long long)c->tokens, (long long)train_config_token_steps(c));
    if (c->tokens > 0 && given && c->steps != train_config_token_steps(c))
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.tokens %lld are %lld steps, and training.steps is %lld; name one", name,
                         (long long)c->tokens, (long long)train_config_token_steps(c), (long long)c->steps);
    return 0;
}

static int check_training(const char *name, const struct train_config *c, struct muster_error *err)
{
    static const char minimum[] = "training.min_learning_rate";
    const struct lr_schedule schedule = train_config_schedule(c);
    if (schedule.minimum > c->learning_rate && c->schedule != LR_PLATEAU &&
        train_config_has_effect(c, knob_find(train_config_table(), minimum, sizeof minimum - 1, false, NULL)))
        return error_set(err, MUSTER_E_INVALID, "%s%s %g is above training.learning_rate %g", name, minimum,
                         c->min_learning_rate, c->learning_rate);
    if (check_length(name, c, err) < 0 || check_resume(name, c, err) < 0)
        return -1;
    if (c->sync_errors && c->cuda_graphs)
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.sync_errors names one operation, and training.cuda_graphs launches a "
                         "layer's as one: set either of them",
                         name);
    const bool counted = !(c->epochs > 0) || train_config_source(c, "training.steps") != KNOB_FROM_DEFAULT;
    if (counted && lr_check(&schedule, err) < 0) /* epochs become steps when the data are open */
        return error_wrap(err, "%straining.schedule", name);
    if (c->micro_batch > c->global_batch)
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.micro_batch %lld is above training.global_batch %lld: %lld of its rows "
                         "would always be empty",
                         name, (long long)c->micro_batch, (long long)c->global_batch,
                         (long long)(c->micro_batch - c->global_batch));
    return 0;
}

bool train_config_adapts(const struct train_config *config)
{
    return config->lora_rank > 0 || (*text_of(config->lora_path) != 0);
}

static int check_lora(const char *name, const struct train_config *c, struct muster_error *err)
{
    const bool dropped = train_config_source(c, "lora.dropout") != KNOB_FROM_DEFAULT;
    if (c->lora_rank && (*text_of(c->lora_path) != 0))
        return error_set(err, MUSTER_E_INVALID,
                         "%slora.rank %lld and lora.path %s are both set; the adapters there have their rank",
                         name, (long long)c->lora_rank, c->lora_path);
    const char *idle = c->lora_merge  ? "lora.merge"
                       : c->lora_base ? "lora.base"
                       : dropped      ? "lora.dropout"
                                      : NULL;
    if (!train_config_adapts(c) && idle)
        return error_set(err, MUSTER_E_INVALID,
                         "%s%s has no effect without adapters: set lora.rank or lora.path", name, idle);
    return 0;
}

/* The program's export: adapters alone, or the model with them, always by an explicit choice. */
static int check_adapted_output(const char *name, const struct train_config *c, struct muster_error *err)
{
    const bool writes = (*text_of(c->output) != 0), peft = c->output_format == FILES_PEFT;
    if (!writes && !peft)
        return 0;
    if (!train_config_adapts(c) && peft)
        return error_set(
            err, MUSTER_E_INVALID,
            "%straining.output_format is peft, which is of adapters, and there are none: set lora.rank",
            name);
    if (train_config_adapts(c) && peft == c->lora_merge)
        return error_set(
            err, MUSTER_E_INVALID,
            "%straining.output_format %s and lora.merge %s: peft writes the adapters alone, and every "
            "other format the model with them, which lora.merge: true asks for",
            name, train_config_output_format(c), c->lora_merge ? "true" : "false");
    return 0;
}

static int check_encoder(const char *name, const struct train_config *c, struct muster_error *err)
{
    int64_t labels = 0;
    while (c->labels && c->labels[labels])
        labels++;
    if (c->architecture == TRAIN_ARCHITECTURE_ENCODER &&
        (!(*text_of(c->model_path) != 0) || train_config_gives_sizes(c)))
        return error_set(err, MUSTER_E_INVALID,
                         "%smodel.architecture is encoder: name its folder with config.json as model.path",
                         name);
    if (labels == 1 || (labels && c->num_classes && labels != c->num_classes))
        return error_set(err, MUSTER_E_INVALID, "%smodel.labels has %lld names, and %s%lld", name,
                         (long long)labels, labels == 1 ? "there are at least " : "model.num_classes is ",
                         labels == 1 ? 2LL : (long long)c->num_classes);
    return 0;
}

static int check_model(const char *name, const struct train_config *c, struct muster_error *err)
{
    if (check_encoder(name, c, err) < 0)
        return -1;
    if (c->channels % c->heads && !c->head_size && c->architecture != TRAIN_ARCHITECTURE_TEXT_CLASSIFIER)
        return error_set(err, MUSTER_E_INVALID, "%smodel.channels %lld is not a multiple of model.heads %lld",
                         name, (long long)c->channels, (long long)c->heads);
    return 0;
}

/* Text becomes bytes, as far as is known without looking into model.path. */
static bool reads_bytes(const struct train_config *c)
{
    const char *tokenizer = text_of(c->tokenizer);
    return !strcmp(tokenizer, "bytes") || (!strcmp(tokenizer, "auto") && !*text_of(c->model_path));
}

static int check_held_out(const char *name, const struct train_config *c, struct muster_error *err)
{
    if (c->validation_share > 0 && *text_of(c->validation_path))
        return error_set(err, MUSTER_E_INVALID,
                         "%sdata.validation_share %g and data.validation_path %s are both set; name one",
                         name, c->validation_share, c->validation_path);
    return 0;
}

/* Checks for pictures, or labelled texts. */
static int check_classifier(const char *name, const struct train_config *c, struct muster_error *err)
{
    const bool pictures = train_config_reads_pictures(c);
    if (!*text_of(c->path))
        return error_set(err, MUSTER_E_INVALID, "%sdata.path is missing: name %s", name,
                         pictures ? "a folder with CIFAR-10's batches, IDX files or folders of PNG by class"
                                  : "a file of labelled texts (.csv, .tsv, .jsonl), or a folder of them by "
                                    "label");
    if (pictures && c->sequence_length != 1)
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.sequence_length is %lld, and a picture is one position: leave it out",
                         name, (long long)c->sequence_length);
    if (c->num_classes == 1)
        return error_set(err, MUSTER_E_INVALID, "%smodel.num_classes is %lld; there are 2 at least", name,
                         (long long)c->num_classes);
    if (c->output_format == FILES_HF && *text_of(c->output) && c->architecture != TRAIN_ARCHITECTURE_ENCODER)
        return error_set(
            err, MUSTER_E_INVALID,
            "%straining.output_format hf is of language models and encoders; safetensors and pth are "
            "of other classifiers too",
            name);
    return check_held_out(name, c, err);
}

static int check_data(const char *name, const struct train_config *c, struct muster_error *err)
{
    /* The config.json of a folder has the number of its labels. */
    if (c->architecture == TRAIN_ARCHITECTURE_AUTO && c->num_classes && train_config_gives_sizes(c))
        return error_set(err, MUSTER_E_INVALID,
                         "%smodel.num_classes has no effect with model.architecture: auto; remove it or set "
                         "model.architecture to a classifier",
                         name);
    if (train_effects_check(name, c, true, err) < 0 || check_adapted_output(name, c, err) < 0)
        return -1;
    if (c->schedule == LR_PLATEAU && !c->evaluate_every && !train_config_evaluates_in_parts(c))
        return error_set(err, MUSTER_E_INVALID,
                         "%straining.schedule ReduceLROnPlateau follows evaluations, and there are none: set "
                         "training.evaluate_every",
                         name);
    if (train_config_reads_pictures(c))
        return check_classifier(name, c, err);
    const bool sources = c->data_sources && c->data_sources[0], path = *text_of(c->path);
    if (reads_bytes(c) && c->vocabulary < 256)
        return error_set(err, MUSTER_E_INVALID,
                         "%smodel.vocabulary %lld is below 256, and data.tokenizer is bytes", name,
                         (long long)c->vocabulary);
    if (train_config_reads_labels(c))
        return check_classifier(name, c, err);
    if (!path && !sources)
        return error_set(err, MUSTER_E_INVALID, "%sdata.path is missing: name a text file or a folder", name);
    if (path && sources)
        return error_set(err, MUSTER_E_INVALID, "%sdata.path %s and data.sources are both set; name one",
                         name, c->path);
    return check_held_out(name, c, err);
}

int train_config_check(const char *name, const struct train_config *config, unsigned sections,
                       struct muster_error *err)
{
    if (train_effects_check(name, config, false, err) < 0)
        return -1;
    if ((sections & TRAIN_MODEL &&
         (check_model(name, config, err) < 0 || check_lora(name, config, err) < 0)) ||
        (sections & TRAIN_TRAINING &&
         (train_precision_check(name, config, err) < 0 || check_training(name, config, err) < 0)))
        return -1;
    const struct tracking_wishes tracking = train_config_tracking(config);
    if (sections & TRAIN_DATA && tracking_check(&tracking, err) < 0)
        return *name ? error_wrap(err, "%.*s", (int)strlen(name) - 2, name) : -1;
    int64_t first, count;
    if (sections & TRAIN_DATA && train_config_trace(config, &first, &count, err) < 0)
        return *name ? error_wrap(err, "%.*s", (int)strlen(name) - 2, name) : -1;
    /* A stage counts its own steps. */
    if (sections & TRAIN_DATA && !config->stages && config->steps > 0 && first > config->steps)
        return error_set(err, MUSTER_E_INVALID,
                         "%slogging.trace %s begins after the last step, training.steps %lld", name,
                         config->trace, (long long)config->steps);
    return sections & TRAIN_DATA ? check_data(name, config, err) : 0;
}

struct train_batch train_config_batch(const struct train_config *config, int rank, int ranks)
{
    /* Stages are the outermost side, see mesh.h. Too few ranks for them are refused by mesh_choose. */
    const int64_t stages = config->mesh_pipeline > 0 && config->mesh_pipeline < ranks ? config->mesh_pipeline
                           : config->mesh_pipeline > 0                                ? ranks
                                                                                      : 1;
    const int of_stage = ranks / (int)stages;
    return (struct train_batch){config->global_batch, config->micro_batch, rank % of_stage, of_stage};
}
