/* pytorchjob_schema.c - the fields of a PyTorchJob of kubeflow.org/v1 as in the CRD of the release in api.h.
 * Fields that muster local reads are complete; of the rest only the names are known. */
#include "launcher/local/manifest/api.h"
#include "launcher/local/manifest/pytorchjob.h"
#include "launcher/local/pod/schema.h"

/* --- the job --- */

SCHEMA_FIELDS(replica, SCHEMA_ROW("replicas", INT32), SCHEMA_ROW("restartPolicy", TEXT),
              SCHEMA_OF("template", OBJECT, &pod_template_schema));
SCHEMA_FIELDS(key_value, SCHEMA_ROW("key", TEXT), SCHEMA_ROW("value", TEXT));
SCHEMA_FIELDS(elastic, SCHEMA_ROW("minReplicas", INT32), SCHEMA_ROW("maxReplicas", INT32),
              SCHEMA_ROW("maxRestarts", INT32), SCHEMA_ROW("nProcPerNode", INT32),
              SCHEMA_ROW("rdzvBackend", TEXT), SCHEMA_ROW("rdzvHost", TEXT), SCHEMA_ROW("rdzvPort", INT32),
              SCHEMA_ROW("rdzvId", TEXT), SCHEMA_OF("rdzvConf", OBJECTS, &key_value),
              SCHEMA_ROW("standalone", BOOL),
              SCHEMA_NOTED("metrics", ANY, NULL, "nothing scales the job here"));
SCHEMA_FIELDS(scheduling, SCHEMA_IDLE("minAvailable", INT32), SCHEMA_IDLE("minResources", QUANTITY_MAP),
              SCHEMA_IDLE("priorityClass", TEXT), SCHEMA_IDLE("queue", TEXT),
              SCHEMA_IDLE("scheduleTimeoutSeconds", INT32));
SCHEMA_FIELDS(run_policy, SCHEMA_ROW("cleanPodPolicy", TEXT), SCHEMA_ROW("activeDeadlineSeconds", INT64),
              SCHEMA_ROW("backoffLimit", INT32), SCHEMA_ROW("suspend", BOOL), SCHEMA_ROW("managedBy", TEXT),
              SCHEMA_ROW("ttlSecondsAfterFinished", INT32),
              SCHEMA_NOTED("schedulingPolicy", OBJECT, &scheduling,
                           "there is no scheduler here: all pods start at once"));
SCHEMA_FIELDS(spec, SCHEMA_OF("pytorchReplicaSpecs", OBJECT_MAP, &replica), SCHEMA_ROW("nprocPerNode", TEXT),
              SCHEMA_OF("elasticPolicy", OBJECT, &elastic), SCHEMA_OF("runPolicy", OBJECT, &run_policy));
static const struct schema_field job_fields[] = {
    SCHEMA_ROW("apiVersion", TEXT),
    SCHEMA_ROW("kind", TEXT),
    SCHEMA_OF("metadata", OBJECT, &object_metadata_schema),
    SCHEMA_NEEDED("spec", OBJECT, &spec),
    SCHEMA_IDLE("status", ANY),
};
const struct schema pytorchjob_schema = {job_fields, sizeof job_fields / sizeof *job_fields, API_PYTORCHJOB};
