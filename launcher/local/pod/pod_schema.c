/* pod_schema.c - the fields of a pod template and of an object's metadata, as in Kubernetes 1.33. Fields that
 * muster local reads are complete; of the rest only the names are known. */
#include "launcher/local/pod/schema.h"

static const char no_probe[] = "probes are not executed here";

/* --- a container --- */

SCHEMA_FIELDS(key_ref, SCHEMA_ROW("name", TEXT), SCHEMA_NEEDED("key", TEXT, NULL),
              SCHEMA_ROW("optional", BOOL));
SCHEMA_FIELDS(field_ref, SCHEMA_ROW("apiVersion", TEXT), SCHEMA_NEEDED("fieldPath", TEXT, NULL));
SCHEMA_FIELDS(resource_ref, SCHEMA_ROW("containerName", TEXT), SCHEMA_NEEDED("resource", TEXT, NULL),
              SCHEMA_ROW("divisor", QUANTITY));
SCHEMA_FIELDS(value_from, SCHEMA_OF("fieldRef", OBJECT, &field_ref),
              SCHEMA_OF("resourceFieldRef", OBJECT, &resource_ref),
              SCHEMA_OF("configMapKeyRef", OBJECT, &key_ref), SCHEMA_OF("secretKeyRef", OBJECT, &key_ref),
              SCHEMA_ROW("fileKeyRef", ANY));
SCHEMA_FIELDS(env, SCHEMA_NEEDED("name", TEXT, NULL), SCHEMA_ROW("value", TEXT),
              SCHEMA_OF("valueFrom", OBJECT, &value_from));
SCHEMA_FIELDS(map_ref, SCHEMA_ROW("name", TEXT), SCHEMA_ROW("optional", BOOL));
SCHEMA_FIELDS(env_from, SCHEMA_ROW("prefix", TEXT), SCHEMA_OF("configMapRef", OBJECT, &map_ref),
              SCHEMA_OF("secretRef", OBJECT, &map_ref));
SCHEMA_FIELDS(port, SCHEMA_ROW("name", TEXT), SCHEMA_NEEDED("containerPort", INT32, NULL),
              SCHEMA_ROW("hostPort", INT32), SCHEMA_ROW("hostIP", TEXT), SCHEMA_ROW("protocol", TEXT));
SCHEMA_FIELDS(resources, SCHEMA_ROW("limits", QUANTITY_MAP), SCHEMA_ROW("requests", QUANTITY_MAP),
              SCHEMA_ROW("claims", ANY));
SCHEMA_FIELDS(volume_mount, SCHEMA_NEEDED("name", TEXT, NULL), SCHEMA_NEEDED("mountPath", TEXT, NULL),
              SCHEMA_ROW("subPath", TEXT), SCHEMA_ROW("subPathExpr", TEXT), SCHEMA_ROW("readOnly", BOOL),
              SCHEMA_ROW("recursiveReadOnly", TEXT), SCHEMA_ROW("mountPropagation", TEXT));
SCHEMA_FIELDS(container, SCHEMA_NEEDED("name", TEXT, NULL), SCHEMA_ROW("image", TEXT),
              SCHEMA_ROW("imagePullPolicy", TEXT), SCHEMA_ROW("command", TEXT_LIST),
              SCHEMA_ROW("args", TEXT_LIST), SCHEMA_ROW("workingDir", TEXT), SCHEMA_OF("env", OBJECTS, &env),
              SCHEMA_OF("envFrom", OBJECTS, &env_from), SCHEMA_OF("ports", OBJECTS, &port),
              SCHEMA_OF("resources", OBJECT, &resources), SCHEMA_OF("volumeMounts", OBJECTS, &volume_mount),
              SCHEMA_ROW("volumeDevices", ANY), SCHEMA_ROW("resizePolicy", ANY),
              SCHEMA_NOTED("lifecycle", ANY, NULL, "hooks of containers are not run"),
              SCHEMA_NOTED("livenessProbe", ANY, NULL, no_probe),
              SCHEMA_NOTED("readinessProbe", ANY, NULL, no_probe),
              SCHEMA_NOTED("startupProbe", ANY, NULL, no_probe),
              SCHEMA_NOTED("securityContext", ANY, NULL, "all processes run as the calling user"),
              SCHEMA_ROW("restartPolicy", TEXT), SCHEMA_ROW("restartPolicyRules", ANY),
              SCHEMA_ROW("stdin", BOOL), SCHEMA_ROW("stdinOnce", BOOL),
              SCHEMA_ROW("terminationMessagePath", TEXT), SCHEMA_ROW("terminationMessagePolicy", TEXT),
              SCHEMA_ROW("tty", BOOL));

/* --- volumes --- */

SCHEMA_FIELDS(key_to_path, SCHEMA_NEEDED("key", TEXT, NULL), SCHEMA_NEEDED("path", TEXT, NULL),
              SCHEMA_ROW("mode", INT32));
SCHEMA_FIELDS(config_map_volume, SCHEMA_ROW("name", TEXT), SCHEMA_ROW("defaultMode", INT32),
              SCHEMA_OF("items", OBJECTS, &key_to_path), SCHEMA_ROW("optional", BOOL));
SCHEMA_FIELDS(secret_volume, SCHEMA_ROW("secretName", TEXT), SCHEMA_ROW("defaultMode", INT32),
              SCHEMA_OF("items", OBJECTS, &key_to_path), SCHEMA_ROW("optional", BOOL));
SCHEMA_FIELDS(field_to_path, SCHEMA_NEEDED("path", TEXT, NULL), SCHEMA_ROW("mode", INT32),
              SCHEMA_OF("fieldRef", OBJECT, &field_ref),
              SCHEMA_OF("resourceFieldRef", OBJECT, &resource_ref));
SCHEMA_FIELDS(fields_volume, SCHEMA_ROW("defaultMode", INT32), SCHEMA_OF("items", OBJECTS, &field_to_path));
SCHEMA_FIELDS(projection, SCHEMA_OF("configMap", OBJECT, &config_map_volume),
              SCHEMA_OF("secret", OBJECT, &config_map_volume),
              SCHEMA_OF("downwardAPI", OBJECT, &fields_volume), SCHEMA_ROW("serviceAccountToken", ANY),
              SCHEMA_ROW("clusterTrustBundle", ANY), SCHEMA_ROW("podCertificate", ANY));
SCHEMA_FIELDS(projected_volume, SCHEMA_ROW("defaultMode", INT32), SCHEMA_OF("sources", OBJECTS, &projection));
SCHEMA_FIELDS(empty_volume, SCHEMA_ROW("medium", TEXT), SCHEMA_ROW("sizeLimit", QUANTITY));
SCHEMA_FIELDS(claim_volume, SCHEMA_NEEDED("claimName", TEXT, NULL), SCHEMA_ROW("readOnly", BOOL));
SCHEMA_FIELDS(host_volume, SCHEMA_NEEDED("path", TEXT, NULL), SCHEMA_ROW("type", TEXT));
SCHEMA_FIELDS(volume, SCHEMA_NEEDED("name", TEXT, NULL), SCHEMA_OF("configMap", OBJECT, &config_map_volume),
              SCHEMA_OF("secret", OBJECT, &secret_volume), SCHEMA_OF("downwardAPI", OBJECT, &fields_volume),
              SCHEMA_OF("projected", OBJECT, &projected_volume), SCHEMA_OF("emptyDir", OBJECT, &empty_volume),
              SCHEMA_OF("persistentVolumeClaim", OBJECT, &claim_volume),
              SCHEMA_OF("hostPath", OBJECT, &host_volume), SCHEMA_ROW("ephemeral", ANY),
              SCHEMA_ROW("csi", ANY), SCHEMA_ROW("nfs", ANY), SCHEMA_ROW("image", ANY),
              SCHEMA_ROW("iscsi", ANY), SCHEMA_ROW("fc", ANY), SCHEMA_ROW("cephfs", ANY),
              SCHEMA_ROW("rbd", ANY), SCHEMA_ROW("glusterfs", ANY), SCHEMA_ROW("gitRepo", ANY),
              SCHEMA_ROW("flexVolume", ANY), SCHEMA_ROW("portworxVolume", ANY),
              SCHEMA_ROW("gcePersistentDisk", ANY), SCHEMA_ROW("awsElasticBlockStore", ANY),
              SCHEMA_ROW("azureDisk", ANY), SCHEMA_ROW("azureFile", ANY), SCHEMA_ROW("vsphereVolume", ANY));

/* --- a pod --- */

SCHEMA_FIELDS(
    pod, SCHEMA_OF("containers", OBJECTS, &container),
    SCHEMA_NOTED("initContainers", OBJECTS, &container, "containers before the main ones are not run"),
    SCHEMA_ROW("hostname", TEXT), SCHEMA_ROW("subdomain", TEXT), SCHEMA_ROW("hostnameOverride", TEXT),
    SCHEMA_ROW("terminationGracePeriodSeconds", INT64), SCHEMA_ROW("restartPolicy", TEXT),
    SCHEMA_OF("volumes", OBJECTS, &volume),
    SCHEMA_NOTED("activeDeadlineSeconds", INT64, NULL, "a pod's is not used; runPolicy's is"),
    SCHEMA_NOTED("securityContext", ANY, NULL, "all processes run as the calling user"),
    SCHEMA_ROW("hostNetwork", BOOL), SCHEMA_ROW("hostPID", BOOL), SCHEMA_ROW("hostIPC", BOOL),
    SCHEMA_ROW("hostUsers", BOOL), SCHEMA_ROW("hostAliases", ANY), SCHEMA_ROW("serviceAccountName", TEXT),
    SCHEMA_ROW("serviceAccount", TEXT), SCHEMA_ROW("automountServiceAccountToken", BOOL),
    SCHEMA_ROW("nodeName", TEXT), SCHEMA_ROW("nodeSelector", TEXT_MAP), SCHEMA_ROW("affinity", ANY),
    SCHEMA_ROW("tolerations", ANY), SCHEMA_ROW("topologySpreadConstraints", ANY),
    SCHEMA_ROW("schedulerName", TEXT), SCHEMA_ROW("schedulingGates", ANY), SCHEMA_ROW("schedulingGroup", ANY),
    SCHEMA_ROW("priority", INT32), SCHEMA_ROW("priorityClassName", TEXT),
    SCHEMA_ROW("preemptionPolicy", TEXT), SCHEMA_ROW("runtimeClassName", TEXT),
    SCHEMA_ROW("imagePullSecrets", ANY), SCHEMA_ROW("dnsPolicy", TEXT), SCHEMA_ROW("dnsConfig", ANY),
    SCHEMA_ROW("enableServiceLinks", BOOL), SCHEMA_ROW("ephemeralContainers", ANY), SCHEMA_ROW("os", ANY),
    SCHEMA_ROW("overhead", ANY), SCHEMA_ROW("readinessGates", ANY), SCHEMA_ROW("resourceClaims", ANY),
    SCHEMA_ROW("resources", ANY), SCHEMA_ROW("setHostnameAsFQDN", BOOL),
    SCHEMA_ROW("shareProcessNamespace", BOOL));
SCHEMA_FIELDS(template_metadata, SCHEMA_ROW("name", TEXT), SCHEMA_ROW("namespace", TEXT),
              SCHEMA_ROW("labels", TEXT_MAP), SCHEMA_ROW("annotations", TEXT_MAP),
              SCHEMA_ROW("finalizers", TEXT_LIST), SCHEMA_ROW("creationTimestamp", ANY));
/* --- what others use --- */

static const struct schema_field template_fields[] = {SCHEMA_OF("metadata", OBJECT, &template_metadata),
                                                      SCHEMA_OF("spec", OBJECT, &pod)};
const struct schema pod_template_schema = {template_fields, sizeof template_fields / sizeof *template_fields};

static const struct schema_field metadata_fields[] = {SCHEMA_ROW("name", TEXT),
                                                      SCHEMA_ROW("generateName", TEXT),
                                                      SCHEMA_ROW("namespace", TEXT),
                                                      SCHEMA_ROW("labels", TEXT_MAP),
                                                      SCHEMA_ROW("annotations", TEXT_MAP),
                                                      SCHEMA_ROW("uid", TEXT),
                                                      SCHEMA_ROW("creationTimestamp", ANY),
                                                      SCHEMA_ROW("deletionGracePeriodSeconds", ANY),
                                                      SCHEMA_ROW("deletionTimestamp", ANY),
                                                      SCHEMA_ROW("finalizers", ANY),
                                                      SCHEMA_ROW("generation", ANY),
                                                      SCHEMA_ROW("managedFields", ANY),
                                                      SCHEMA_ROW("ownerReferences", ANY),
                                                      SCHEMA_ROW("resourceVersion", ANY),
                                                      SCHEMA_ROW("selfLink", ANY)};
const struct schema object_metadata_schema = {metadata_fields,
                                              sizeof metadata_fields / sizeof *metadata_fields};
