/* train_config.h - the settings of a training run: sections training and model, which the public API takes as
 * texts, and data and logging, which only the program muster-train has.
 *
 * Every key is a row of one knob table ("training.steps"): --help, the reader of YAML files and the public
 * API are functions of it. */
#ifndef MUSTER_RUNTIME_CONFIG_TRAIN_CONFIG_H
#define MUSTER_RUNTIME_CONFIG_TRAIN_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/knob.h"
#include "proto/include/muster_error.h"
#include "runtime/config/tracking_choice.h"
#include "runtime/config/train_batch.h"
#include "runtime/model/param_patterns.h"
#include "runtime/plan/plan.h"
#include "runtime/train/evaluation.h"
#include "runtime/train/loss_scale.h"
#include "runtime/train/lr.h"
#include "runtime/train/plateau.h"

enum {
    TRAIN_ARCHITECTURE_GPT2,
    TRAIN_ARCHITECTURE_LLAMA,
    TRAIN_ARCHITECTURE_SIMPLE_CNN,
    TRAIN_ARCHITECTURE_RESNET,
    TRAIN_ARCHITECTURE_TEXT_CLASSIFIER,
    TRAIN_ARCHITECTURE_TEXT_ENCODER,
    TRAIN_ARCHITECTURE_ENCODER, /* of model.path */
    TRAIN_ARCHITECTURE_AUTO
};
enum { TRAIN_OUTPUT_AUTO, TRAIN_OUTPUT_FP32, TRAIN_OUTPUT_BF16 };
enum { TRAIN_CONFIG_KEYS = 256 }; /* rows of the table at most */
enum { TRAIN_REPLICAS_STOP, TRAIN_REPLICAS_WARN };
enum { TRAIN_COMM_AUTO, TRAIN_COMM_HOST, TRAIN_COMM_NCCL };
enum { TRAIN_MATMUL_AUTO, TRAIN_MATMUL_FP32, TRAIN_MATMUL_TF32, TRAIN_MATMUL_BF16 };
enum { TRAIN_VALUES_AUTO, TRAIN_VALUES_FP32, TRAIN_VALUES_DTYPE };
enum { TRAIN_ATTENTION_AUTO, TRAIN_ATTENTION_OWN, TRAIN_ATTENTION_CUDNN };
enum { TRAIN_PRODUCTS_AUTO, TRAIN_PRODUCTS_OPENBLAS, TRAIN_PRODUCTS_ONEDNN };
enum { TRAIN_NUMERICS_WARN, TRAIN_NUMERICS_REFUSE };
enum { TRAIN_DATA_REFUSE, TRAIN_DATA_WARN };
enum { TRAIN_DAMAGED_REFUSE, TRAIN_DAMAGED_ANEW };
enum { TRAIN_MOMENTS_RESET, TRAIN_MOMENTS_KEEP };
enum train_spare { TRAIN_SPARE_AUTO, TRAIN_SPARE_TRUE, TRAIN_SPARE_FALSE };
enum { TRAIN_NONFINITE_SKIP, TRAIN_NONFINITE_STOP, TRAIN_NONFINITE_ROLL_BACK };

struct train_config {
    uint8_t sources[TRAIN_CONFIG_KEYS]; /* enum knob_source of each row of the table */
    /* training */
    int64_t steps;
    double epochs;        /* 0: steps */
    int64_t tokens;       /* 0: steps */
    char **stages;        /* a mapping as text each, see formats/stages.h; NULL: the training has none */
    int stage_moments;    /* TRAIN_MOMENTS_... */
    int64_t micro_batch;  /* sequences of one forward on one rank */
    int64_t global_batch; /* sequences of one optimizer step over all ranks; accumulation follows from it */
    bool strict_batch;    /* set for files of other programs; see trainer/formats */
    int64_t sequence_length;
    int strategy;             /* enum strategy */
    int64_t replicas;         /* replicas of HYBRID_SHARD; 0: one a node */
    int64_t prefetch;         /* gathers in flight ahead of compute */
    int64_t group_bytes;      /* 0: clamp(total/8, 64 KB, 48 MB) */
    int64_t keep_whole_below; /* bytes of a parameter */
    int embedding_gradient;   /* enum embedding_gradient */
    int compression;          /* enum compression */
    double compression_ratio;
    int64_t compression_rank, compression_least, compression_start; /* columns, elements, steps */
    bool compression_feedback;
    int recompute; /* enum recompute */
    int64_t recompute_every;
    int optimizer_memory; /* enum memory_class of the choices device, host */
    int64_t head_chunk;   /* bytes of logits at a time; 0: 64 MB */
    double learning_rate, min_learning_rate;
    int schedule; /* enum lr_kind */
    int64_t warmup_steps;
    int warmup; /* enum lr_warmup */
    double warmup_min_learning_rate;
    int64_t decay_steps;                      /* 0: to the end */
    int plateau_mode, plateau_threshold_mode; /* enum plateau_mode, plateau_threshold */
    double plateau_factor, plateau_threshold, plateau_eps;
    int64_t plateau_patience, plateau_cooldown;
    double cycle_min_momentum, cycle_max_momentum, cycle_decay_rate, cycle_momentum_rate; /* OneCycle */
    int64_t cycle_decay_interval;
    double schedule_cycles, schedule_power; /* for the Trainer's schedules; 0: its own defaults */
    int64_t schedule_timescale, stable_steps;
    int warmup_shape, decay_shape;                            /* enum lr_shape */
    double warmup_share;                                      /* share of all steps; 0: warmup_steps */
    bool evaluate_epochs, checkpoint_epochs, interval_epochs; /* in place of evaluate_every and so on */
    double evaluate_share, checkpoint_share, interval_share;  /* shares of all steps */
    int optimizer;                                            /* enum optimizer */
    double momentum, dampening;                               /* for SGD */
    bool nesterov;
    int decay;                 /* enum param_decay */
    char **no_decay, **frozen; /* patterns of parameters' names */
    double weight_decay, beta1, beta2, epsilon, clip_norm;
    double ema_decay;                         /* decay of the parameters' moving average; 0: none is kept */
    bool ema_evaluate, ema_export;            /* the average takes the parameters' place */
    int64_t evaluate_every, evaluate_samples; /* steps, samples; 0: none, all */
    bool evaluate_at_start, evaluate_at_end;
    bool keep_best, export_best;
    int64_t early_stop_patience; /* evaluations; 0: never */
    double early_stop_min_gain;
    int early_stop_metric;   /* enum evaluation_metric */
    int dtype, reduce_dtype; /* see train_config_dtype */
    int values;              /* TRAIN_VALUES_...; see train_config_values */
    int matmul_precision;    /* TRAIN_MATMUL_... */
    int products;            /* TRAIN_PRODUCTS_... */
    int attention;           /* TRAIN_ATTENTION_... */
    double loss_scale;       /* fp16 only; 0: dynamic */
    int64_t initial_scale_power, loss_scale_window, hysteresis;
    bool consecutive_hysteresis;
    double min_loss_scale;
    int on_nonfinite; /* TRAIN_NONFINITE_... */
    int64_t seed;
    int64_t threads;      /* threads of the compute stream; 0: cores / local world size */
    int64_t memory_limit; /* bytes a rank may plan, on a GPU of its memory; 0: all free memory */
    int device;           /* enum device_choice; after those, enum cuda_device: a plan for it alone */
    int comm;             /* TRAIN_COMM_... */
    bool sync_errors;     /* a GPU's errors name the exact operation */
    bool cuda_graphs;     /* a layer is launched as one */
    double timeout_s;     /* time-out of a collective */
    char *output;         /* written at the end; "" for none */
    int output_format;    /* enum files_format */
    int output_dtype;     /* TRAIN_OUTPUT_... */
    int64_t output_shard_size;
    char *checkpoint_dir;          /* "": no checkpoints */
    char *checkpoint_local_dir;    /* "": no copies on the node */
    int64_t memory_copies;         /* steps between copies in memory; 0: none */
    int64_t checkpoint_local_keep; /* copies */
    int64_t checkpoint_every, checkpoint_keep, checkpoint_keep_every; /* steps, checkpoints, steps; 0: none */
    char *checkpoint_command;            /* for /bin/sh after each commit; "": none */
    double checkpoint_command_timeout_s; /* time-out of one run of it */
    char *resume;                        /* "auto", "none" or a path */
    int resume_numerics;                 /* TRAIN_NUMERICS_... */
    int resume_data;                     /* TRAIN_DATA_... */
    int resume_damaged;                  /* TRAIN_DAMAGED_... */
    /* mesh */
    int64_t mesh_pipeline; /* stages */
    char *mesh_schedule;   /* name of a pipe_schedule, or a file of calls */
    int64_t mesh_chunks;   /* parts a stage; 0: as the schedule has */
    int mesh_spare;        /* ranks that are left wait: enum train_spare */
    char **mesh_cut;       /* layers that begin stages, or "auto" or "even" alone; NULL: auto */
    /* model */
    char *model_path; /* files of parameters; "": values are drawn */
    char *model_page; /* a page that reads their config.json; "": of those that libmuster brings */
    int architecture;
    int64_t layers, channels, heads, vocabulary;
    int64_t positions; /* longest sequence; 0: sequence_length */
    /* llama only; see llama.h */
    int64_t kv_heads, head_size, hidden;
    bool tied, attention_bias;
    double norm_epsilon, rope_theta;
    int rope_scaling; /* enum rotary_kind */
    double rope_factor, rope_low_frequency, rope_high_frequency;
    int64_t rope_original_positions;
    int64_t input_channels, input_size;     /* models of pictures only */
    int64_t num_classes;                    /* see train_config_classes */
    char **labels;                          /* NULL: none */
    double dropout;                         /* models of labelled texts only */
    int64_t resnet_stages, blocks, filters; /* resnet only */
    /* lora; see lora.h */
    int64_t lora_rank; /* 0: no adapters, or the rank of lora_path's adapters */
    double lora_alpha, lora_dropout;
    char **lora_target; /* names; NULL: PEFT's choice */
    char *lora_path;    /* "": they are drawn */
    bool lora_merge, lora_base_tables;
    int lora_base; /* enum stored */
    /* data */
    char *path;
    char **data_sources;    /* "0.7 PATH" or "PATH"; NULL: path */
    char *tokenizer;        /* "auto", "bytes", or a path */
    char *document_end;     /* "auto", "none", or a token's text */
    char *text_key;         /* key of the text in JSON lines */
    char *label_key;        /* key of the label in labelled texts */
    char *chat_template;    /* auto, chatml, or a file */
    int chat_targets;       /* 0: of the assistant's turns; 1: all tokens */
    char *chat_variables;   /* a JSON object; "": none */
    char *chat_date;        /* of strftime_now: YYYY-MM-DD */
    int64_t length_buckets; /* steps whose texts are sorted by length; 0: none */
    int packing;            /* enum data_packing of the choices auto, stream, documents, packed */
    char *cache_dir;        /* folder of tokenized texts; "": the user's cache */
    char *validation_path;
    double validation_share; /* share of the samples, from the end of the corpus; 0: none */
    int validation_split;    /* DATA_SPLIT_... of data.h */
    int dataset;             /* enum picture_kind of pictures.h; with the next ones, of pictures alone */
    int64_t resize;          /* pixels of the shorter side; 0: as it is */
    double crop_area;        /* smallest share of a random box; 0: none */
    int64_t crop_padding;
    bool flip;
    char *mean, *deviation; /* "0.5, 0.5, 0.5" */
    char *data_info;        /* folder of dataset_info; "": none */
    /* logging */
    int64_t interval;
    char *log_folder, *log_json; /* "": none; "": log.jsonl in log_folder */
    bool log_tensorboard;
    char *wandb, *wandb_project, *wandb_entity, *wandb_group, *run_name; /* tracking_choice.h */
    char *mlflow, *mlflow_experiment;
    int64_t check_replicas_every; /* steps; 0: never */
    int on_replica_difference;    /* TRAIN_REPLICAS_... */
    double z_limit;               /* standard deviations; 0: none */
    int64_t straggler_steps;      /* 0: none */
    char *trace;                  /* "10" or "10-12": steps, from 1; "": none */
    int64_t sample_length;
    double sample_temperature;
    char *sample_prompt;
    char *samples; /* folder of sample_log.h; "": none */
};

const struct knob_table *train_config_table(void);
/* The source of the value of a key, which is in the table. */
enum knob_source train_config_source(const struct train_config *config, const char *key);
const char *train_config_architecture(
    const struct train_config *config); /* "llama"; "gpt2" where it is left open */
const char *train_config_output_format(const struct train_config *config); /* "hf" */
const char *train_config_strategy(const struct train_config *config);      /* "FULL_SHARD" */

/* Sets evaluations, checkpoints and log lines to once in each epoch. samples: size of the data. */
void train_config_set_epoch(struct train_config *config, int64_t samples);
/* Sets training.steps, by a rule, and the settings that are given as a share of the steps. */
void train_config_set_steps(struct train_config *config, int64_t steps);
/* The steps that training.tokens are. Pure. */
int64_t train_config_token_steps(const struct train_config *config);

/* A copy with texts of its own; on failure it holds nothing. */
int train_config_copy(const struct train_config *config, struct train_config *copy, struct muster_error *err);
/* A value of the table: back to its default. */
int train_config_reset(struct train_config *config, const struct knob *knob, struct muster_error *err);

/* Whether the model takes pictures. */
bool train_config_reads_pictures(const struct train_config *config);
/* Whether the model takes texts and their labels. */
bool train_config_reads_labels(const struct train_config *config);
/* Classes of a model of pictures or labels: 10 or 2 where they are not given. */
int train_config_classes(const struct train_config *config);
/* Whether there are adapters. */
bool train_config_adapts(const struct train_config *config);

/* Whether the keys of section model are the sizes; otherwise model.path has them. */
bool train_config_gives_sizes(const struct train_config *config);

void train_config_free(struct train_config *config);

/* The learning rate's schedule. Pure. */
struct lr_schedule train_config_schedule(const struct train_config *config);

/* Type of parameters in gathers and of gradients in reductions: DTYPE_F32, DTYPE_BF16 or DTYPE_F16. */
enum dtype train_config_dtype(const struct train_config *config);
enum dtype train_config_reduce_dtype(const struct train_config *config);
enum dtype train_config_values(const struct train_config *config); /* type of activations */
/* What ends the training early. */
struct evaluation_rule train_config_evaluation(const struct train_config *config);
/* What lowers the learning rate of schedule ReduceLROnPlateau. */
struct plateau_rule train_config_plateau(const struct train_config *config);
struct loss_scale_options train_config_loss_scale(const struct train_config *config);
/* Whether a gradient that is not finite has to be found before the optimizer steps; a run that stops anyway
 * may find it after. */
bool train_config_checks(const struct train_config *config);

/* A rank's part of a step: the stages of a pipeline have the same one. Pure. */
struct train_batch train_config_batch(const struct train_config *config, int rank, int ranks);

/* The settings of W&B and MLflow. */
struct tracking_wishes train_config_tracking(const struct train_config *config);
/* The steps of logging.trace, from 1: the first and how many; 0: none. */
int train_config_trace(const struct train_config *config, int64_t *first, int64_t *count,
                       struct muster_error *err);

#endif
