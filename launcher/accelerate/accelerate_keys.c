/* accelerate_keys.c - see accelerate_keys.h. */
#include "launcher/accelerate/accelerate_keys.h"

#include <ctype.h>
#include <string.h>

#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "proto/env_names.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

enum { NAMES_LIMIT = 64 };

static const char fsdp[] = "fsdp_config", deepspeed[] = "deepspeed_config", megatron[] = "megatron_lm_config";
static const char mpirun[] = "mpirun_config";

static const struct accelerate_type types[] = {
    {"NO", ACCELERATE_SIMPLE, mpirun, ENV_CUDA_VISIBLE_DEVICES, NULL, NULL},
    {"MULTI_CPU", ACCELERATE_SIMPLE, mpirun, ENV_CUDA_VISIBLE_DEVICES, NULL, NULL},
    {"MULTI_GPU", ACCELERATE_TORCH, NULL, ENV_CUDA_VISIBLE_DEVICES, NULL, NULL},
    {"MULTI_NPU", ACCELERATE_TORCH, NULL, "ASCEND_RT_VISIBLE_DEVICES", NULL, NULL},
    {"MULTI_MLU", ACCELERATE_TORCH, NULL, "MLU_VISIBLE_DEVICES", NULL, NULL},
    {"MULTI_SDAA", ACCELERATE_TORCH, NULL, "SDAA_VISIBLE_DEVICES", NULL, NULL},
    {"MULTI_MUSA", ACCELERATE_TORCH, NULL, "MUSA_VISIBLE_DEVICES", NULL, NULL},
    {"MULTI_XPU", ACCELERATE_TORCH, NULL, "ZE_AFFINITY_MASK", NULL, NULL},
    {"MULTI_HPU", ACCELERATE_TORCH, NULL, "HABANA_VISIBLE_MODULES", NULL, NULL},
    {"MULTI_NEURON", ACCELERATE_TORCH, NULL, "NEURON_RT_VISIBLE_CORES", NULL, NULL},
    {"DEEPSPEED", ACCELERATE_DEEPSPEED, deepspeed, ENV_CUDA_VISIBLE_DEVICES, "ACCELERATE_USE_DEEPSPEED",
     "true"},
    {"FSDP", ACCELERATE_TORCH, fsdp, ENV_CUDA_VISIBLE_DEVICES, "ACCELERATE_USE_FSDP", "true"},
    {"MEGATRON_LM", ACCELERATE_TORCH, megatron, ENV_CUDA_VISIBLE_DEVICES, "ACCELERATE_USE_MEGATRON_LM",
     "true"},
    {"XLA", ACCELERATE_REFUSED, NULL, NULL, NULL, NULL},
    {"TPU", ACCELERATE_REFUSED, NULL, NULL, NULL, NULL}, /* XLA, before version 0.25 */
};

static const struct accelerate_key fsdp_keys[] = {
    {"fsdp_version", "FSDP_VERSION", ACCELERATE_AS_IS, "1", NULL},
    {"fsdp_sharding_strategy", "FSDP_SHARDING_STRATEGY", ACCELERATE_AS_IS, "FULL_SHARD", NULL},
    {"fsdp_reshard_after_forward", "FSDP_RESHARD_AFTER_FORWARD", ACCELERATE_LOWER, "true", NULL},
    {"fsdp_offload_params", "FSDP_OFFLOAD_PARAMS", ACCELERATE_LOWER, "false", NULL},
    {"fsdp_min_num_params", "FSDP_MIN_NUM_PARAMS", ACCELERATE_AS_IS, "100000000", NULL},
    {"fsdp_auto_wrap_policy", "FSDP_AUTO_WRAP_POLICY", ACCELERATE_AS_IS, NULL, NULL},
    {"fsdp_transformer_layer_cls_to_wrap", "FSDP_TRANSFORMER_CLS_TO_WRAP", ACCELERATE_AS_IS, NULL, NULL},
    {"fsdp_backward_prefetch", "FSDP_BACKWARD_PREFETCH", ACCELERATE_AS_IS, NULL, NULL},
    {"fsdp_state_dict_type", "FSDP_STATE_DICT_TYPE", ACCELERATE_AS_IS, NULL, NULL},
    {"fsdp_forward_prefetch", "FSDP_FORWARD_PREFETCH", ACCELERATE_LOWER, "false", NULL},
    {"fsdp_use_orig_params", "FSDP_USE_ORIG_PARAMS", ACCELERATE_LOWER, "true", NULL},
    {"fsdp_cpu_ram_efficient_loading", "FSDP_CPU_RAM_EFFICIENT_LOADING", ACCELERATE_LOWER, "true", NULL},
    {"fsdp_sync_module_states", "FSDP_SYNC_MODULE_STATES", ACCELERATE_LOWER, "true", NULL},
    {"fsdp_activation_checkpointing", "FSDP_ACTIVATION_CHECKPOINTING", ACCELERATE_LOWER, "false", NULL},
    {"fsdp_activation_checkpointing_offload", "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", ACCELERATE_LOWER,
     "false", NULL},
    {"fsdp_ignored_modules", "FSDP_IGNORED_MODULES", ACCELERATE_AS_IS, NULL, NULL},
};

/* The two paths are read by the workers' accelerate, though its own launcher does not pass them on. */
static const struct accelerate_key deepspeed_keys[] = {
    {"zero_stage", "ACCELERATE_DEEPSPEED_ZERO_STAGE", ACCELERATE_AS_IS, NULL, NULL},
    {"gradient_accumulation_steps", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", ACCELERATE_AS_IS, NULL, NULL},
    {"gradient_clipping", "ACCELERATE_GRADIENT_CLIPPING", ACCELERATE_LOWER, NULL, NULL},
    {"offload_optimizer_device", "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", ACCELERATE_LOWER, NULL,
     NULL},
    {"offload_param_device", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", ACCELERATE_LOWER, NULL, NULL},
    {"offload_optimizer_nvme_path", "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH", ACCELERATE_AS_IS,
     NULL, NULL},
    {"offload_param_nvme_path", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH", ACCELERATE_AS_IS, NULL, NULL},
    {"zero3_init_flag", "ACCELERATE_DEEPSPEED_ZERO3_INIT", ACCELERATE_LOWER, NULL, NULL},
    {"zero3_save_16bit_model", "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", ACCELERATE_LOWER, NULL, NULL},
    {"deepspeed_config_file", "ACCELERATE_DEEPSPEED_CONFIG_FILE", ACCELERATE_AS_IS, NULL, NULL},
    {"deepspeed_moe_layer_cls_names", "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES", ACCELERATE_AS_IS, NULL,
     NULL},
    {"deepspeed_hostfile", NULL, ACCELERATE_AS_IS, NULL, NULL},
    {"deepspeed_multinode_launcher", NULL, ACCELERATE_AS_IS, NULL, NULL},
    {"deepspeed_exclusion_filter", NULL, ACCELERATE_AS_IS, NULL, NULL},
    {"deepspeed_inclusion_filter", NULL, ACCELERATE_AS_IS, NULL, NULL},
};

#define MEGATRON(key, variable, initial)                                                                     \
    {                                                                                                        \
        "megatron_lm_" key, "MEGATRON_LM_" variable, ACCELERATE_AS_IS, initial, NULL                         \
    }
static const struct accelerate_key megatron_keys[] = {
    MEGATRON("tp_degree", "TP_DEGREE", "1"),
    MEGATRON("pp_degree", "PP_DEGREE", "1"),
    MEGATRON("gradient_clipping", "GRADIENT_CLIPPING", "1.0"),
    MEGATRON("use_custom_fsdp", "USE_CUSTOM_FSDP", "False"),
    MEGATRON("no_load_optim", "NO_LOAD_OPTIM", "False"),
    MEGATRON("no_save_optim", "NO_SAVE_OPTIM", "False"),
    MEGATRON("eod_mask_loss", "EOD_MASK_LOSS", "False"),
    MEGATRON("optimizer_cpu_offload", "OPTIMIZER_CPU_OFFLOAD", "False"),
    MEGATRON("use_precision_aware_optimizer", "USE_PRECISION_AWARE_OPTIMIZER", "False"),
    MEGATRON("overlap_cpu_optimizer_d2h_h2d", "OVERLAP_CPU_OPTIMIZER_D2H_H2D", "False"),
    MEGATRON("decoder_last_pipeline_num_layers", "DECODER_LAST_PIPELINE_NUM_LAYERS", NULL),
    MEGATRON("num_micro_batches", "NUM_MICRO_BATCHES", NULL),
    MEGATRON("sequence_parallelism", "SEQUENCE_PARALLELISM", NULL),
    MEGATRON("recompute_activations", "RECOMPUTE_ACTIVATIONS", NULL),
    MEGATRON("use_distributed_optimizer", "USE_DISTRIBUTED_OPTIMIZER", NULL),
    MEGATRON("recompute_granularity", "RECOMPUTE_GRANULARITY", NULL),
    MEGATRON("recompute_method", "RECOMPUTE_METHOD", NULL),
    MEGATRON("recompute_num_layers", "RECOMPUTE_NUM_LAYERS", NULL),
    MEGATRON("attention_backend", "ATTENTION_BACKEND", NULL),
    MEGATRON("expert_model_parallel_size", "EXPERT_MODEL_PARALLEL_SIZE", NULL),
    MEGATRON("context_parallel_size", "CONTEXT_PARALLEL_SIZE", NULL),
    MEGATRON("attention_dropout", "ATTENTION_DROPOUT", NULL),
    MEGATRON("hidden_dropout", "HIDDEN_DROPOUT", NULL),
    MEGATRON("attention_softmax_in_fp32", "ATTENTION_SOFTMAX_IN_FP32", NULL),
    MEGATRON("expert_tensor_parallel_size", "EXPERT_TENSOR_PARALLEL_SIZE", NULL),
    MEGATRON("calculate_per_token_loss", "CALCULATE_PER_TOKEN_LOSS", NULL),
    MEGATRON("use_rotary_position_embeddings", "USE_ROTARY_POSITION_EMBEDDINGS", NULL),
};

static const struct accelerate_key dynamo_keys[] = {
    {"dynamo_backend", "ACCELERATE_DYNAMO_BACKEND", ACCELERATE_UPPER, "NO", NULL},
    {"dynamo_mode", "ACCELERATE_DYNAMO_MODE", ACCELERATE_AS_IS, "default", NULL},
    {"dynamo_use_fullgraph", "ACCELERATE_DYNAMO_USE_FULLGRAPH", ACCELERATE_AS_IS, "False", NULL},
    {"dynamo_use_dynamic", "ACCELERATE_DYNAMO_USE_DYNAMIC", ACCELERATE_AS_IS, "False", NULL},
    {"dynamo_use_regional_compilation", "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", ACCELERATE_AS_IS,
     "False", NULL},
};

/* `accelerate config` writes three keys by longer names than its own launcher knows: they are read here. */
static const struct accelerate_key fp8_keys[] = {
    {"fp8_backend", "ACCELERATE_FP8_BACKEND", ACCELERATE_AS_IS, NULL, NULL},
    {"fp8_use_autocast_during_eval", "ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL", ACCELERATE_AS_IS, "False",
     NULL},
    {"fp8_margin", "ACCELERATE_FP8_MARGIN", ACCELERATE_AS_IS, "0", NULL},
    {"fp8_interval", "ACCELERATE_FP8_INTERVAL", ACCELERATE_AS_IS, "1", NULL},
    {"fp8_format", "ACCELERATE_FP8_FORMAT", ACCELERATE_AS_IS, "HYBRID", NULL},
    {"fp8_amax_history_len", "ACCELERATE_FP8_AMAX_HISTORY_LEN", ACCELERATE_AS_IS, "1024", NULL},
    {"fp8_amax_history_length", "ACCELERATE_FP8_AMAX_HISTORY_LEN", ACCELERATE_AS_IS, NULL, NULL},
    {"fp8_amax_compute_algo", "ACCELERATE_FP8_AMAX_COMPUTE_ALGO", ACCELERATE_AS_IS, "most_recent", NULL},
    {"fp8_amax_compute_algorithm", "ACCELERATE_FP8_AMAX_COMPUTE_ALGO", ACCELERATE_AS_IS, NULL, NULL},
    {"fp8_opt_level", "ACCELERATE_FP8_OPT_LEVEL", ACCELERATE_AS_IS, "O2", NULL},
    {"fp8_optimization_level", "ACCELERATE_FP8_OPT_LEVEL", ACCELERATE_AS_IS, NULL, NULL},
    {"fp8_enable_fsdp_float8_all_gather", "ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER", ACCELERATE_AS_IS,
     "1", NULL},
    {"fp8_pad_inner_dim", "ACCELERATE_FP8_PAD_INNER_DIM", ACCELERATE_AS_IS, "1", NULL},
    {"fp8_use_mxfp8_block_scaling", "ACCELERATE_FP8_USE_MXFP8_BLOCK_SCALING", ACCELERATE_AS_IS, NULL, NULL},
    {"fp8_override_linear_precision", NULL, ACCELERATE_AS_IS, NULL, NULL},
};

#define PARALLELISM(key, variable, initial, when)                                                            \
    {                                                                                                        \
        "parallelism_config_" key, "PARALLELISM_CONFIG_" variable, ACCELERATE_AS_IS, initial, when           \
    }
static const char cp_size[] = "parallelism_config_cp_size", sp_size[] = "parallelism_config_sp_size";
static const struct accelerate_key parallelism_keys[] = {
    PARALLELISM("dp_replicate_size", "DP_REPLICATE_SIZE", "1", NULL),
    PARALLELISM("dp_shard_size", "DP_SHARD_SIZE", "1", NULL),
    PARALLELISM("tp_size", "TP_SIZE", "1", NULL),
    PARALLELISM("cp_size", "CP_SIZE", "1", NULL),
    PARALLELISM("cp_backend", "CP_BACKEND", "torch", NULL),
    PARALLELISM("cp_comm_strategy", "CP_COMM_STRATEGY", "allgather", cp_size),
    PARALLELISM("sp_size", "SP_SIZE", "1", NULL),
    PARALLELISM("sp_backend", "SP_BACKEND", "deepspeed", NULL),
    PARALLELISM("sp_seq_length", "SP_SEQ_LENGTH", "None", sp_size),
    PARALLELISM("sp_seq_length_is_variable", "SP_SEQ_LENGTH_IS_VARIABLE", "True", sp_size),
    PARALLELISM("sp_attn_implementation", "SP_ATTN_IMPLEMENTATION", "sdpa", sp_size),
};

static const struct accelerate_key mpirun_keys[] = {
    {"mpirun_hostfile", NULL, ACCELERATE_AS_IS, NULL, NULL},
    {"mpirun_ccl", "CCL_WORKER_COUNT", ACCELERATE_AS_IS, NULL, NULL}, /* before version 1.8 */
};

static const struct accelerate_section sections[] = {
    {fsdp, "fsdp_", true, ACCELERATE_READ_BY_TYPE, "distributed_type FSDP only", fsdp_keys, COUNT(fsdp_keys)},
    {deepspeed, "", false, ACCELERATE_READ_BY_TYPE, "distributed_type DEEPSPEED only", deepspeed_keys,
     COUNT(deepspeed_keys)},
    {megatron, "megatron_lm_", false, ACCELERATE_READ_BY_TYPE, "distributed_type MEGATRON_LM only",
     megatron_keys, COUNT(megatron_keys)},
    {mpirun, "mpirun_", false, ACCELERATE_READ_BY_TYPE, "distributed_type MULTI_CPU only", mpirun_keys,
     COUNT(mpirun_keys)},
    {"fp8_config", "fp8_", true, ACCELERATE_READ_FOR_FP8, "mixed_precision fp8 only", fp8_keys,
     COUNT(fp8_keys)},
    {"parallelism_config", "parallelism_config_", false, ACCELERATE_READ_NOT_SIMPLE, "GPUs only",
     parallelism_keys, COUNT(parallelism_keys)},
    {"dynamo_config", "dynamo_", true, ACCELERATE_READ_NOT_DEEPSPEED, "not with DeepSpeed", dynamo_keys,
     COUNT(dynamo_keys)},
};

static const char only_tpus[] = "TPUs only", tpu_pods[] = "TPU pods only";
static const struct accelerate_unused unused_keys[] = {
    {"main_training_function", only_tpus, "main"},
    {"downcast_bf16", only_tpus, "no"},
    {"tpu_name", tpu_pods, NULL},
    {"tpu_zone", tpu_pods, NULL},
    {"tpu_use_cluster", tpu_pods, NULL},
    {"tpu_use_sudo", tpu_pods, NULL},
    {"tpu_vm", tpu_pods, NULL},
    {"tpu_env", tpu_pods, NULL},
    {"commands", tpu_pods, NULL},
    {"command_file", tpu_pods, NULL},
};

/* Keys that accelerate_config.c handles by name. */
static const char *const honoured[] = {
    "compute_environment",
    "distributed_type",
    "num_processes",
    "num_machines",
    "machine_rank",
    "main_process_ip",
    "main_process_port",
    "rdzv_backend",
    "same_network",
    "gpu_ids",
    "mixed_precision",
    "fp16",
    "use_cpu",
    "debug",
    "dynamo_backend",
    "enable_cpu_affinity",
};

const struct accelerate_type *accelerate_type(const char *name)
{
    for (size_t i = 0; i < COUNT(types); i++)
        if (!strcmp(types[i].name, name))
            return &types[i];
    return NULL;
}

const struct accelerate_section *accelerate_sections(size_t *count)
{
    *count = COUNT(sections);
    return sections;
}

const struct accelerate_unused *accelerate_unused(const char *name)
{
    for (size_t i = 0; i < COUNT(unused_keys); i++)
        if (!strcmp(unused_keys[i].name, name))
            return &unused_keys[i];
    return NULL;
}

const struct accelerate_key *accelerate_key(const struct accelerate_section *section, const char *name)
{
    const size_t front = strlen(section->prefix);
    const bool bare = section->bare && strncmp(name, section->prefix, front) != 0;
    for (size_t i = 0; i < section->count; i++)
        if (!strcmp(section->keys[i].name + (bare ? front : 0), name))
            return &section->keys[i];
    return NULL;
}

bool accelerate_known(const char *name)
{
    for (size_t i = 0; i < COUNT(honoured); i++)
        if (!strcmp(honoured[i], name))
            return true;
    for (size_t i = 0; i < COUNT(sections); i++)
        if (!strcmp(sections[i].name, name))
            return true;
    return accelerate_unused(name) != NULL;
}

const char *accelerate_nearest(const char *name)
{
    const char *names[COUNT(honoured) + COUNT(sections) + COUNT(unused_keys)];
    size_t count = 0;
    for (size_t i = 0; i < COUNT(honoured); i++)
        names[count++] = honoured[i];
    for (size_t i = 0; i < COUNT(sections); i++)
        names[count++] = sections[i].name;
    for (size_t i = 0; i < COUNT(unused_keys); i++)
        names[count++] = unused_keys[i].name;
    return text_nearest(name, names, count);
}

const char *accelerate_nearest_type(const char *name)
{
    const char *names[COUNT(types)];
    for (size_t i = 0; i < COUNT(types); i++)
        names[i] = types[i].name;
    return text_nearest(name, names, COUNT(types));
}

const char *accelerate_nearest_key(const struct accelerate_section *section, const char *name)
{
    const char *names[NAMES_LIMIT];
    const size_t front = strlen(section->prefix);
    const bool bare = section->bare && strncmp(name, section->prefix, front) != 0;
    size_t count = 0;
    for (size_t i = 0; i < section->count && count < NAMES_LIMIT; i++)
        names[count++] = section->keys[i].name + (bare ? front : 0);
    return text_nearest(name, names, count);
}

/* --- values --- */

bool accelerate_is_value(const struct tree_node *node)
{
    for (const char *at = node->kind == TREE_TEXT ? node->text : ""; *at; at++)
        if (iscntrl((unsigned char)*at))
            return false;
    return node->kind == TREE_BOOL || node->kind == TREE_INT || node->kind == TREE_FLOAT ||
           node->kind == TREE_TEXT;
}

const char *accelerate_shown(const char *text, char scratch[ACCELERATE_SHOWN_SIZE])
{
    size_t length = strnlen(text, ACCELERATE_SHOWN_SIZE - 1);
    for (size_t i = 0; i < length; i++)
        scratch[i] = iscntrl((unsigned char)text[i]) ? '?' : text[i];
    scratch[length] = '\0';
    return scratch;
}

char *accelerate_print(const struct tree_node *node, enum accelerate_form form)
{
    char *text = NULL;
    if (node->kind == TREE_BOOL)
        text = mem_strdup(node->boolean ? "True" : "False");
    else if (node->kind == TREE_INT)
        text = mem_printf("%lld", (long long)node->integer);
    else if (accelerate_is_value(node))
        text = mem_strdup(node->text);
    for (char *at = text; at && *at && form != ACCELERATE_AS_IS; at++)
        *at = (char)(form == ACCELERATE_LOWER ? tolower((unsigned char)*at) : toupper((unsigned char)*at));
    return text;
}

bool accelerate_bool(const struct tree_node *node, bool *out)
{
    if (node->kind == TREE_BOOL)
        *out = node->boolean;
    return node->kind == TREE_BOOL || (node->kind == TREE_TEXT && text_bool(node->text, out));
}

bool accelerate_int(const struct tree_node *node, int64_t *out)
{
    if (node->kind == TREE_INT)
        *out = node->integer;
    return node->kind == TREE_INT || (node->kind == TREE_TEXT && text_int64(node->text, out));
}

bool accelerate_is_empty(const struct tree_node *node)
{
    switch (node->kind) {
    case TREE_NULL:
        return true;
    case TREE_BOOL:
        return !node->boolean;
    case TREE_TEXT:
        return !*node->text;
    case TREE_LIST:
    case TREE_MAP:
        return node->count == 0;
    default:
        return false;
    }
}
