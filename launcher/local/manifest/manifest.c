/* manifest.c - see manifest.h: which object is the job, and which other objects the files hold. */
#include "launcher/local/manifest/manifest.h"

#include <string.h>

#include "launcher/local/manifest/api.h"
#include "launcher/local/manifest/building.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

/* --- which job --- */

static const struct kind {
    const char *name, *api_version, *release;
    int (*build)(struct building *);
} kinds[] = {
#define KIND(symbol, name, version, release, newest) [symbol] = {name, version, release, build_##symbol},
#define build_LOCAL_PYTORCHJOB                       pytorchjob_build
#define build_LOCAL_JOB                              indexed_job_build
#define build_LOCAL_JOBSET                           jobset_build
#define build_LOCAL_TRAINJOB                         trainjob_build
    APIS(KIND)
#undef KIND
};

static const struct kind *kind_of(const struct document_object *object)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(object->kind, kinds[i].name) && !strcmp(object->api_version, kinds[i].api_version))
            return &kinds[i];
    return NULL;
}

/* A job of a version that is not read: an old one, or a newer. */
static const struct document_object *other_version(const struct documents *documents,
                                                   const struct kind **read)
{
    for (size_t i = 0; i < documents->object_count; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            const char *version = documents->objects[i].api_version;
            size_t group = strcspn(kinds[k].api_version, "/");
            if (!strcmp(documents->objects[i].kind, kinds[k].name) &&
                !strncmp(version, kinds[k].api_version, group) && version[group] == '/') {
                *read = &kinds[k];
                return &documents->objects[i];
            }
        }
    return NULL;
}

static int no_job(const struct documents *documents, const char *wanted, struct muster_error *err)
{
    const struct kind *read;
    const struct document_object *other = wanted ? NULL : other_version(documents, &read);
    if (other)
        return error_set(err, MUSTER_E_NOT_FOUND,
                         "%s: %s %.63s has the apiVersion %.63s, and muster local reads %s (%s); "
                         "change the apiVersion, and its fields where they differ",
                         other->file, other->kind, other->name, other->api_version, read->api_version,
                         read->release);
    scope_buffer list = {0}, known = {0};
    /* The objects that the files hold instead, for people. */
    for (size_t i = 0; i < documents->object_count && list.length < 200; i++)
        buffer_printf(&list, "%s%.60s %.60s (%.60s)", i ? ", " : "", documents->objects[i].kind,
                      documents->objects[i].name, documents->objects[i].api_version);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        buffer_printf(&known, "%s%s (%s)",
                      !i                                     ? ""
                      : i + 1 < sizeof kinds / sizeof *kinds ? ", "
                                                             : " or ",
                      kinds[i].name, kinds[i].api_version);
    return error_set(err, MUSTER_E_NOT_FOUND, "there is no %s%s%.63s in these files; %s%s",
                     known.data ? known.data : "job", wanted ? " with the name " : "", wanted ? wanted : "",
                     list.data ? "they hold " : "they hold no objects at all", list.data ? list.data : "");
}

static int choose(const struct documents *documents, const char *wanted, const struct document_object **out,
                  struct muster_error *err)
{
    scope_buffer names = {0};
    int count = 0;
    for (size_t i = 0; i < documents->object_count; i++) {
        const struct document_object *object = &documents->objects[i];
        if (!kind_of(object) || (wanted && strcmp(wanted, object->name)))
            continue;
        *out = object;
        if (names.length < 200)
            buffer_printf(&names, "%s%s %.63s", count ? ", " : "", object->kind, object->name);
        count++;
    }
    if (count == 0)
        return no_job(documents, wanted, err);
    if (count > 1)
        return error_set(err, MUSTER_E_INVALID, "there are %d jobs in these files (%s); choose one by --job",
                         count, names.data ? names.data : "");
    return 0;
}

/* Other objects that are neither read nor meant for us. */
static void note_others(const struct building *b)
{
    static const char *const used[] = {"ConfigMap", "Secret", "PersistentVolumeClaim",
                                       "ClusterTrainingRuntime", "TrainingRuntime"};
    for (size_t i = 0; i < b->documents->object_count; i++) {
        const struct document_object *object = &b->documents->objects[i];
        bool known = object == b->object;
        known |= b->job->groups && !strcmp(object->kind, "Service");
        for (size_t k = 0; k < sizeof used / sizeof *used; k++)
            known |= !strcmp(object->kind, used[k]);
        if (!strcmp(object->kind, "Kustomization") || !strcmp(object->kind, "Component"))
            problems_add(b->problems, PROBLEM_WARNING, object->file, object->node, NULL,
                         "a kustomization is not applied here; kustomize build FOLDER | muster local -f - "
                         "does that first");
        else if (!known)
            problems_add(b->problems, PROBLEM_NOTE, object->file, NULL, NULL, "%.63s %.63s is left aside",
                         object->kind, object->name);
    }
}

/* --- the job --- */

/* Warnings and notes as the lines of job->warnings. */
static int fill_warnings(struct building *b)
{
    scope_buffer lines = {0};
    for (size_t i = 0; i < b->problems->count; i++)
        if (b->problems->list[i].type >= PROBLEM_WARNING)
            buffer_printf(&lines, "%s%s", lines.length ? "\n" : "", b->problems->list[i].text);
    if (lines.failed)
        return building_no_memory(b);
    if (lines.length && !(b->job->warnings = buffer_take(&lines)))
        return building_no_memory(b);
    return 0;
}

static int build(struct building *b)
{
    const struct kind *kind = kind_of(b->object);
    b->job->kind = (enum local_kind)(kind - kinds);
    if (kind->build(b) < 0)
        return -1;
    if (!b->problems->fatal) {
        note_others(b);
        if (apart_check(b->job, b->object->file, b->problems) < 0)
            return building_no_memory(b);
    }
    return b->problems->failed ? building_no_memory(b) : fill_warnings(b);
}

int manifest_build(const struct documents *documents, const struct manifest_settings *settings,
                   struct local_job *job, struct problems *problems, struct muster_error *err)
{
    struct building b = {
        .documents = documents, .settings = settings, .job = job, .problems = problems, .err = err};
    *job = (struct local_job){0};
    if (choose(documents, settings->job, &b.object, err) < 0)
        return -1;
    int result = build(&b);
    if (result < 0 || problems->fatal)
        local_job_free(job);
    patch_free(&b.merged);
    tree_free(&b.built_in);
    return result;
}
