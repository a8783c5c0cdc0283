/* pytorchjob_schema.c - the fields of a PyTorchJob of kubeflow.org/v1 as in its CRD (training operator
 * v1.9.4). Fields that muster local reads are complete; of the rest only the names are known. */
#include "launcher/local/manifest/schema.h"

#define ROW(name, type)                                                                                      \
    {                                                                                                        \
        name, SCHEMA_##type, NULL, false, NULL                                                               \
    }
#define OF(name, type, of)                                                                                   \
    {                                                                                                        \
        name, SCHEMA_##type, of, false, NULL                                                                 \
    }
#define NEEDED(name, type, of)                                                                               \
    {                                                                                                        \
        name, SCHEMA_##type, of, true, NULL                                                                  \
    }
#define NOTED(name, type, of, note)                                                                          \
    {                                                                                                        \
        name, SCHEMA_##type, of, false, note                                                                 \
    }
#define FIELDS(table, ...)                                                                                   \
    static const struct schema_field table##_fields[] = {__VA_ARGS__};                                       \
    static const struct schema table = {table##_fields, sizeof table##_fields / sizeof *table##_fields}

static const char no_probe[] = "probes are not executed here";

/* --- a container --- */

FIELDS(key_ref, ROW("name", TEXT), NEEDED("key", TEXT, NULL), ROW("optional", BOOL));
FIELDS(field_ref, ROW("apiVersion", TEXT), NEEDED("fieldPath", TEXT, NULL));
FIELDS(resource_ref, ROW("containerName", TEXT), NEEDED("resource", TEXT, NULL), ROW("divisor", QUANTITY));
FIELDS(value_from, OF("fieldRef", OBJECT, &field_ref), OF("resourceFieldRef", OBJECT, &resource_ref),
       OF("configMapKeyRef", OBJECT, &key_ref), OF("secretKeyRef", OBJECT, &key_ref), ROW("fileKeyRef", ANY));
FIELDS(env, NEEDED("name", TEXT, NULL), ROW("value", TEXT), OF("valueFrom", OBJECT, &value_from));
FIELDS(map_ref, ROW("name", TEXT), ROW("optional", BOOL));
FIELDS(env_from, ROW("prefix", TEXT), OF("configMapRef", OBJECT, &map_ref),
       OF("secretRef", OBJECT, &map_ref));
FIELDS(port, ROW("name", TEXT), NEEDED("containerPort", INT32, NULL), ROW("hostPort", INT32),
       ROW("hostIP", TEXT), ROW("protocol", TEXT));
FIELDS(resources, ROW("limits", QUANTITY_MAP), ROW("requests", QUANTITY_MAP), ROW("claims", ANY));
FIELDS(volume_mount, NEEDED("name", TEXT, NULL), NEEDED("mountPath", TEXT, NULL), ROW("subPath", TEXT),
       ROW("subPathExpr", TEXT), ROW("readOnly", BOOL), ROW("recursiveReadOnly", TEXT),
       ROW("mountPropagation", TEXT));
FIELDS(container, NEEDED("name", TEXT, NULL), ROW("image", TEXT), ROW("imagePullPolicy", TEXT),
       ROW("command", TEXT_LIST), ROW("args", TEXT_LIST), ROW("workingDir", TEXT), OF("env", OBJECTS, &env),
       OF("envFrom", OBJECTS, &env_from), OF("ports", OBJECTS, &port), OF("resources", OBJECT, &resources),
       OF("volumeMounts", OBJECTS, &volume_mount), ROW("volumeDevices", ANY), ROW("resizePolicy", ANY),
       NOTED("lifecycle", ANY, NULL, "hooks of containers are not run"),
       NOTED("livenessProbe", ANY, NULL, no_probe), NOTED("readinessProbe", ANY, NULL, no_probe),
       NOTED("startupProbe", ANY, NULL, no_probe),
       NOTED("securityContext", ANY, NULL, "all processes run as the calling user"),
       ROW("restartPolicy", TEXT), ROW("restartPolicyRules", ANY), ROW("stdin", BOOL), ROW("stdinOnce", BOOL),
       ROW("terminationMessagePath", TEXT), ROW("terminationMessagePolicy", TEXT), ROW("tty", BOOL));

/* --- a pod --- */

FIELDS(pod, OF("containers", OBJECTS, &container),
       NOTED("initContainers", OBJECTS, &container, "containers before the main ones are not run"),
       ROW("hostname", TEXT), ROW("subdomain", TEXT), ROW("hostnameOverride", TEXT),
       ROW("terminationGracePeriodSeconds", INT64),
       NOTED("restartPolicy", TEXT, NULL, "the template's is overwritten by the replica's"),
       NOTED("volumes", ANY, NULL, "nothing is mounted: paths are those of this machine"),
       NOTED("activeDeadlineSeconds", INT64, NULL, "a pod's is not used; runPolicy's is"),
       NOTED("securityContext", ANY, NULL, "all processes run as the calling user"), ROW("hostNetwork", BOOL),
       ROW("hostPID", BOOL), ROW("hostIPC", BOOL), ROW("hostUsers", BOOL), ROW("hostAliases", ANY),
       ROW("serviceAccountName", TEXT), ROW("serviceAccount", TEXT),
       ROW("automountServiceAccountToken", BOOL), ROW("nodeName", TEXT), ROW("nodeSelector", TEXT_MAP),
       ROW("affinity", ANY), ROW("tolerations", ANY), ROW("topologySpreadConstraints", ANY),
       ROW("schedulerName", TEXT), ROW("schedulingGates", ANY), ROW("schedulingGroup", ANY),
       ROW("priority", INT32), ROW("priorityClassName", TEXT), ROW("preemptionPolicy", TEXT),
       ROW("runtimeClassName", TEXT), ROW("imagePullSecrets", ANY), ROW("dnsPolicy", TEXT),
       ROW("dnsConfig", ANY), ROW("enableServiceLinks", BOOL), ROW("ephemeralContainers", ANY),
       ROW("os", ANY), ROW("overhead", ANY), ROW("readinessGates", ANY), ROW("resourceClaims", ANY),
       ROW("resources", ANY), ROW("setHostnameAsFQDN", BOOL), ROW("shareProcessNamespace", BOOL));
FIELDS(template_metadata, ROW("name", TEXT), ROW("namespace", TEXT), ROW("labels", TEXT_MAP),
       ROW("annotations", TEXT_MAP), ROW("finalizers", TEXT_LIST), ROW("creationTimestamp", ANY));
FIELDS(template_, OF("metadata", OBJECT, &template_metadata), OF("spec", OBJECT, &pod));

/* --- the job --- */

FIELDS(replica, ROW("replicas", INT32), ROW("restartPolicy", TEXT), OF("template", OBJECT, &template_));
FIELDS(key_value, ROW("key", TEXT), ROW("value", TEXT));
FIELDS(elastic, ROW("minReplicas", INT32), ROW("maxReplicas", INT32), ROW("maxRestarts", INT32),
       ROW("nProcPerNode", INT32), ROW("rdzvBackend", TEXT), ROW("rdzvHost", TEXT), ROW("rdzvPort", INT32),
       ROW("rdzvId", TEXT), OF("rdzvConf", OBJECTS, &key_value), ROW("standalone", BOOL),
       NOTED("metrics", ANY, NULL, "nothing scales the job here"));
FIELDS(run_policy, ROW("cleanPodPolicy", TEXT), ROW("activeDeadlineSeconds", INT64),
       ROW("backoffLimit", INT32), ROW("suspend", BOOL), ROW("managedBy", TEXT),
       ROW("ttlSecondsAfterFinished", INT32),
       NOTED("schedulingPolicy", ANY, NULL, "there is no scheduler here: all pods start at once"));
FIELDS(spec, OF("pytorchReplicaSpecs", OBJECT_MAP, &replica), ROW("nprocPerNode", TEXT),
       OF("elasticPolicy", OBJECT, &elastic), OF("runPolicy", OBJECT, &run_policy));
FIELDS(metadata, ROW("name", TEXT), ROW("generateName", TEXT), ROW("namespace", TEXT),
       ROW("labels", TEXT_MAP), ROW("annotations", TEXT_MAP), ROW("uid", TEXT), ROW("creationTimestamp", ANY),
       ROW("deletionGracePeriodSeconds", ANY), ROW("deletionTimestamp", ANY), ROW("finalizers", ANY),
       ROW("generation", ANY), ROW("managedFields", ANY), ROW("ownerReferences", ANY),
       ROW("resourceVersion", ANY), ROW("selfLink", ANY));

static const struct schema_field job_fields[] = {
    NEEDED("apiVersion", TEXT, NULL), NEEDED("kind", TEXT, NULL), OF("metadata", OBJECT, &metadata),
    NEEDED("spec", OBJECT, &spec),    ROW("status", ANY),
};
const struct schema pytorchjob_schema = {job_fields, sizeof job_fields / sizeof *job_fields};
