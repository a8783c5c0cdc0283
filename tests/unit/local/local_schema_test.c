/* local_schema_test.c - the schemas of muster local against the fields of the APIs' newest releases, both
 * ways: every field of an API has its effect here, and every field here is in an API. And the merging of
 * patches, placeholders. */
#include <stdio.h>
#include <stdlib.h>

#include "launcher/local/manifest/api.h"
#include "launcher/local/manifest/batch_job.h"
#include "launcher/local/manifest/building.h"
#include "launcher/local/manifest/pytorchjob.h"
#include "launcher/local/pod/placeholder.h"
#include "launcher/local/pod/schema.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text_list.h"
#include "tests/support/cmocka_all.h"

static const struct api {
    const char *kind, *release;
    const struct schema *schema;
} apis[] = {
    {"PyTorchJob", API_PYTORCHJOB, &pytorchjob_schema},
    {"Job", API_JOB, &batch_job_schema},
    {"JobSet", API_JOBSET, &jobset_schema},
    {"TrainJob", API_TRAINJOB, &trainjob_schema},
    {"TrainingRuntime", API_TRAINJOB, &training_runtime_schema},
    {"Pod", NULL, &pod_template_schema},
};

static const struct api *find_api(const char *kind)
{
    for (size_t i = 0; i < sizeof apis / sizeof *apis; i++)
        if (!strcmp(apis[i].kind, kind))
            return &apis[i];
    fail_msg("unknown kind %s", kind);
    return NULL;
}

static void read_lines(struct text_list *lines)
{
    struct buffer text = {0};
    struct muster_error err = {0};
    if (io_read_file(MUSTER_API_FIELDS, 1 << 20, &text, &err) < 0)
        fail_msg("%s", err.text);
    for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n"))
        assert_int_equal(text_list_take(lines, mem_strdup(line)), 0);
    buffer_free(&text);
}

/* A field of the API is in the schema; below a field that is not looked into there is nothing to apply. */
static void look_up(const char *kind, const char *path)
{
    const struct schema *schema = find_api(kind)->schema;
    const struct schema_field *field = NULL;
    for (const char *at = path; *at;) {
        size_t length = strcspn(at, ".");
        char name[64];
        (void)snprintf(name, sizeof name, "%.*s", (int)length, at);
        if (field && !schema) {
            if (field->effect == SCHEMA_APPLIED)
                fail_msg("%s %s: %s is applied, and what is in it is not looked into", kind, path,
                         field->name);
            return;
        }
        field = schema_field_find(schema, name);
        if (!field)
            fail_msg("%s %s: the schema lacks %s", kind, path, name);
        if (field->effect == SCHEMA_UNUSED || field->effect == SCHEMA_REFUSED)
            assert_non_null(field->why);
        schema = field->of;
        at += length + (at[length] == '.');
    }
}

static void every_field_of_an_api_is_known(void **state)
{
    (void)state;
    struct text_list lines = {0};
    int releases = 0, fields = 0;
    read_lines(&lines);
    for (size_t i = 0; i < lines.count; i++) {
        char kind[32], path[400], release[64];
        if (lines.items[i][0] == '#')
            continue;
        if (sscanf(lines.items[i], "release %31s %63[^\n]", kind, release) == 2) {
            const struct api *api = find_api(kind);
            assert_string_equal(api->release, release);
            assert_string_equal(api->schema->release, release);
            releases++;
        } else if (sscanf(lines.items[i], "old %31s %399s", kind, path) == 2 ||
                   sscanf(lines.items[i], "%31s %399s", kind, path) == 2) {
            look_up(kind, path);
            fields++;
        }
    }
    assert_int_equal(releases, 5);
    assert_true(fields > 350);
    text_list_free(&lines);
}

static bool is_listed(const struct text_list *lines, const char *kind, const char *path)
{
    scope_free char *line = mem_printf("%s %s", kind, path), *old = mem_printf("old %s", line);
    for (size_t i = 0; i < lines->count; i++)
        if (!strcmp(lines->items[i], line) || !strcmp(lines->items[i], old))
            return true;
    return false;
}

/* Objects that are listed under a kind of their own, or everywhere the same. */
static bool is_elsewhere(const struct schema *schema)
{
    return schema == &pod_template_schema || schema == &object_metadata_schema ||
           schema == &jobset_spec_schema || schema == &pod_env_schema || schema == &pod_volume_schema ||
           schema == &pod_volume_mount_schema;
}

static void look_back(const struct text_list *lines, const char *kind, const struct schema *schema,
                      const char *above)
{
    for (size_t i = 0; i < schema->count; i++) {
        const struct schema_field *field = &schema->fields[i];
        scope_free char *path = mem_printf("%s%s%s", above, *above ? "." : "", field->name);
        bool common = !*above && strcmp(field->name, "spec") != 0; /* apiVersion, kind, metadata, status */
        if (common)
            continue;
        if (!is_listed(lines, kind, path))
            fail_msg("%s %s is in the schema, and in no release of the API", kind, path);
        bool once = !strcmp(field->name, "initContainers") || !strcmp(field->name, "metadata") ||
                    strstr(path, "Overrides") ||
                    (!strcmp(kind, "JobSet") && !strcmp(path, "spec.replicatedJobs.template.spec"));
        if (field->of && !once && !is_elsewhere(field->of))
            look_back(lines, kind, field->of, path);
    }
}

static void every_field_here_is_one_of_an_api(void **state)
{
    (void)state;
    struct text_list lines = {0};
    read_lines(&lines);
    for (size_t i = 0; i < sizeof apis / sizeof *apis; i++)
        look_back(&lines, apis[i].kind, apis[i].schema, "");
    text_list_free(&lines);
}

/* --- patches --- */

static void merged(const char *base, const char *patch, const char *expected)
{
    struct tree one = {0}, two = {0};
    struct patch_memory memory = {0};
    struct muster_error err = {0};
    struct buffer out = {0};
    assert_int_equal(tree_parse("base", base, strlen(base), &one, &err), 0);
    assert_int_equal(tree_parse("patch", patch, strlen(patch), &two, &err), 0);
    const struct tree_node *node = patch_merge(&memory, one.documents[0], two.documents[0]);
    assert_non_null(node);
    assert_int_equal(tree_write_json(node, &out), 0);
    char *to = out.data;
    for (const char *from = out.data; *from; from++)
        if (*from != ' ')
            *to++ = *from;
    *to = 0;
    assert_string_equal(out.data, expected);
    buffer_free(&out);
    patch_free(&memory);
    tree_free(&one);
    tree_free(&two);
}

static void patches_merge_as_in_kubernetes(void **state)
{
    (void)state;
    merged("{a: x, b: y}", "{b: z, c: w}", "{\"a\":\"x\",\"b\":\"z\",\"c\":\"w\"}");
    merged("{a: x, b: y}", "{a: null}", "{\"b\":\"y\"}");
    merged("{a: {b: x, c: y}}", "{a: {c: z}}", "{\"a\":{\"b\":\"x\",\"c\":\"z\"}}");
    merged("{l: [p, q]}", "{l: [r]}", "{\"l\":[\"r\"]}");
    merged("{containers: [{name: a, image: x}, {name: b}]}", "{containers: [{name: b, image: y}, {name: c}]}",
           "{\"containers\":[{\"name\":\"a\",\"image\":\"x\"},{\"name\":\"b\",\"image\":\"y\"},{\"name\":"
           "\"c\"}]}");
    merged("{env: [{name: A, valueFrom: {f: x}}]}", "{env: [{name: A, value: x}]}",
           "{\"env\":[{\"name\":\"A\",\"value\":\"x\"}]}");
    merged("{volumes: [{name: v, emptyDir: {}}]}", "{volumes: [{name: v, hostPath: {path: /x}}]}",
           "{\"volumes\":[{\"name\":\"v\",\"hostPath\":{\"path\":\"/x\"}}]}");
    merged(
        "{volumeMounts: [{name: v, mountPath: /a}]}",
        "{volumeMounts: [{name: w, mountPath: /a}, {name: v, mountPath: /b}]}",
        "{\"volumeMounts\":[{\"name\":\"w\",\"mountPath\":\"/a\"},{\"name\":\"v\",\"mountPath\":\"/b\"}]}");
    merged("{containers: [{name: a}, {name: b}]}", "{containers: [{name: a, $patch: delete}]}",
           "{\"containers\":[{\"name\":\"b\"}]}");
}

/* --- placeholders --- */

static void placeholders(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum placeholder_kind kind;
        const char *found;
    } cases[] = {
        {"registry/$IMAGE:tag", PLACEHOLDER_SHELL, "$IMAGE"},
        {"${A:-b}", PLACEHOLDER_SHELL, "${A:-b}"},
        {"a-{{ .Values.x }}-b", PLACEHOLDER_HELM, "{{ .Values.x }}"},
        {"{{x}}", PLACEHOLDER_BRACES, "{{x}}"},
        {"<your bucket>", PLACEHOLDER_MARK, "<your bucket>"},
        {"__TAG__", PLACEHOLDER_MARK, "__TAG__"},
        {"plain", PLACEHOLDER_NONE, ""},
        {"$", PLACEHOLDER_NONE, ""},
        {"$5", PLACEHOLDER_NONE, ""},
        {"a@b", PLACEHOLDER_NONE, ""},
        {"image@sha256:0", PLACEHOLDER_NONE, ""},
        {"50%", PLACEHOLDER_NONE, ""},
        {"a<b", PLACEHOLDER_NONE, ""},
        {"a__b", PLACEHOLDER_NONE, ""},
        {"{}", PLACEHOLDER_NONE, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct placeholder found = placeholder_in_text(cases[i].text);
        if (found.kind != cases[i].kind || strcmp(found.text, cases[i].found) != 0)
            fail_msg("%s: kind %d, '%s'", cases[i].text, found.kind, found.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_of_an_api_is_known),
        cmocka_unit_test(every_field_here_is_one_of_an_api),
        cmocka_unit_test(patches_merge_as_in_kubernetes),
        cmocka_unit_test(placeholders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
