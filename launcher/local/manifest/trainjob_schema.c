/* trainjob_schema.c - the fields of Kubeflow Trainer's TrainJob and runtimes (v1alpha1); api.h has their
 * release. Fields that muster local reads are complete; of the rest only the names are known. */
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

/* --- TrainJob --- */

SCHEMA_FIELDS(runtime_ref, SCHEMA_NEEDED("name", NAME, NULL), SCHEMA_ROW("apiGroup", TEXT),
              SCHEMA_CHOICE("kind", "ClusterTrainingRuntime TrainingRuntime"));
SCHEMA_FIELDS(initializer_secret, SCHEMA_IDLE("name", TEXT));
SCHEMA_FIELDS(initializer_part, SCHEMA_ROW("storageUri", TEXT), SCHEMA_IDLE("env", ANY),
              SCHEMA_OF("secretRef", OBJECT, &initializer_secret));
SCHEMA_FIELDS(initializer, SCHEMA_OF("dataset", OBJECT, &initializer_part),
              SCHEMA_OF("model", OBJECT, &initializer_part));
SCHEMA_FIELDS(node_resources, SCHEMA_ROW("limits", QUANTITY_MAP), SCHEMA_ROW("requests", QUANTITY_MAP),
              SCHEMA_NOTED("claims", ANY, NULL, "devices by resource claims are not counted"));
SCHEMA_FIELDS(trainer, SCHEMA_IDLE("image", IMAGE), SCHEMA_ROW("command", TEXT_LIST),
              SCHEMA_ROW("args", TEXT_LIST), SCHEMA_OF("env", OBJECTS, &pod_env_schema),
              SCHEMA_ROW("numNodes", INT32), SCHEMA_ROW("numProcPerNode", INT32),
              SCHEMA_OF("resourcesPerNode", OBJECT, &node_resources));

/* Patches have fewer fields than the patched objects; a cluster drops others. */
SCHEMA_FIELDS(patch_metadata, SCHEMA_ROW("labels", TEXT_MAP), SCHEMA_ROW("annotations", TEXT_MAP),
              SCHEMA_IDLE("name", TEXT), SCHEMA_IDLE("namespace", TEXT),
              SCHEMA_IDLE("finalizers", TEXT_LIST));
SCHEMA_FIELDS(patch_container, SCHEMA_NEEDED("name", NAME, NULL), SCHEMA_OF("env", OBJECTS, &pod_env_schema),
              SCHEMA_OF("volumeMounts", OBJECTS, &pod_volume_mount_schema),
              SCHEMA_NOTED("securityContext", ANY, NULL, "all processes run as the calling user"));
#define PATCH_POD_FIELDS                                                                                     \
    SCHEMA_OF("containers", OBJECTS, &patch_container),                                                      \
        SCHEMA_OF("initContainers", OBJECTS, &patch_container),                                              \
        SCHEMA_OF("volumes", OBJECTS, &pod_volume_schema),                                                   \
        SCHEMA_ROW("terminationGracePeriodSeconds", INT64), SCHEMA_ROW("serviceAccountName", NAME),          \
        SCHEMA_IDLE("nodeSelector", TEXT_MAP), SCHEMA_IDLE("affinity", ANY),                                 \
        SCHEMA_IDLE("tolerations", ANY), SCHEMA_IDLE("schedulingGates", ANY),                                \
        SCHEMA_IDLE("imagePullSecrets", ANY),                                                                \
        SCHEMA_NOTED("securityContext", ANY, NULL, "all processes run as the calling user")
SCHEMA_FIELDS(patch_pod, PATCH_POD_FIELDS);
SCHEMA_FIELDS(patch_pod_template, SCHEMA_OF("metadata", OBJECT, &patch_metadata),
              SCHEMA_OF("spec", OBJECT, &patch_pod));
SCHEMA_FIELDS(patch_job_spec, SCHEMA_OF("template", OBJECT, &patch_pod_template));
SCHEMA_FIELDS(patch_job_template, SCHEMA_OF("metadata", OBJECT, &patch_metadata),
              SCHEMA_OF("spec", OBJECT, &patch_job_spec));
SCHEMA_FIELDS(patch_job, SCHEMA_NEEDED("name", NAME, NULL),
              SCHEMA_OF("template", OBJECT, &patch_job_template));
SCHEMA_FIELDS(patch_set_spec, SCHEMA_OF("replicatedJobs", OBJECTS, &patch_job));
SCHEMA_FIELDS(patch_set, SCHEMA_OF("metadata", OBJECT, &patch_metadata),
              SCHEMA_OF("spec", OBJECT, &patch_set_spec));
SCHEMA_FIELDS(patch_runtime, SCHEMA_OF("template", OBJECT, &patch_set));
SCHEMA_FIELDS(runtime_patch, SCHEMA_NEEDED("manager", TEXT, NULL), SCHEMA_IDLE("time", ANY),
              SCHEMA_OF("trainingRuntimeSpec", OBJECT, &patch_runtime));

/* Trainer 2.0 and 2.1 had the same under other names. */
SCHEMA_FIELDS(target_job, SCHEMA_NEEDED("name", NAME, NULL));
SCHEMA_FIELDS(pod_override, SCHEMA_OF("targetJobs", OBJECTS, &target_job), SCHEMA_IDLE("time", ANY),
              SCHEMA_IDLE("manager", TEXT), SCHEMA_OF("metadata", OBJECT, &patch_metadata),
              SCHEMA_OF("spec", OBJECT, &patch_pod));
SCHEMA_FIELDS(pod_spec_override, SCHEMA_OF("targetJobs", OBJECTS, &target_job), PATCH_POD_FIELDS);

SCHEMA_FIELDS(train_spec, SCHEMA_OF("runtimeRef", OBJECT, &runtime_ref),
              SCHEMA_OF("trainer", OBJECT, &trainer), SCHEMA_OF("initializer", OBJECT, &initializer),
              SCHEMA_ROW("activeDeadlineSeconds", INT64), SCHEMA_ROW("suspend", BOOL),
              SCHEMA_ROW("managedBy", TEXT), SCHEMA_IDLE("labels", TEXT_MAP),
              SCHEMA_IDLE("annotations", TEXT_MAP), SCHEMA_OF("runtimePatches", OBJECTS, &runtime_patch),
              SCHEMA_OF("podTemplateOverrides", OBJECTS, &pod_override),
              SCHEMA_OF("podSpecOverrides", OBJECTS, &pod_spec_override));
static const struct schema_field train_fields[] = OBJECT_FIELDS(train_spec);
const struct schema trainjob_schema = {train_fields, COUNT(train_fields), API_TRAINJOB};

/* --- its runtimes --- */

SCHEMA_FIELDS(injection_target, SCHEMA_NEEDED("jobName", NAME, NULL),
              SCHEMA_ROW("containerNames", TEXT_LIST));
SCHEMA_FIELDS(injection, SCHEMA_OF("targets", OBJECTS, &injection_target));
SCHEMA_FIELDS(torch, SCHEMA_OF("envInjection", OBJECT, &injection), SCHEMA_IDLE("numProcPerNode", ANY),
              SCHEMA_NOTED("elasticPolicy", ANY, NULL, "no release of Trainer has acted on it"));
SCHEMA_FIELDS(mpi, SCHEMA_ROW("numProcPerNode", INT32), SCHEMA_CHOICE("mpiImplementation", "OpenMPI"),
              SCHEMA_IDLE("sshAuthMountPath", TEXT), SCHEMA_ROW("runLauncherAsNode", BOOL));
SCHEMA_FIELDS(ml_policy, SCHEMA_ROW("numNodes", INT32), SCHEMA_OF("torch", OBJECT, &torch),
              SCHEMA_OF("mpi", OBJECT, &mpi),
              SCHEMA_REFUSE("jax", ANY, NULL, "its variables (JAX_COORDINATOR_ADDRESS ...) are not set here"),
              SCHEMA_REFUSE("xgboost", ANY, NULL, "its variables (DMLC_TRACKER_URI ...) are not set here"),
              SCHEMA_REFUSE("flux", ANY, NULL,
                            "Flux starts the processes of all nodes, and is not set up here"));
SCHEMA_FIELDS(set_template, SCHEMA_OF("metadata", OBJECT, &object_metadata_schema),
              SCHEMA_OF("spec", OBJECT, &jobset_spec_schema));
SCHEMA_FIELDS(runtime_spec, SCHEMA_OF("mlPolicy", OBJECT, &ml_policy),
              SCHEMA_NOTED("podGroupPolicy", ANY, NULL, "there is no scheduler here: all pods start at once"),
              SCHEMA_OF("template", OBJECT, &set_template));
static const struct schema_field runtime_fields[] = OBJECT_FIELDS(runtime_spec);
const struct schema training_runtime_schema = {runtime_fields, COUNT(runtime_fields), API_TRAINJOB};
