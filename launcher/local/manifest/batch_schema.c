/* batch_schema.c - the fields of a Job (batch/v1 of Kubernetes 1.33), a JobSet (v1alpha2), and Kubeflow
 * Trainer's TrainJob and runtimes (v1alpha1, v2.3.0). Fields that muster local reads are complete; of the
 * rest only the names are known. */
#include "launcher/local/manifest/batch_job.h"
#include "launcher/local/pod/schema.h"

#define OBJECT_FIELDS(spec)                                                                                  \
    {                                                                                                        \
        SCHEMA_NEEDED("apiVersion", TEXT, NULL), SCHEMA_NEEDED("kind", TEXT, NULL),                          \
            SCHEMA_OF("metadata", OBJECT, &object_metadata_schema), SCHEMA_NEEDED("spec", OBJECT, &(spec)),  \
            SCHEMA_ROW("status", ANY),                                                                       \
    }
#define COUNT(fields) (sizeof(fields) / sizeof *(fields))

/* --- Job --- */

static const char every_pod[] = "every pod has to succeed here, as without a successPolicy";
static const char per_index[] = "failures are counted for the whole Job, not for each index";

SCHEMA_FIELDS(exit_codes, SCHEMA_ROW("containerName", TEXT), SCHEMA_NEEDED("operator", TEXT, NULL),
              SCHEMA_NEEDED("values", ANY, NULL));
SCHEMA_FIELDS(failure_rule, SCHEMA_NEEDED("action", TEXT, NULL),
              SCHEMA_OF("onExitCodes", OBJECT, &exit_codes), SCHEMA_ROW("onPodConditions", ANY));
SCHEMA_FIELDS(failure_policy, SCHEMA_OF("rules", OBJECTS, &failure_rule));
SCHEMA_FIELDS(job_spec, SCHEMA_ROW("completionMode", TEXT), SCHEMA_ROW("completions", INT32),
              SCHEMA_ROW("parallelism", INT32), SCHEMA_ROW("backoffLimit", INT32),
              SCHEMA_ROW("activeDeadlineSeconds", INT64), SCHEMA_ROW("ttlSecondsAfterFinished", INT32),
              SCHEMA_ROW("suspend", BOOL), SCHEMA_OF("podFailurePolicy", OBJECT, &failure_policy),
              SCHEMA_OF("template", OBJECT, &pod_template_schema),
              SCHEMA_NOTED("successPolicy", ANY, NULL, every_pod),
              SCHEMA_NOTED("backoffLimitPerIndex", INT32, NULL, per_index),
              SCHEMA_NOTED("maxFailedIndexes", INT32, NULL, per_index), SCHEMA_ROW("selector", ANY),
              SCHEMA_ROW("manualSelector", BOOL), SCHEMA_ROW("podReplacementPolicy", TEXT),
              SCHEMA_ROW("managedBy", TEXT));
static const struct schema_field job_fields[] = OBJECT_FIELDS(job_spec);
const struct schema batch_job_schema = {job_fields, COUNT(job_fields)};

/* --- JobSet --- */

SCHEMA_FIELDS(job_template, SCHEMA_OF("metadata", OBJECT, &object_metadata_schema),
              SCHEMA_OF("spec", OBJECT, &job_spec));
SCHEMA_FIELDS(depends_on, SCHEMA_NEEDED("name", TEXT, NULL), SCHEMA_NEEDED("status", TEXT, NULL));
SCHEMA_FIELDS(replicated_job, SCHEMA_NEEDED("name", TEXT, NULL), SCHEMA_ROW("replicas", INT32),
              SCHEMA_ROW("groupName", TEXT), SCHEMA_OF("template", OBJECT, &job_template),
              SCHEMA_OF("dependsOn", OBJECTS, &depends_on));
SCHEMA_FIELDS(network, SCHEMA_ROW("enableDNSHostnames", BOOL), SCHEMA_ROW("subdomain", TEXT),
              SCHEMA_ROW("publishNotReadyAddresses", BOOL));
SCHEMA_FIELDS(success_policy, SCHEMA_ROW("operator", TEXT), SCHEMA_ROW("targetReplicatedJobs", TEXT_LIST));
SCHEMA_FIELDS(restarts_policy, SCHEMA_ROW("maxRestarts", INT32), SCHEMA_ROW("restartStrategy", TEXT),
              SCHEMA_ROW("rules", ANY));
SCHEMA_FIELDS(startup_policy, SCHEMA_ROW("startupPolicyOrder", TEXT));
SCHEMA_FIELDS(coordinator, SCHEMA_NEEDED("replicatedJob", TEXT, NULL), SCHEMA_ROW("jobIndex", INT32),
              SCHEMA_ROW("podIndex", INT32));
SCHEMA_FIELDS(set_spec, SCHEMA_OF("replicatedJobs", OBJECTS, &replicated_job),
              SCHEMA_OF("network", OBJECT, &network), SCHEMA_OF("successPolicy", OBJECT, &success_policy),
              SCHEMA_OF("failurePolicy", OBJECT, &restarts_policy),
              SCHEMA_OF("startupPolicy", OBJECT, &startup_policy), SCHEMA_ROW("suspend", BOOL),
              SCHEMA_OF("coordinator", OBJECT, &coordinator), SCHEMA_ROW("managedBy", TEXT),
              SCHEMA_ROW("ttlSecondsAfterFinished", INT32),
              SCHEMA_NOTED("volumeClaimPolicies", ANY, NULL, "no claims are made of templates here"));
static const struct schema_field set_fields[] = OBJECT_FIELDS(set_spec);
const struct schema jobset_schema = {set_fields, COUNT(set_fields)};

/* --- TrainJob --- */

SCHEMA_FIELDS(runtime_ref, SCHEMA_NEEDED("name", TEXT, NULL), SCHEMA_ROW("apiGroup", TEXT),
              SCHEMA_ROW("kind", TEXT));
SCHEMA_FIELDS(resources, SCHEMA_ROW("limits", QUANTITY_MAP), SCHEMA_ROW("requests", QUANTITY_MAP),
              SCHEMA_ROW("claims", ANY));
SCHEMA_FIELDS(trainer, SCHEMA_ROW("image", TEXT), SCHEMA_ROW("command", TEXT_LIST),
              SCHEMA_ROW("args", TEXT_LIST), SCHEMA_ROW("env", ANY), SCHEMA_ROW("numNodes", INT32),
              SCHEMA_ROW("numProcPerNode", INT32), SCHEMA_OF("resourcesPerNode", OBJECT, &resources));
SCHEMA_FIELDS(train_spec, SCHEMA_OF("runtimeRef", OBJECT, &runtime_ref),
              SCHEMA_OF("trainer", OBJECT, &trainer),
              SCHEMA_NOTED("initializer", ANY, NULL, "initializers are not run: their data must be here"),
              SCHEMA_ROW("activeDeadlineSeconds", INT64), SCHEMA_ROW("suspend", BOOL),
              SCHEMA_ROW("managedBy", TEXT), SCHEMA_ROW("labels", TEXT_MAP),
              SCHEMA_ROW("annotations", TEXT_MAP),
              SCHEMA_NOTED("runtimePatches", ANY, NULL, "patches of the runtime are not applied"),
              SCHEMA_NOTED("podTemplateOverrides", ANY, NULL, "overrides of the runtime are not applied"));
static const struct schema_field train_fields[] = OBJECT_FIELDS(train_spec);
const struct schema trainjob_schema = {train_fields, COUNT(train_fields)};

/* --- its runtimes --- */

SCHEMA_FIELDS(injection_target, SCHEMA_NEEDED("jobName", TEXT, NULL),
              SCHEMA_ROW("containerNames", TEXT_LIST));
SCHEMA_FIELDS(injection, SCHEMA_OF("targets", OBJECTS, &injection_target));
SCHEMA_FIELDS(torch, SCHEMA_OF("envInjection", OBJECT, &injection), SCHEMA_ROW("numProcPerNode", ANY),
              SCHEMA_ROW("elasticPolicy", ANY));
SCHEMA_FIELDS(ml_policy, SCHEMA_ROW("numNodes", INT32), SCHEMA_OF("torch", OBJECT, &torch),
              SCHEMA_ROW("mpi", ANY), SCHEMA_ROW("jax", ANY), SCHEMA_ROW("xgboost", ANY),
              SCHEMA_ROW("flux", ANY));
SCHEMA_FIELDS(set_template, SCHEMA_OF("metadata", OBJECT, &object_metadata_schema),
              SCHEMA_OF("spec", OBJECT, &set_spec));
SCHEMA_FIELDS(runtime_spec, SCHEMA_OF("mlPolicy", OBJECT, &ml_policy),
              SCHEMA_NOTED("podGroupPolicy", ANY, NULL, "there is no scheduler here: all pods start at once"),
              SCHEMA_OF("template", OBJECT, &set_template));
static const struct schema_field runtime_fields[] = OBJECT_FIELDS(runtime_spec);
const struct schema training_runtime_schema = {runtime_fields, COUNT(runtime_fields)};
