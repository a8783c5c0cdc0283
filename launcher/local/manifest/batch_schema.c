/* batch_schema.c - the fields of a Job (batch/v1) and a JobSet (v1alpha2); api.h has their releases. Fields
 * that muster local reads are complete; of the rest only the names are known. */
#include "launcher/local/manifest/api.h"
#include "launcher/local/manifest/batch_job.h"
#include "launcher/local/pod/schema.h"

#define OBJECT_FIELDS(spec)                                                                                  \
    {                                                                                                        \
        SCHEMA_ROW("apiVersion", TEXT), SCHEMA_ROW("kind", TEXT),                                            \
            SCHEMA_OF("metadata", OBJECT, &object_metadata_schema), SCHEMA_NEEDED("spec", OBJECT, &(spec)),  \
            SCHEMA_IDLE("status", ANY),                                                                      \
    }
#define COUNT(fields) (sizeof(fields) / sizeof *(fields))

/* --- Job --- */

SCHEMA_FIELDS(exit_codes, SCHEMA_ROW("containerName", NAME), SCHEMA_CHOICE("operator", "In NotIn"),
              SCHEMA_NEEDED("values", ANY, NULL));
SCHEMA_FIELDS(failure_rule, SCHEMA_NEEDED("action", TEXT, NULL),
              SCHEMA_OF("onExitCodes", OBJECT, &exit_codes),
              SCHEMA_IDLE("onPodConditions", ANY)); /* no disruption of a pod comes about here */
SCHEMA_FIELDS(failure_policy, SCHEMA_OF("rules", OBJECTS, &failure_rule));
SCHEMA_FIELDS(success_rule, SCHEMA_ROW("succeededIndexes", TEXT), SCHEMA_ROW("succeededCount", INT32));
SCHEMA_FIELDS(success, SCHEMA_OF("rules", OBJECTS, &success_rule));
SCHEMA_FIELDS(job_spec, SCHEMA_CHOICE("completionMode", "Indexed NonIndexed"),
              SCHEMA_ROW("completions", INT32), SCHEMA_ROW("parallelism", INT32),
              SCHEMA_ROW("backoffLimit", INT32), SCHEMA_ROW("activeDeadlineSeconds", INT64),
              SCHEMA_ROW("ttlSecondsAfterFinished", INT32), SCHEMA_ROW("suspend", BOOL),
              SCHEMA_OF("podFailurePolicy", OBJECT, &failure_policy),
              SCHEMA_OF("template", OBJECT, &pod_template_schema),
              SCHEMA_OF("successPolicy", OBJECT, &success), SCHEMA_ROW("backoffLimitPerIndex", INT32),
              SCHEMA_ROW("maxFailedIndexes", INT32), SCHEMA_IDLE("selector", ANY),
              SCHEMA_IDLE("manualSelector", BOOL), SCHEMA_IDLE("podReplacementPolicy", TEXT),
              SCHEMA_ROW("managedBy", TEXT));
static const struct schema_field job_fields[] = OBJECT_FIELDS(job_spec);
const struct schema batch_job_schema = {job_fields, COUNT(job_fields), API_JOB};

/* --- JobSet --- */

SCHEMA_FIELDS(job_template, SCHEMA_OF("metadata", OBJECT, &object_metadata_schema),
              SCHEMA_OF("spec", OBJECT, &job_spec));
SCHEMA_FIELDS(depends_on, SCHEMA_NEEDED("name", NAME, NULL), SCHEMA_NEEDED("status", TEXT, NULL));
SCHEMA_FIELDS(replicated_job, SCHEMA_NEEDED("name", NAME, NULL), SCHEMA_ROW("replicas", INT32),
              SCHEMA_ROW("groupName", NAME), SCHEMA_OF("template", OBJECT, &job_template),
              SCHEMA_OF("dependsOn", OBJECTS, &depends_on));
SCHEMA_FIELDS(network, SCHEMA_ROW("enableDNSHostnames", BOOL), SCHEMA_ROW("subdomain", NAME),
              SCHEMA_IDLE("publishNotReadyAddresses", BOOL));
SCHEMA_FIELDS(success_policy, SCHEMA_CHOICE("operator", "All Any"),
              SCHEMA_ROW("targetReplicatedJobs", TEXT_LIST));
SCHEMA_FIELDS(restart_rule, SCHEMA_ROW("name", NAME), SCHEMA_NEEDED("action", NAME, NULL),
              SCHEMA_ROW("onJobFailureReasons", TEXT_LIST),
              SCHEMA_ROW("onJobFailureMessagePatterns", TEXT_LIST),
              SCHEMA_ROW("targetReplicatedJobs", TEXT_LIST));
SCHEMA_FIELDS(restarts_policy, SCHEMA_ROW("maxRestarts", INT32), SCHEMA_ROW("restartStrategy", TEXT),
              SCHEMA_OF("rules", OBJECTS, &restart_rule));
SCHEMA_FIELDS(claim_retention, SCHEMA_IDLE("whenDeleted", TEXT));
SCHEMA_FIELDS(claim_template, SCHEMA_IDLE("apiVersion", TEXT), SCHEMA_IDLE("kind", TEXT),
              SCHEMA_OF("metadata", OBJECT, &object_metadata_schema), SCHEMA_IDLE("spec", ANY),
              SCHEMA_IDLE("status", ANY));
SCHEMA_FIELDS(claim_policy, SCHEMA_OF("templates", OBJECTS, &claim_template),
              SCHEMA_OF("retentionPolicy", OBJECT, &claim_retention));
SCHEMA_FIELDS(startup_policy, SCHEMA_CHOICE("startupPolicyOrder", "AnyOrder InOrder"));
SCHEMA_FIELDS(coordinator, SCHEMA_NEEDED("replicatedJob", TEXT, NULL), SCHEMA_ROW("jobIndex", INT32),
              SCHEMA_ROW("podIndex", INT32));
static const struct schema_field set_spec_fields[] = {
    SCHEMA_OF("replicatedJobs", OBJECTS, &replicated_job),
    SCHEMA_OF("network", OBJECT, &network),
    SCHEMA_OF("successPolicy", OBJECT, &success_policy),
    SCHEMA_OF("failurePolicy", OBJECT, &restarts_policy),
    SCHEMA_OF("startupPolicy", OBJECT, &startup_policy),
    SCHEMA_ROW("suspend", BOOL),
    SCHEMA_OF("coordinator", OBJECT, &coordinator),
    SCHEMA_ROW("managedBy", TEXT),
    SCHEMA_ROW("ttlSecondsAfterFinished", INT32),
    SCHEMA_OF("volumeClaimPolicies", OBJECTS, &claim_policy)};
const struct schema jobset_spec_schema = {set_spec_fields, COUNT(set_spec_fields), NULL};
static const struct schema_field set_fields[] = OBJECT_FIELDS(jobset_spec_schema);
const struct schema jobset_schema = {set_fields, COUNT(set_fields), API_JOBSET};
