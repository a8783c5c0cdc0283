/* nccl_files_fuzz.c - arbitrary text as a policy and as a description: an error with a text and a place, or
 * something that can be decided about and comes back the same from its own JSON. */
#include <stdlib.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "runtime/nccl/decide/decide.h"
#include "runtime/nccl/files/description_json.h"
#include "runtime/nccl/files/policy_read.h"
#include "tests/fuzz/random_main.h"

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void try_policy(const char *text, size_t size)
{
    struct policy policy;
    struct muster_error err = {0};
    if (policy_parse("policy.yaml", text, size, &policy, &err) < 0) {
        check(*err.text && err.code != MUSTER_OK && !policy.entries);
        return;
    }
    struct description machine;
    struct decision_list list = {0};
    description_init(&machine);
    check(decide(&machine, &policy, &list, &err) == 0);
    for (int i = 0; i < policy.count; i++)
        check(policy.entries[i].line > 0 && *policy.entries[i].name);
    decision_list_free(&list);
    description_free(&machine);
    policy_free(&policy);
}

static void try_description(const char *text, size_t size)
{
    struct description machine, copy;
    struct decision_list list = {0};
    struct muster_error err = {0};
    scope_buffer first = {0}, second = {0}, table = {0};
    if (description_read("machine.json", text, size, &machine, &err) < 0) {
        check(*err.text && err.code != MUSTER_OK && !machine.gpus);
        return;
    }
    check(decide(&machine, NULL, &list, &err) == 0);
    check(decision_print(&list, 80, &table) == 0 && decision_json(&list, &table) == 0 &&
          decision_summary(&list, &table) == 0);
    check(description_write(&machine, &first) == 0);
    check(description_read("copy.json", first.data, first.length, &copy, &err) == 0);
    check(description_write(&copy, &second) == 0);
    check(!strcmp(first.data, second.data));
    decision_list_free(&list);
    description_free(&copy);
    description_free(&machine);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = mem_strndup((const char *)data, size);
    check(text != NULL);
    try_policy(text, strlen(text));
    try_description(text, strlen(text));
    mem_free(text);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char policy[] =
        "version: 1\nrules:\n  - add: {NCCL_IB_TC: \"106\"}\n    when: {gpu: \"NVIDIA H100*\", "
        "pool: a3, nccl: \">=2.21,<2.28\", nodes: \">=2\"}\n    reason: x\n"
        "  - pin: {NCCL_DEBUG: WARN}\n  - forbid: [NCCL_IB_DISABLE]\n";
    static const char machine[] =
        "{\"version\": 1, \"nnodes\": 2, \"master_address\": \"10.0.0.1\", \"interfaces\": [{\"name\": "
        "\"eth0\", "
        "\"up\": true, \"to_master\": true, \"addresses\": [{\"text\": \"10.0.0.2\", \"family\": 4}]}], "
        "\"rdma\": "
        "[{\"device\": \"mlx5_0\", \"state\": \"ACTIVE\", \"uverbs\": true, \"gids\": [{\"index\": 3, "
        "\"type\": "
        "\"RoCE v2\", \"ipv4\": true}]}], \"gpus\": [{\"index\": 0, \"name\": \"T4\", \"mig\": null}], "
        "\"settings\": [{\"name\": \"NCCL_ALGO\", \"value\": \"allreduce:ring;^tree\", \"source\": \"x\"}]}";
    const struct fuzz_seed seeds[] = {{policy, sizeof policy - 1}, {machine, sizeof machine - 1}};
    return fuzz_main(argc, argv, seeds, 2);
}
#endif
