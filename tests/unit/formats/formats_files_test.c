/* formats_files_test.c - users' configurations: the settings that they become, the notes about them, and
 * their errors, line by line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/io.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "tests/support/folder.h"
#include "trainer/formats/formats.h"

#define CONFIGS "tests/data/configs/"
enum { SETS = 12 };

static int parse(const char *text, char *const *sets, int ranks, struct formats_settings *settings,
                 struct muster_error *err)
{
    int count = 0;
    while (sets && sets[count])
        count++;
    return formats_parse("t.json", text, strlen(text), sets, count, ranks, settings, err);
}

static char *const with_data[] = {"data.path=x", NULL};

static void must_parse(const char *text, int ranks, struct formats_settings *settings)
{
    struct muster_error err = {0};
    if (parse(text, with_data, ranks, settings, &err) < 0)
        fail_msg("%s: %s", text, err.text);
}

/* "learning_rate: 0.001" of the printed YAML: a line with this beginning, live or as a remark. */
static void must_print(const struct formats_settings *settings, const char *line)
{
    scope_buffer out = {0};
    assert_int_equal(formats_print(settings, false, &out), 0);
    char wanted[160];
    (void)snprintf(wanted, sizeof wanted, "\n  %s ", line);
    if (!strstr(out.data, wanted))
        fail_msg("'%s' is not in:\n%s", line, out.data);
}

/* ---- DeepSpeed ---- */

static const char deepspeed_text[] =
    "{\n \"train_batch_size\": 1024, \"train_micro_batch_size_per_gpu\": 16,\n";

static const struct {
    const char *rest, *line; /* after a batch that fits; NULL: the error */
    const char *error;
} deepspeed[] = {
    {"\"zero_optimization\": {\"stage\": 0}}", "strategy: NO_SHARD", NULL},
    {"\"zero_optimization\": {\"stage\": 1}}", "strategy: SHARD_OPTIM", NULL},
    {"\"zero_optimization\": {\"stage\": 2}}", "strategy: SHARD_GRAD_OP", NULL},
    {"\"zero_optimization\": {\"stage\": 3}}", "strategy: FULL_SHARD", NULL},
    {"\"zero_optimization\": true}", "strategy: SHARD_OPTIM", NULL},
    {"\"zero_optimization\": {\"stage\": 4}}", NULL,
     "t.json:3:32: zero_optimization.stage: '4' is not supported; supported: 0, 1, 2, 3"},
    {"\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 16}}", "replicas: 4", NULL},
    {"\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 48}}", NULL, "48 is no divisor of 64 ranks"},
    {"\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 1e5}}",
     "keep_whole_below: 400001", NULL},
    {"\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 3, \"param_persistence_threshold\": "
     "100}}",
     "keep_whole_below: 201", NULL},
    {"\"zero_optimization\": {\"stage\": 2, \"stage3_param_persistence_threshold\": 1e5}}",
     "# keep_whole_below: 0", NULL},
    {"\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": \"auto\"}}",
     "keep_whole_below: 5121", NULL},
    {"\"zero_optimization\": {\"stage\": 3, \"overlap_comm\": false}}", "prefetch: 0", NULL},
    {"\"zero_optimization\": {\"stage\": 3, \"stage3_prefetch_bucket_size\": 0}}", "prefetch: 0", NULL},
    {"\"zero_optimization\": {\"stage\": 3, \"stage3_prefetch_bucket_size\": 5e7}}", "# prefetch: 2", NULL},
    {"\"zero_optimization\": {\"stage\": 1, \"offload_optimizer\": {\"device\": \"cpu\"}}}",
     "optimizer_memory: host", NULL},
    {"\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"nvme\"}}}", NULL,
     "zero_optimization.offload_optimizer.device: 'nvme' is not supported; supported: none, cpu"},
    {"\"gradient_clipping\": 0.5}", "clip_norm: 0.5", NULL},
    {"\"steps_per_print\": 2000}", "interval: 2000", NULL},
    {"\"fp16\": {\"enabled\": true, \"loss_scale\": 0, \"initial_scale_power\": 12, \"hysteresis\": 3}}",
     "initial_scale_power: 12", NULL},
    {"\"fp16\": {\"enabled\": true, \"loss_scale\": 128, \"initial_scale_power\": 12}}",
     "# initial_scale_power: 16", NULL},
    {"\"fp16\": {\"enabled\": false, \"loss_scale\": 128}}", "# dtype: fp32", NULL},
    {"\"bf16\": {\"enabled\": true}, \"communication_data_type\": \"fp32\"}", "reduce_dtype: fp32", NULL},
    {"\"bfloat16\": {\"enabled\": true}}", "dtype: bf16", NULL},
    {"\"optimizer\": {\"type\": \"Adam\"}}", "optimizer: AdamW", NULL},
    {"\"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false}}}", "optimizer: Adam", NULL},
    {"\"optimizer\": {\"type\": \"adamw\"}}", "beta2: 0.999", NULL},
    {"\"optimizer\": {\"type\": \"AdamW\"}}", "decay: all", NULL},
    {"\"optimizer\": {\"type\": \"AdamW\"}}", "schedule: constant", NULL},
    {"\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.1, \"momentum\": 0.9}}}", "momentum: 0.9",
     NULL},
    {"\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"betas\": [0.8]}}}", NULL,
     "t.json:3:52: optimizer.params.betas: a list found where two numbers are expected"},
    {"\"optimizer\": {\"type\": \"Lamb\"}}", NULL, "'Lamb' is not supported: use AdamW"},
    {"\"optimizer\": {\"type\": \"AdmaW\"}}", NULL, "'AdmaW' is not known; did you mean 'AdamW'?"},
    {"\"optimizer\": {\"params\": {\"lr\": 1}}}", NULL, "optimizer.type is missing"},
    {"\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"max_grad_norm\": 1.0}}}", NULL,
     "use gradient_clipping"},
    {"\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": 0.01}}}", "learning_rate: 0.01",
     NULL},
    {"\"scheduler\": {\"type\": \"WarmupLR\"}}", "warmup_steps: 1000", NULL},
    {"\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.5}}, \"scheduler\": {\"type\": "
     "\"WarmupLR\", "
     "\"params\": {\"warmup_max_lr\": 0.01}}}",
     "learning_rate: 0.01", NULL},
    {"\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 500, "
     "\"warmup_num_steps\": 100}}}",
     "decay_steps: 400", NULL},
    {"\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 50, "
     "\"warmup_num_steps\": 100}}}",
     NULL, "a schedule of 50 steps is not longer than its warm-up of 100"},
    {"\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": 5000, "
     "\"cos_min_ratio\": 0.1}}, "
     "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.5}}}",
     "min_learning_rate: 0.05", NULL},
    {"\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1e-5, \"cycle_max_lr\": 1e-3, "
     "\"cycle_momentum\": false, \"cycle_min_mom\": 0.85}}}",
     "cycle_max_momentum: 0", NULL},
    {"\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"cycle_min_lr\": 1}}}", NULL,
     "unknown key 'scheduler.params.cycle_min_lr'"},
    {"\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_min_lr\": \"auto\", "
     "\"warmup_max_lr\": "
     "\"auto\", \"warmup_num_steps\": \"auto\", \"total_num_steps\": \"auto\"}}}",
     "warmup_steps: 0", NULL},
    {"\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 0}}}", "warmup_steps: 0",
     NULL},
    {"\"scheduler\": {\"type\": \"LRRangeTest\"}}", NULL, "'LRRangeTest' is not supported"},
    {"\"activation_checkpointing\": {\"cpu_checkpointing\": true}}", NULL, "use training.recompute: all"},
    {"\"elasticity\": {\"enabled\": true, \"min_gpus\": 4}}", NULL, "t.json:3:27: elasticity.enabled"},
    {"\"elasticity\": {\"enabled\": false, \"min_gpus\": 4}}", "# strategy: FULL_SHARD", NULL},
    {"\"gradient_clipping\": \"auto\"}", "learning_rate: 5e-05", NULL},
    {"// of Hjson\n \"gradient_clipping\": 0.25, /* as\n well */ \"steps_per_print\": 7,}", "interval: 7",
     NULL},
    {"\"_comment\": \"\\ud83d\\ude00\",\n  \"gradient_cliping\": 1}", NULL,
     "t.json:4:3: unknown key 'gradient_cliping'; did you mean 'gradient_clipping'?"},
    {"\"gradient_clipping\": 1,\n \"gradient_clipping\": 2}", NULL,
     "t.json:4:2: key 'gradient_clipping' appears twice"},
    {"\"pipeline\": {\"stages\": 2, \"partition\": \"best\", \"seed_layers\": false}}", "pipeline: 2", NULL},
    {"\"pipeline\": {\"stages\": \"auto\", \"grad_partitioned\": true}}", "# pipeline: 1", NULL},
    {"\"pipeline\": {\"stages\": 0}}", NULL, "pipeline.stages"},
    {"\"pipeline\": {\"partition\": \"uniform\"}}", NULL,
     "pipeline.partition: 'uniform' is not supported: mesh.cut chooses the layers of a stage"},
    {"\"pipeline\": {\"activation_checkpoint_interval\": 2}}", NULL,
     "training.recompute and recompute_every choose the layers"},
    {"\"pipeline\": {\"stage\": 2}}", NULL, "did you mean 'stages'?"},
    {"\"gradient_clipping\": -1}", NULL, "t.json:3:22: gradient_clipping: '-1' is outside 0 to 1000000000"},
};

static void reads_deepspeed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof deepspeed / sizeof *deepspeed; i++) {
        struct formats_settings settings;
        struct muster_error err = {0};
        scope_buffer text = {0};
        buffer_printf(&text, "%s%s", deepspeed_text, deepspeed[i].rest);
        if (deepspeed[i].line) {
            /* elasticity that is off leaves the strategy to DeepSpeed's default, which is stage 0 */
            const bool stage0 = strstr(deepspeed[i].line, "# strategy") != NULL;
            must_parse(text.data, 64, &settings);
            must_print(&settings, stage0 ? "strategy: NO_SHARD" : deepspeed[i].line);
        } else {
            assert_int_equal(parse(text.data, with_data, 64, &settings, &err), -1);
            if (!strstr(err.text, deepspeed[i].error))
                fail_msg("%s: '%s' does not contain '%s'", deepspeed[i].rest, err.text, deepspeed[i].error);
        }
        formats_free(&settings);
    }
}

static const struct {
    const char *text, *line, *note, *error;
    int ranks;
} batches[] = {
    {"{\"train_batch_size\": 1024, \"train_micro_batch_size_per_gpu\": 16, \"gradient_accumulation_steps\": "
     "1}",
     "global_batch: 1024",
     "1 micro-batches a step do not fit: a batch of 1024 is 16 micro-batches of 16 on 4 ranks", NULL, 4},
    {"{\"train_batch_size\": 1024, \"train_micro_batch_size_per_gpu\": 16, \"gradient_accumulation_steps\": "
     "1}",
     "micro_batch: 16", NULL, NULL, 64},
    {"{\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 2}", "global_batch: 32", NULL,
     NULL, 4},
    {"{\"train_batch_size\": 32, \"gradient_accumulation_steps\": 2}", "micro_batch: 4", NULL, NULL, 4},
    {"{\"train_batch_size\": 32}", "micro_batch: 8", NULL, NULL, 4},
    {"{\"train_batch_size\": 32, \"gradient_accumulation_steps\": 3}", NULL, NULL,
     "t.json:1:22 train_batch_size: train_batch_size 32 is not train_micro_batch_size_per_gpu 2 x "
     "gradient_accumulation_steps 3 x 4 ranks",
     4},
    {"{\"zero_optimization\": {\"stage\": 1}}", NULL, NULL,
     "neither train_batch_size nor train_micro_batch_size_per_gpu is given", 4},
    {"{\"zero_optimization\": {\"stage\": 1}, \"train_batch_size\": \"auto\"}", "micro_batch: 8", NULL, NULL,
     4},
    {"{\"train_batch_size\": 0}", NULL, NULL, "t.json:1:22: train_batch_size: '0' is outside 1 to 1000000000",
     4},
};

static void works_out_batches(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        struct formats_settings settings;
        struct muster_error err = {0};
        const int result = parse(batches[i].text, with_data, batches[i].ranks, &settings, &err);
        if ((result < 0) != (batches[i].error != NULL) || (result < 0 && !strstr(err.text, batches[i].error)))
            fail_msg("%s: '%s'", batches[i].text, err.text);
        if (!result)
            must_print(&settings, batches[i].line);
        if (!result && batches[i].note &&
            !strstr(settings.notes.data ? settings.notes.data : "", batches[i].note))
            fail_msg("%s: '%s'", batches[i].text, settings.notes.data ? settings.notes.data : "");
        if (!result && !batches[i].note)
            assert_true(!settings.notes.length);
        formats_free(&settings);
    }
    static char *const strict[] = {"data.path=x", "training.strict_batch=true", NULL};
    struct formats_settings settings;
    struct muster_error err = {0};
    assert_int_equal(parse(batches[0].text, strict, 4, &settings, &err), -1);
    assert_non_null(strstr(err.text, "train_batch_size 1024 is not"));
    formats_free(&settings);
}

/* ---- the Trainer's arguments, scripts, models ---- */

static const struct {
    const char *text, *line, *error;
} others[] = {
    {"{\"per_device_train_batch_size\": 4, \"max_steps\": 7}", "global_batch: 8", NULL},
    {"{\"per_device_train_batch_size\": 4, \"max_steps\": 7}", "schedule: hf_linear", NULL},
    {"{\"lr_scheduler_type\": \"cosine\", \"max_steps\": 7}", "min_learning_rate: 0", NULL},
    {"{\"max_steps\": 200, \"warmup_ratio\": 0.1, \"lr_scheduler_type\": \"cosine\"}", "warmup_steps: 20",
     NULL},
    {"{\"max_steps\": 200, \"warmup_steps\": 0.05}", "warmup_steps: 10", NULL},
    {"{\"max_steps\": 200, \"warmup_steps\": 3, \"lr_scheduler_type\": \"constant\"}", "warmup_steps: 0",
     NULL},
    {"{\"max_steps\": 200, \"warmup_ratio\": 0.1, \"lr_scheduler_type\": \"constant\"}", "warmup_steps: 0",
     NULL},
    {"{\"num_train_epochs\": 3, \"warmup_ratio\": 0.03}", "warmup_share: 0.03", NULL},
    {"{\"num_train_epochs\": 3, \"warmup_steps\": 0.03}", "warmup_share: 0.03", NULL},
    {"{\"num_train_epochs\": 3, \"warmup_ratio\": 0.03, \"warmup_steps\": 7}", "warmup_steps: 7", NULL},
    {"{\"max_steps\": 9, \"lr_scheduler_type\": \"polynomial\"}", "schedule: hf_polynomial", NULL},
    {"{\"max_steps\": 9, \"lr_scheduler_type\": \"polynomial\"}", "min_learning_rate: 1e-07", NULL},
    {"{\"max_steps\": 9, \"lr_scheduler_type\": \"polynomial\", \"lr_scheduler_kwargs\": {\"lr_end\": 1e-6, "
     "\"power\": 2}}",
     "min_learning_rate: 1e-06", NULL},
    {"{\"max_steps\": 9, \"lr_scheduler_type\": \"polynomial\", \"lr_scheduler_kwargs\": {\"power\": 2}}",
     "schedule_power: 2", NULL},
    {"{\"max_steps\": 9, \"lr_scheduler_type\": \"cosine_with_restarts\", \"lr_scheduler_kwargs\": "
     "{\"num_cycles\": 3}}",
     "schedule_cycles: 3", NULL},
    {"{\"max_steps\": 9, \"lr_scheduler_type\": \"inverse_sqrt\", \"lr_scheduler_kwargs\": {\"timescale\": "
     "30}}",
     "schedule_timescale: 30", NULL},
    {"{\"max_steps\": 9, \"lr_scheduler_type\": \"cosine_with_min_lr\", \"lr_scheduler_kwargs\": "
     "{\"min_lr_rate\": 0.5}}",
     "min_learning_rate: 2.5e-05", NULL},
    {"{\"max_steps\": 9, \"lr_scheduler_type\": \"cosine_with_min_lr\"}", NULL,
     "needs lr_scheduler_kwargs with min_lr"},
    {"{\"max_steps\": 90, \"lr_scheduler_type\": \"warmup_stable_decay\", \"lr_scheduler_kwargs\": "
     "{\"num_decay_steps\": 20, "
     "\"decay_type\": \"1-sqrt\", \"min_lr_ratio\": 0.1}}",
     "decay_shape: 1-sqrt", NULL},
    {"{\"max_steps\": 90, \"lr_scheduler_type\": \"warmup_stable_decay\"}", NULL,
     "needs the number of its last steps"},
    {"{\"max_steps\": 9, \"lr_scheduler_type\": \"reduce_lr_on_plateau\", \"eval_strategy\": \"steps\", "
     "\"eval_steps\": 2, "
     "\"lr_scheduler_kwargs\": {\"factor\": 0.5, \"patience\": 1}}",
     "plateau_factor: 0.5", NULL},
    {"{\"max_steps\": 9, \"lr_scheduler_type\": \"reduce_lr_on_plateau\"}", NULL,
     "follows evaluations, and there are none"},
    {"{\"max_steps\": 9, \"lr_scheduler_type\": \"cosine\", \"lr_scheduler_kwargs\": {\"power\": 2}}", NULL,
     "training.schedule_power has no effect with training.schedule: hf_cosine"},
    {"{\"max_steps\": 9, \"lr_scheduler_type\": \"greedy\"}", NULL,
     "lr_scheduler_type: 'greedy' is not supported; supported: linear"},
    {"{\"num_train_epochs\": 4, \"evaluation_strategy\": \"epoch\"}", "evaluate_epochs: true", NULL},
    {"{\"num_train_epochs\": 4, \"eval_strategy\": \"epoch\", \"eval_steps\": 7}", "evaluate_epochs: true",
     NULL},
    {"{\"num_train_epochs\": 4, \"save_strategy\": \"epoch\", \"output_dir\": \"o\"}",
     "checkpoint_epochs: true", NULL},
    {"{\"num_train_epochs\": 4, \"logging_strategy\": \"epoch\"}", "interval_epochs: true", NULL},
    {"{\"max_steps\": 9, \"eval_strategy\": \"epoch\"}", "evaluate_epochs: true", NULL},
    {"{\"num_train_epochs\": 4, \"eval_strategy\": \"steps\", \"eval_steps\": 0.1}", "evaluate_share: 0.1",
     NULL},
    {"{\"max_steps\": 45, \"eval_strategy\": \"steps\", \"eval_steps\": 0.1}", "evaluate_every: 5", NULL},
    {"{\"max_steps\": 45, \"save_steps\": 0.5}", "checkpoint_every: 23", NULL},
    {"{\"max_steps\": 45, \"logging_steps\": 0.5}", "interval: 23", NULL},
    {"{\"max_steps\": 45, \"logging_strategy\": \"no\", \"logging_steps\": 5}", "interval: 1000000000", NULL},
    {"{\"max_steps\": 45, \"eval_strategy\": \"steps\"}", "evaluate_every: 500", NULL},
    {"{\"max_steps\": 45, \"eval_strategy\": \"steps\", \"logging_steps\": 10}", "evaluate_every: 10", NULL},
    {"{\"max_steps\": 45, \"eval_steps\": 1.5}", NULL, "eval_steps: '1.5' is not a whole number"},
    {"{\"max_steps\": 9, \"seed\": 7, \"data_seed\": 7}", "seed: 7", NULL},
    {"{\"max_steps\": 9, \"use_peft\": true, \"output_dir\": \"o\"}", "rank: 16", NULL},
    {"{\"max_steps\": 9, \"use_peft\": true, \"output_dir\": \"o\"}", "output_format: peft", NULL},
    {"{\"max_steps\": 9, \"use_peft\": true, \"lora_r\": 8, \"lora_target_modules\": [\"q_proj\", "
     "\"v_proj\"]}",
     "target: [\"q_proj\", \"v_proj\"]", NULL},
    {"{\"max_steps\": 9, \"use_peft\": true, \"lora_r\": 8, \"load_in_4bit\": true}", "base: nf4", NULL},
    {"{\"max_steps\": 9, \"lora_r\": 8}", "# rank: 0", NULL}, /* without use_peft TRL makes none */
    {"{\"max_steps\": 9, \"use_dora\": true}", NULL, "use_dora: 'true' is not supported: plain adapters"},
    {"{\"max_steps\": 9, \"torch_dtype\": \"bfloat16\", \"attn_implementation\": \"sdpa\"}", "# dtype: fp32",
     NULL},
    {"{\"max_steps\": 9, \"validation_split_percentage\": 5}", "validation_share: 0.05", NULL},
    {"{\"max_steps\": 9, \"data_seed\": 42}", "steps: 9", NULL},
    {"{\"max_steps\": 9, \"seed\": 7, \"data_seed\": 8}", NULL, "data_seed: 8 is not the seed, 7"},
    {"{\"max_grad_norm\": 0, \"bf16\": true}", "clip_norm: 0", NULL},
    {"{\"fp16\": true}", "dtype: fp16", NULL},
    {"{\"tf32\": true}", "matmul_precision: tf32", NULL},
    {"{\"tf32\": false}", "matmul_precision: fp32", NULL},
    {"{\"use_cpu\": true}", "device: cpu", NULL},
    {"{\"no_cuda\": false}", "# device: auto", NULL},
    {"{\"device\": \"cuda:0\"}", "device: cuda", NULL},
    {"{\"device\": \"cuda:3\"}", NULL, "each rank takes the GPU of its LOCAL_RANK"},
    {"{\"use_mps_device\": true}", NULL, "devices are cpu and cuda"},
    {"{\"gradient_checkpointing\": true}", "recompute: all", NULL},
    {"{\"output_dir\": \"o\", \"save_steps\": 50, \"save_total_limit\": 2}", "checkpoint_every: 50", NULL},
    {"{\"output_dir\": \"o\", \"save_steps\": 50, \"save_total_limit\": 2}", "output: \"o/model\"", NULL},
    {"{\"output_dir\": \"o\", \"save_strategy\": \"no\", \"save_steps\": 50}", "checkpoint_every: 0", NULL},
    {"{\"save_steps\": 50}", "checkpoint_dir: \"trainer_output\"", NULL},
    {"{\"eval_strategy\": \"steps\", \"eval_steps\": 40, \"validation_split\": 0.1}", "evaluate_every: 40",
     NULL},
    {"{\"eval_strategy\": \"no\", \"eval_steps\": 40}", "evaluate_every: 0", NULL},
    {"{\"evaluation_strategy\": \"epochs\"}", NULL, "'epochs' is not supported; supported: no, steps, epoch"},
    {"{\"output_dir\": \"o\", \"eval_steps\": 40, \"load_best_model_at_end\": true}", "export_best: true",
     NULL},
    {"{\"eval_steps\": 40, \"load_best_model_at_end\": false, \"eval_on_start\": true, "
     "\"early_stopping_patience\": 3}",
     "early_stop_patience: 3", NULL},
    {"{\"fsdp\": \"full_shard auto_wrap\", \"fsdp_config\": {\"backward_prefetch\": \"backward_pre\"}}",
     "strategy: FULL_SHARD", NULL},
    {"{\"fsdp\": [\"shard_grad_op\"]}", "strategy: SHARD_GRAD_OP", NULL},
    {"{\"fsdp\": \"full_shard offload\"}", NULL, "fsdp: 'offload' is not supported"},
    {"{\"deepspeed\": {\"zero_optimization\": {\"stage\": 2}, \"train_micro_batch_size_per_gpu\": \"auto\"}, "
     "\"per_device_train_batch_size\": 4}",
     "strategy: SHARD_GRAD_OP", NULL},
    {"{\"deepspeed\": \"there_is_no_such.json\"}", NULL, "there_is_no_such.json"},
    {"{\"optim\": \"adafactor\"}", NULL, "optim: 'adafactor' is not supported; supported: adamw"},
    {"{\"optim\": \"sgd\", \"momentum\": 0.9}", "optimizer: SGD", NULL},
    {"{\"optimizer\": {\"type\": \"AdamW\", \"lr\": 0.25, \"betas\": [0.9, 0.99]}}", "beta2: 0.99", NULL},
    {"{\"optimizer\": \"adamw\", \"scheduler\": {\"type\": \"cosine\", \"warmup_steps\": 9}}",
     "warmup_steps: 9", NULL},
    {"{\"num_epochs\": 5, \"batch_size\": 128, \"learning_rate\": 0.001}", "epochs: 5", NULL},
    {"{\"num_epochs\": 5, \"warmup_ratio\": 0.1}", "warmup_share: 0.1", NULL},
    {"{\"per_device_train_batch_size\": 4}", "epochs: 3", NULL},
    {"{\"tokenizer_name\": \"t.json\", \"validation_file\": \"v\"}", "validation_path: \"v\"", NULL},
    {"{\"num_train_epochs\": 5, \"max_steps\": 9}", "# epochs: 0", NULL},
    {"{\"num_train_epochs\": 5, \"max_steps\": -1}", "epochs: 5", NULL},
    {"{\"max_steps\": 9, \"num_train_epochs\": 5}", "steps: 9", NULL},
    {"{\"report_to\": [\"tensorboard\", \"wandb\"], \"output_dir\": \"o\"}", "dir: \"o/runs\"", NULL},
    {"{\"validation_split\": 0.2}", "validation_share: 0.2", NULL},
    {"{\"pipeline_parallel_degree\": 2}", "pipeline: 2", NULL},
    {"{\"data_parallel_shard_degree\": -1, \"pipeline_model_parallel_size\": 2}", "pipeline: 2", NULL},
    {"{\"data_parallel_shard_degree\": 4}", NULL,
     "data_parallel_shard_degree: '4' is not supported: training.strategy: FULL_SHARD"},
    {"{\"tensor_parallel_degree\": 2}", NULL, "tensor_parallel_degree: '2' is not supported"},
    {"{\"label_smoothing_factor\": 0.1}", NULL,
     "t.json:1:28: label_smoothing_factor: '0.1' is not supported"},
    {"{\"per_device_train_batchsize\": 4}", NULL,
     "t.json:1:2: unknown key 'per_device_train_batchsize'; did you mean 'per_device_train_batch_size'?"},
    {"{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 2, \"n_head\": 4, \"n_positions\": 256, "
     "\"vocab_size\": 300}",
     "positions: 256", NULL},
    {"{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_inner\": 200}", NULL,
     "n_inner: '200' is not supported: gpt2 has 4 x"},
    {"{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 200, \"num_attention_heads\": "
     "4, "
     "\"num_key_value_heads\": 2}",
     "hidden: 200", NULL},
    {"{\"model_type\": \"llama\", \"hidden_size\": 64}", "norm_epsilon: 1e-06", NULL},
    {"{\"hidden_size\": 64, \"num_hidden_layers\": 2}", "architecture: llama", NULL},
    {"{\"n_embd\": 64, \"n_layer\": 2}", "architecture: gpt2", NULL},
    {"{\"model_type\": \"resnet18\", \"num_classes\": 10}", NULL,
     "t.json:1:16: model_type: 'resnet18' is not supported"},
    {"{\"model_type\": \"bert\", \"hidden_size\": 64}", NULL, "model_type: 'bert' is not supported"},
    {"kind: PyTorchJob\napiVersion: kubeflow.org/v1\n", NULL,
     "t.json:1:7: this is a manifest of Kubernetes (PyTorchJob)"},
    {"kind: ConfigMap\napiVersion: v1\ndata:\n  a.json: |\n    {\n      \"batch_sise\": 4}\n", NULL,
     "t.json/a.json:2:3: unknown key 'batch_sise'; did you mean 'batch_size'?"},
    {"kind: ConfigMap\napiVersion: v1\ndata: {}\n", NULL, "the ConfigMap has no files"},
    {"kind: ConfigMap\napiVersion: v1\ndata: {a: {b: c}}\n", NULL,
     "t.json:3:11: a mapping found where the text of"},
    {"training: {epochs: 3}\n", "epochs: 3", NULL},
    {"training: {batch_size: 16}\n", "micro_batch: 16", NULL},
    {"model: {type: gpt2}\n", "architecture: gpt2", NULL},
    {"training: {use_amp: true}\n", "dtype: fp16", NULL},
    {"training: {use_gradient_checkpointing: true}\n", "recompute: all", NULL},
    {"data: {pin_memory: true}\n", "# recompute: none", NULL},
    {"{\"BATCH_SIZE\": 32, \"GRADIENT_ACCUMULATION_STEPS\": 8}\n", "global_batch: 512", NULL},
    {"USE_AMP: true\nUSE_GRADIENT_CHECKPOINTING: true\nnum_workers: 4\npin_memory: true\n", "dtype: fp16",
     NULL},
    {"USE_GRADIENT_CHECKPOINTING: true\n", "recompute: all", NULL},
    {"Batch_Size: 32\n", NULL, "unknown key 'Batch_Size'"},
    {"data: {data_dir: y}\n", "path: \"x\"", NULL},
    {"logging: {log_interval: 3, save_checkpoint: true}\n", "checkpoint_dir: \"checkpoints\"", NULL},
    {"logging: {save_checkpoint: false}\n", "# checkpoint_dir: \"\"", NULL},
};

static void reads_the_others(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct formats_settings settings;
        struct muster_error err = {0};
        if (others[i].line) {
            must_parse(others[i].text, 2, &settings);
            must_print(&settings, others[i].line);
        } else {
            assert_int_equal(parse(others[i].text, with_data, 2, &settings, &err), -1);
            if (!strstr(err.text, others[i].error))
                fail_msg("%s: '%s' does not contain '%s'", others[i].text, err.text, others[i].error);
        }
        formats_free(&settings);
    }
}

/* ---- the documents that users have, as they stand ---- */

static int read_files(char *const *paths, char *const *options, char *const *sets, int ranks,
                      struct formats_settings *settings, struct muster_error *err)
{
    struct formats_request request = {
        .paths = paths, .options = options, .overrides = sets, .world_size = ranks};
    while (paths[request.path_count])
        request.path_count++;
    while (options && options[request.option_count])
        request.option_count++;
    while (sets && sets[request.override_count])
        request.override_count++;
    return formats_read(&request, settings, err);
}

/* --set and steps take the place of a file's epochs. */
static const struct {
    const char *file;
    char *sets[SETS];
    const char *error; /* NULL: starts */
} documents[] = {
    {CONFIGS "ds_config.json", {"data.path=x"}, NULL},
    {CONFIGS "ds_config.json",
     {"data.path=x", "training.steps=3", "training.micro_batch=2", "training.global_batch=4"},
     NULL},
    {CONFIGS "ds_config.json", {NULL}, CONFIGS "ds_config.json: data.path is missing"},
    {CONFIGS "training_config.yaml", {NULL}, NULL},
    {CONFIGS "training_config.yaml", {"training.epochs=3", "data.flip=false"}, NULL},
    {CONFIGS "training_config.yaml",
     {"model.layers=2"},
     "model.layers has no effect with model.architecture: simple_cnn"},
    {CONFIGS "training_config.yaml",
     {"training.sequence_length=7"},
     "training.sequence_length is 7, and a picture is one position"},
    {CONFIGS "configmap.yaml", {NULL}, "data.path is missing"},
    {CONFIGS "configmap.yaml", {"data.path=x", "training.steps=3"}, NULL},
    {CONFIGS "training_config.json", {NULL}, "data.path is missing"},
    {CONFIGS "training_config.json", {"data.path=x", "training.steps=3"}, NULL},
    {CONFIGS "model_config.json",
     {"data.path=x"},
     CONFIGS "model_config.json:2:19: model_type: 'custom_llm' is not supported"},
    {CONFIGS "model_config.json", {"data.path=x", "model.architecture=llama"}, NULL},
};

static void reads_documents_as_they_stand(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
        struct formats_settings settings;
        struct muster_error err = {0};
        char *const paths[] = {(char *)documents[i].file, NULL};
        const int result = read_files(paths, NULL, documents[i].sets, 4, &settings, &err);
        if ((result < 0) != (documents[i].error != NULL) ||
            (result < 0 && !strstr(err.text, documents[i].error)))
            fail_msg("%s: '%s'", documents[i].file, err.text);
        formats_free(&settings);
    }
}

/* The command of the document that has them. */
static void reads_several_files_and_options(void **state)
{
    (void)state;
    struct formats_settings settings;
    struct muster_error err = {0};
    char *const paths[] = {CONFIGS "training_config.json", CONFIGS "model_config.json", NULL};
    char *const options[] = {"data_path=x",          "output_dir=o",
                             "num_gpus=8",           "gradient_accumulation_steps=16",
                             "batch_size_per_gpu=4", NULL};
    char *const sets[] = {"training.steps=3", "model.architecture=llama", "model.layers=2", NULL};
    if (read_files(paths, options, sets, 8, &settings, &err) < 0)
        fail_msg("%s", err.text);
    must_print(&settings, "micro_batch: 4");
    must_print(&settings, "global_batch: 1024"); /* ds_config.json, which training_config.json names */
    must_print(&settings, "layers: 2");
    must_print(&settings, "channels: 4096");
    must_print(&settings, "output: \"o/model\"");
    assert_non_null(strstr(settings.notes.data, "training.micro_batch is 16, in place of 4 from " CONFIGS
                                                "training_config.json:4:36 per_device_train_batch_size"));
    assert_non_null(
        strstr(settings.notes.data, "--gradient_accumulation_steps: 16 micro-batches a step do not fit"));
    assert_null(strstr(settings.notes.data, "num_gpus")); /* there are 8 */
    formats_free(&settings);

    assert_true(formats_option("batch-size-per-gpu") && formats_option("learning_rate"));
    assert_true(formats_option("parallelism.pipeline-parallel-degree"));
    assert_false(formats_option("batch") || formats_option("params.lr") ||
                 formats_option("parallelism.params.lr"));
    char *const wrong[] = {"gradient_accumulation_steps=many", NULL};
    assert_int_equal(read_files(paths, wrong, sets, 8, &settings, &err), -1);
    assert_non_null(strstr(err.text, "--gradient_accumulation_steps: 'many' is not a number"));
    formats_free(&settings);
}

/* The stages of a pipeline take the same samples, and chunks are micro-batches of a rank's batch. */
static void batches_go_through_stages(void **state)
{
    (void)state;
    static const struct {
        char *const options[4];
        char *const sets[4];
        const char *lines[2], *error;
    } cases[] = {
        {{"batch_size=32", "chunks=8"}, {"mesh.pipeline=2"}, {"micro_batch: 4", "global_batch: 64"}, NULL},
        {{"batch_size=32", "n_microbatches=4"}, {NULL}, {"micro_batch: 8", "global_batch: 128"}, NULL},
        {{"global_batch_size=64", "chunks=8"},
         {"mesh.pipeline=4"},
         {"micro_batch: 8", "global_batch: 64"},
         NULL},
        {{"batch_size=32", "chunks=8", "gradient_accumulation_steps=2"},
         {"mesh.pipeline=2"},
         {"micro_batch: 4", "global_batch: 128"},
         NULL},
        {{"batch_size=32", "chunks=8"}, {"training.micro_batch=2"}, {"micro_batch: 2", NULL}, NULL},
        {{"batch_size=4", "gradient_accumulation_steps=2"},
         {"mesh.pipeline=2"},
         {"global_batch: 16", NULL},
         NULL},
        {{"batch_size=32", "chunks=5"},
         {NULL},
         {NULL},
         "--chunks: 5 chunks do not divide a rank's batch of 32"},
        {{"batch_size=32", "chunks=0"}, {NULL}, {NULL}, "--chunks: '0' is outside 1 to 65536"},
        /* what is left out follows from a rank's part of the batch */
        {{NULL}, {"training.global_batch=6"}, {"micro_batch: 2", "global_batch: 6"}, NULL},
        {{NULL}, {"training.global_batch=6", "mesh.pipeline=2"}, {"micro_batch: 3", NULL}, NULL},
        {{NULL}, {NULL}, {"micro_batch: 2", NULL}, NULL},
        {{NULL}, {"training.global_batch=64"}, {"# micro_batch: 4", NULL}, NULL},
        {{NULL}, {"training.global_batch=6", "training.micro_batch=3"}, {"micro_batch: 3", NULL}, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct formats_settings settings;
        struct muster_error err = {0};
        char *const none[] = {NULL};
        char *sets[6] = {"data.path=x", "model.layers=2"};
        for (int k = 0; cases[i].sets[k]; k++)
            sets[2 + k] = cases[i].sets[k];
        const int result = read_files(none, cases[i].options, sets, 4, &settings, &err);
        if ((result < 0) != (cases[i].error != NULL) || (result < 0 && !strstr(err.text, cases[i].error)))
            fail_msg("case %zu: '%s'", i, err.text);
        for (int k = 0; !result && k < 2; k++)
            if (cases[i].lines[k])
                must_print(&settings, cases[i].lines[k]);
        formats_free(&settings);
    }
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && !fclose(file));
}

static void reads_a_folder(void **state)
{
    (void)state;
    char folder[FOLDER_PATH];
    struct formats_settings settings;
    struct muster_error err = {0};
    assert_int_equal(folder_make(folder, "formats"), 0);
    char *const paths[] = {folder, NULL};
    assert_int_equal(read_files(paths, NULL, NULL, 1, &settings, &err), -1);
    assert_non_null(strstr(err.text, "the folder has no .json, .yaml or .yml file"));
    formats_free(&settings);
    write_file(folder, "a.json", "{\"learning_rate\": 0.5, \"data_path\": \"x\"}");
    write_file(folder, "b.yaml",
               "training: {learning_rate: 0.25, min_learning_rate: 0, frozen: [a.*, b.*]}\n");
    write_file(folder, "c.yaml", "training: {frozen: [c.*]}\n");
    write_file(folder, "notes.txt", "not of a configuration");
    if (read_files(paths, NULL, NULL, 1, &settings, &err) < 0)
        fail_msg("%s", err.text);
    must_print(&settings, "learning_rate: 0.25");
    if (!strstr(settings.notes.data, "b.yaml:1:27: training.learning_rate is 0.25, in place of 0.5 from"))
        fail_msg("%s", settings.notes.data);
    must_print(&settings, "frozen: [\"c.*\"]");
    if (!strstr(settings.notes.data, "c.yaml:1:20: training.frozen is given anew, in place of a.*,b.* from"))
        fail_msg("%s", settings.notes.data);
    formats_free(&settings);
    write_file(folder, "adapter_model.safetensors", "");
    assert_int_equal(read_files(paths, NULL, NULL, 1, &settings, &err), -1);
    assert_non_null(
        strstr(err.text, " is a folder of adapters of PEFT, not of configurations: name it by lora.path"));
    formats_free(&settings);
    write_file(folder, "model.safetensors", "");
    assert_int_equal(read_files(paths, NULL, NULL, 1, &settings, &err), -1);
    assert_non_null(
        strstr(err.text, " is a folder of a model, not of configurations: name it by model.path"));
    formats_free(&settings);
    static const char *const names[] = {
        "a.json", "b.yaml", "c.yaml", "notes.txt", "adapter_model.safetensors", "model.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
}

/* ---- printing ---- */

static void compare_settings(const struct train_config *a, const struct train_config *b, const char *what)
{
    const struct knob_table *table = train_config_table();
    for (size_t i = 0; i < table->count; i++) {
        scope_buffer x = {0}, y = {0};
        assert_int_equal(
            knob_format_json(&table->knobs[i], a, &x) | knob_format_json(&table->knobs[i], b, &y), 0);
        if (strcmp(x.data, y.data) != 0)
            fail_msg("%s: %s is %s, and read again %s", what, table->knobs[i].name, x.data, y.data);
    }
}

static void what_is_printed_reads_the_same(void **state)
{
    (void)state;
    char *const paths[] = {CONFIGS "ds_config.json", NULL};
    char *const sets[] = {
        "data.path=a \"b\"\n",        "training.frozen=h.0.*",          "training.frozen=wte.*",
        "training.learning_rate=0.1", "logging.sample_prompt=\\t: # {", NULL};
    struct formats_settings settings, again;
    struct muster_error err = {0};
    scope_buffer text = {0}, json = {0};
    if (read_files(paths, NULL, sets, 4, &settings, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(formats_print(&settings, false, &text), 0);
    if (formats_parse("printed.yaml", text.data, text.length, NULL, 0, 4, &again, &err) < 0)
        fail_msg("%s\n%s", err.text, text.data);
    compare_settings(&settings.config, &again.config, "ds_config.json");
    assert_int_equal(formats_print(&settings, true, &json), 0);
    assert_non_null(strstr(
        json.data, "\"training.micro_batch\": {\"value\": 16, \"from\": \"file\", \"source\": \"" CONFIGS
                   "ds_config.json:3:39 train_micro_batch_size_per_gpu\"}"));
    formats_free(&again);
    formats_free(&settings);
}

static int read_once(void *context)
{
    struct formats_settings settings;
    scope_buffer text = {0};
    (void)context;
    static const char source[] =
        "{\"per_device_train_batch_size\": 2, \"max_steps\": 4, \"output_dir\": \"o\", \"bf16\": true, "
        "\"warmup_ratio\": 0.5, \"report_to\": \"tensorboard\", \"deepspeed\": {\"fp16\": {\"enabled\": "
        "\"auto\", \"hysteresis\": 2}, \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": "
        "{\"total_num_steps\": 90}}}}";
    struct muster_error err = {0};
    int result = parse(source, with_data, 2, &settings, &err);
    if (!result)
        result = formats_print(&settings, false, &text);
    formats_free(&settings);
    return result;
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    faults_sweep_absorbed(read_once, NULL); /* the list of a choice is made before it is known to be needed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_deepspeed),
        cmocka_unit_test(works_out_batches),
        cmocka_unit_test(reads_the_others),
        cmocka_unit_test(reads_documents_as_they_stand),
        cmocka_unit_test(reads_several_files_and_options),
        cmocka_unit_test(batches_go_through_stages),
        cmocka_unit_test(reads_a_folder),
        cmocka_unit_test(what_is_printed_reads_the_same),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
