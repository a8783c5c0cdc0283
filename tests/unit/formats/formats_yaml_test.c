/* formats_yaml_test.c - the meaning of values in YAML: null and ~, home folders, numbers
 * that not all readers read alike, booleans in other words, anchors. Each is right, or an error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/guard.h"
#include "proto/base/knob.h"
#include "tests/support/cmocka_all.h"
#include "trainer/formats/formats.h"

enum { SETS = 4 };

static int parse_with(const char *text, char *const *sets, struct formats_settings *settings,
                      struct muster_error *err)
{
    int count = 0;
    while (sets && sets[count])
        count++;
    return formats_parse("t.yaml", text, strlen(text), sets, count, 1, settings, err);
}

/* A row: line, of the printed YAML, or error. */
static void check_row(const char *text, char *const *sets, const char *line, const char *error)
{
    struct formats_settings settings;
    struct muster_error err = {0};
    scope_buffer out = {0};
    char wanted[160];
    const int result = parse_with(text, sets, &settings, &err);
    if (error) {
        if (!result || !strstr(err.text, error))
            fail_msg("%s: '%s' does not contain '%s'", text, err.text, error);
        return;
    }
    if (result < 0)
        fail_msg("%s: %s", text, err.text);
    assert_int_equal(formats_print(&settings, false, &out), 0);
    (void)snprintf(wanted, sizeof wanted, "\n  %s ", line);
    if (!strstr(out.data, wanted))
        fail_msg("%s: '%s' is not in:\n%s", text, line, out.data);
    formats_free(&settings);
}

#define T "\ntraining: "
static const struct {
    const char *text, *line, *error;
} values[] = {
    /* null is not set */
    {T "{output: null}", "# output: \"\"", NULL},
    {T "{output: ~}", "# output: \"\"", NULL},
    {T "{output: Null, checkpoint_dir: NULL}", "# checkpoint_dir: \"\"", NULL},
    {T "{output: , resume: }", "# resume: \"auto\"", NULL},
    {T "\n  output:\n  steps: 7", "steps: 7", NULL},
    {T "{output: \"null\"}", "output: \"null\"", NULL},
    {T "{output: '~'}", "output: \"/h/me\"", NULL},
    {T "{steps: null}", "# steps: 1000", NULL},
    {T "{schedule: null, nesterov: null, group_bytes: ~}", "# schedule: cosine", NULL},
    {T "{no_decay: null}", "# no_decay: []", NULL},
    {T "{no_decay: [a, null]}", NULL, "t.yaml:2:26: training.no_decay: null found where a single value"},
    {T "{stepps: null}", NULL, "unknown key 'training.stepps'; did you mean 'training.steps'?"},
    {"Training: {steps: 3}", NULL, "unknown section 'Training'; did you mean 'training'?"},
    /* by another program's key, by a common word, by the key of another section; and nothing far-fetched */
    {"model: {n_embd: 64}", NULL, "unknown key 'model.n_embd'; did you mean 'model.channels'?"},
    {"model: {width: 64}", NULL, "unknown key 'model.width'; did you mean 'model.channels'?"},
    {T "{max_steps: 3}", NULL, "unknown key 'training.max_steps'; did you mean 'training.steps'?"},
    {T "{fp16: true}", NULL, "unknown key 'training.fp16'; did you mean 'training.dtype'?"},
    {T "{layers: 3}", NULL, "unknown key 'training.layers'; did you mean 'model.layers'?"},
    {T "{gpus: 2}", NULL, "unknown key 'training.gpus'; muster-train --help lists every key"},
    {"\nlora: null", "# rank: 0", NULL},
    {"\nlogging: {dir: null, trace: null, samples: ~}", "# dir: \"\"", NULL},
    {T "{checkpoint_dir: c, stages: [{steps: 3, learning_rate: null, name: null, data: ~}]}",
     "stages: [\"{\\\"steps\\\": 3, \\\"learning_rate\\\": null, \\\"name\\\": null, \\\"data\\\": null}\"]",
     NULL},
    {T "{checkpoint_dir: c, stages: [{steps: 0x10, data: {path: null}}]}", "# learning_rate: 0.001", NULL},
    {T "{checkpoint_dir: c, stages: [{steps: 010}]}", NULL, "'010' is octal in YAML 1.1"},
    {T "{global_batch: 2}", "micro_batch: 2", NULL}, /* a default is no demand */
    {T "{global_batch: 2, micro_batch: 4}", NULL, "training.micro_batch 4 is above training.global_batch 2"},
    /* the home folder */
    {T "{output: ~/m}", "output: \"/h/me/m\"", NULL},
    {T "{output: \"~/m\", checkpoint_dir: ~/c}", "checkpoint_dir: \"/h/me/c\"", NULL},
    {T "{output: ./~/m}", "output: \"./~/m\"", NULL},
    {T "{output: a~b}", "output: \"a~b\"", NULL},
    {T "{output: ~you/m}", NULL, "training.output: '~you/m' begins with ~you, and the home folders of other"},
    {T "{output: $HOME/m}", NULL, "training.output: '$HOME/m' has a variable, which is not replaced here"},
    {T "{output: \"x/${USER}\"}", NULL, "has a variable"},
    {T "{output: \"{{ out }}\"}", NULL, "has a variable"},
    {T "{output: None}", NULL, "'None' is Python's"},
    {"\nlogging: {sample_prompt: ~/x}", "sample_prompt: \"~/x\"", NULL}, /* no path */
    {"\nlogging: {sample_prompt: None}", "sample_prompt: \"None\"", NULL},
    /* a boolean is no path */
    {T "{output: no}", NULL, "t.yaml:2:20: training.output: 'no' is a boolean where a path is expected"},
    {T "{output: false}", NULL, "is a boolean where a path is expected"},
    {T "{output: 'no'}", "output: \"no\"", NULL},
    {T "{checkpoint_dir: c, resume: false}", "resume: \"none\"", NULL},
    {T "{checkpoint_dir: c, resume: on}", "resume: \"auto\"", NULL},
    {T "{output: 2024}", "output: \"2024\"", NULL},
    /* numbers and booleans in other words */
    {T "{steps: 1_000}", "steps: 1000", NULL},
    {T "{steps: 0x10}", "steps: 16", NULL},
    {T "{steps: 0o17}", "steps: 15", NULL},
    {T "{steps: 0b11}", "steps: 3", NULL},
    {T "{steps: 010}", NULL,
     "t.yaml:2:19: training.steps: '010' is octal in YAML 1.1 and decimal in YAML 1.2"},
    {T "{steps: +5}", "steps: 5", NULL},
    {T "{steps: 2e3}", "steps: 2000", NULL},
    {T "{steps: '7'}", "steps: 7", NULL},
    {T "{steps: 1:30}", NULL, "training.steps: '1:30' is not a whole number"},
    {T "\n  steps: 1,000", NULL, "training.steps: '1,000' is not a whole number"},
    {T "{steps: .inf}", NULL, "training.steps: '.inf' is not a whole number"},
    {T "{learning_rate: 1e-4}", "learning_rate: 0.0001", NULL},
    {T "{learning_rate: .5}", "learning_rate: 0.5", NULL},
    {T "{learning_rate: 1_0.5}", "learning_rate: 10.5", NULL},
    {T "{learning_rate: .nan}", NULL, "training.learning_rate: '.nan' is not a number"},
    {T "{optimizer: SGD, momentum: 0.5, nesterov: yes}", "nesterov: true", NULL},
    {T "{optimizer: SGD, momentum: 0.5, nesterov: Off}", "nesterov: false", NULL},
    {"\ndata: {text_key: 010}", "text_key: \"010\"", NULL},
    {"\ndata: {text_key: y}", "text_key: \"y\"", NULL},
    /* other programs' keys */
    {"\nbf16: yes\nmax_steps: 0x20", "dtype: bf16", NULL},
    {"\nbf16: on\nmax_steps: 0x20", "steps: 32", NULL},
    {"\nmax_steps: 1_000\npush_to_hub: no", "steps: 1000", NULL},
    {"\nmax_steps: 010", NULL, "max_steps"},
    {"\nmax_steps: 9\nmax_grad_norm: null", "clip_norm: 0", NULL},
    {"\nmax_steps: 9\noutput_dir: ~/run", "checkpoint_dir: \"/h/me/run\"", NULL},
    {"\nmax_steps: 9\noutput_dir: ~/run", "output: \"/h/me/run/model\"", NULL},
    {"\nmax_steps: 9\noutput_dir: null", "# checkpoint_dir: \"\"", NULL},
    {"\nmax_steps: 9\nfsdp: no", "steps: 9", NULL},
    {"\nmax_steps: 9\ndeepspeed: ~/none.json", NULL, "/h/me/none.json"},
    /* tags of other programs */
    {T "{output: !env OUT}", NULL, "t.yaml:2:20: a value has a tag, as !env or !!python/tuple"},
    {T "!include x.yaml", NULL, "a value has a tag"},
    {"\nmax_steps: 9\nbetas: !!python/tuple [0.9, 0.99]", NULL, "t.yaml:3:8: a value has a tag"},
    {T "{steps: !!int 7, output: !!str no}", "output: \"no\"", NULL},
    {T "{output: ! no}", "output: \"no\"", NULL},
    /* anchors, merges, and files that are no configuration */
    {"\n_common: &c {steps: 7}\ntraining: {<<: *c, seed: 3}", "steps: 7", NULL},
    {"\nx-common: &c {steps: 7}\ntraining: {<<: *c, steps: 3}", "steps: 3", NULL},
    {T "{steps: 7, steps: 8}", NULL, "key 'steps' appears twice"},
    {T "{steps: 7}\ntraining: {seed: 1}", NULL, "key 'training' appears twice"},
    {"\ntraining:\n\tsteps: 7", NULL, "t.yaml:3:1: not valid YAML: a line is indented by a tab"},
    {T "{steps: 7}\n---\ntraining: {seed: 1}", NULL, "t.yaml:4:1: the configuration must be one document"},
    {"\n---" T "{steps: 7}\n...\n", "steps: 7", NULL},
};

static void reads_values(void **state)
{
    (void)state;
    static char *const with_data[] = {"data.path=x", NULL};
    assert_int_equal(setenv("HOME", "/h/me", 1), 0);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        check_row(values[i].text, with_data, values[i].line, values[i].error);
}

static const struct {
    char *sets[SETS];
    const char *line, *error;
} overrides[] = {
    {{"data.path=~/x"}, "path: \"/h/me/x\"", NULL},
    {{"data.path=~"}, "path: \"/h/me\"", NULL},
    {{"data.path=x", "training.output=null"}, "# output: \"\"", NULL},
    {{"data.path=x", "training.steps=null"}, "# steps: 1000", NULL},
    {{"data.path=x", "training.steps=~"}, NULL, "--set training.steps: '~' is not a whole number"},
    {{"data.path=~you"}, NULL, "--set data.path: '~you' begins with ~you"},
    {{"data.path=x", "data.text_key=null"}, "text_key: \"null\"", NULL},
    {{"data.sources=0.7 ~/x", "data.sources=~/y"}, "sources: [\"0.7 /h/me/x\", \"/h/me/y\"]", NULL},
    {{"data.path=x", "training.frozen=c"}, "frozen: [\"c\"]", NULL},
    {{"data.path=x", "training.frozen=c", "training.frozen=d"}, "frozen: [\"c\", \"d\"]", NULL},
    {{"data.path=x", "training.frozen=[c, 'd,e', 7]"}, "frozen: [\"c\", \"d,e\", \"7\"]", NULL},
    {{"data.path=x", "training.frozen=[c]", "training.frozen=d"}, "frozen: [\"c\", \"d\"]", NULL},
    {{"data.path=x", "training.frozen=[]"}, "# frozen: []", NULL},
    {{"data.path=x", "training.frozen="}, "# frozen: []", NULL},
    {{"data.path=x", "training.frozen=null"}, "# frozen: []", NULL},
    {{"data.path=x", "training.frozen=[[c]]"},
     NULL,
     "--set training.frozen: a list found where a single value"},
    {{"data.path=x", "training.frozen=[*.c]"}, NULL, "--set training.frozen:1:"},
    {{"data.path=x", "lora.path=~/a", "training.output="}, "path: \"/h/me/a\"", NULL},
};

static void reads_overrides(void **state)
{
    (void)state;
    assert_int_equal(setenv("HOME", "/h/me", 1), 0);
    for (size_t i = 0; i < sizeof overrides / sizeof *overrides; i++)
        check_row("training: {output: o, steps: 9, frozen: [a, b]}\n", overrides[i].sets, overrides[i].line,
                  overrides[i].error);
}

/* ---- files of other programs ---- */

static const struct {
    const char *text, *error;
} foreign[] = {
    {"compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\n",
     "t.yaml:2:19: this is a configuration of Hugging Face accelerate, which is not read here: `muster run "
     "--accelerate-config=FILE` reads it"},
    {"base_model: a/b\ndatasets:\n  - path: x\n    type: alpaca\nmicro_batch_size: 2\n", "of axolotl"},
    {"base_model: a/b\nadapter: qlora\nlora_r: 8\n", "of axolotl"},
    {"model_name_or_path: a/b\nstage: sft\ndo_train: true\nfinetuning_type: lora\ntemplate: llama3\n",
     "of LLaMA-Factory"},
    {"{\"model_name_or_path\": \"a\", \"dataset_dir\": \"d\", \"template\": \"qwen\"}", "of LLaMA-Factory"},
    {"tokenizer:\n  _component_: torchtune.models.llama3.llama3_tokenizer\n  path: t\n", "of torchtune"},
    {"model: {_component_: torchtune.models.llama3.llama3_8b}\n", "of torchtune"},
    {"trainer: {devices: 8}\nexp_manager: {name: x}\nmodel: {mcore_gpt: true}\n", "of NeMo"},
    {"max_duration: 3ep\ntrain_loader: {name: text}\nmodel: {name: x}\n", "of LLM Foundry"},
    {"trainer: {accelerator: gpu}\nmodel: {class_path: a.B}\n", "of Lightning"},
    {"defaults: [a, b]\nhydra: {run: {dir: x}}\n", "of Hydra"},
    {"[job]\ndump_folder = \"./outputs\"\n[training]\nseq_len = 2048\n",
     "this is a configuration of torchtitan (TOML), which is not read here: mesh.pipeline is its "
     "pipeline_parallel_degree"},
    {"training: {steps: 3}\nparallelism: {pipeline_parallel_degree: 2}\n",
     "t.yaml:2:1: section 'parallelism' is another program's: mesh.pipeline has the stages"},
    {"training: {steps: 3}\nparallelism_config:\n  parallelism_config_tp_size: 2\n",
     "t.yaml:2:1: section 'parallelism_config' is another program's"},
    {"# a remark\n[training]\nsteps = 10\n", "t.yaml: this is TOML, which is not read here"},
    {"learning_rate = 6e-4 # max\nmax_iters = 600000\n", "this is lines of name = value"},
    {"worker-1 slots=4\nworker-2 slots=4\n", "this is a hostfile of DeepSpeed or MPI"},
    {"#!/usr/bin/env python3\nimport torch\n", "this is a program"},
    {"import torch\n\nx = 1\n", "this is a program"},
    {"from transformers import Trainer\n", "`muster run FILE` starts it"},
    {"PK\3\4 and more", "this is a file of parameters"},
    {"{\"peft_type\": \"LORA\", \"r\": 8}",
     "adapter_config.json of PEFT, which is not read here: lora.path is its folder"},
    {"{\"_from_model_config\": true, \"eos_token_id\": 2}",
     "generation_config.json of a model, which is not read here: model.path is its folder"},
    {"{\"metadata\": {}, \"weight_map\": {\"a\": \"b\"}}", "the index of a model's shards"},
    {"{\"version\": \"1.0\", \"added_tokens\": [], \"model\": {\"type\": \"BPE\"}}", "a tokenizer"},
    {"{\"tokenizer_class\": \"GPT2Tokenizer\"}", "tokenizer_config.json"},
    {"apiVersion: v1\nkind: Service\n---\napiVersion: batch/v1\nkind: Job\n",
     "this is a manifest of Kubernetes (Service)"},
    {"[1, 2]\n", "the file is not a mapping"}, /* YAML's own list */
    {"training: {steps: 3}\nmodel: {type: gpt2}\ndata: {path: x}\n", NULL},
    {"from: x\n", "unknown key 'from'"},
};

static void names_files_of_other_programs(void **state)
{
    (void)state;
    static char *const with_data[] = {"data.path=x", NULL};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        check_row(foreign[i].text, foreign[i].error ? with_data : NULL, "steps: 3", foreign[i].error);
}

static void takes_paths(void **state)
{
    (void)state;
    static const struct {
        const char *text, *home, *path, *error;
    } rows[] = {
        {"", "/h", "", NULL},           {"~", "/h/", "/h/", NULL},     {"~/x", "/h/", "/h/x", NULL},
        {"~/x", "/", "/x", NULL},       {"~//x", "/h", "/h//x", NULL}, {"/a/~/x", NULL, "/a/~/x", NULL},
        {"a$b", NULL, "a$b", NULL},     {"~/x", NULL, NULL, "HOME"},   {"~/x", "", NULL, "HOME"},
        {"$(A)/x", "/h", NULL, "$(A)"}, {"s-~", NULL, "s-~", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct muster_error err = {0};
        scope_free char *path = NULL;
        const int result = knob_path_with_home(rows[i].text, rows[i].home, &path, &err);
        assert_int_equal(result, rows[i].path ? 0 : -1);
        if (rows[i].path)
            assert_string_equal(path, rows[i].path);
        else
            assert_non_null(strstr(err.text, rows[i].error));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_values),
        cmocka_unit_test(reads_overrides),
        cmocka_unit_test(names_files_of_other_programs),
        cmocka_unit_test(takes_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
