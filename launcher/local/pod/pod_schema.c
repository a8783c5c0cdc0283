/* pod_schema.c - the fields of a pod template and of an object's metadata, as in Kubernetes 1.36. Fields that
 * muster local reads are complete; of the rest only the names are known. */
#include "launcher/local/pod/schema.h"

static const char no_probe[] = "probes are not executed here",
                  no_user[] = "all processes run as the calling user";

/* --- a container --- */

SCHEMA_FIELDS(key_ref, SCHEMA_ROW("name", NAME), SCHEMA_NEEDED("key", NAME, NULL),
              SCHEMA_ROW("optional", BOOL));
SCHEMA_FIELDS(field_ref, SCHEMA_IDLE("apiVersion", TEXT), SCHEMA_NEEDED("fieldPath", NAME, NULL));
SCHEMA_FIELDS(resource_ref, SCHEMA_ROW("containerName", TEXT), SCHEMA_NEEDED("resource", TEXT, NULL),
              SCHEMA_ROW("divisor", QUANTITY));
SCHEMA_FIELDS(value_from, SCHEMA_OF("fieldRef", OBJECT, &field_ref),
              SCHEMA_OF("resourceFieldRef", OBJECT, &resource_ref),
              SCHEMA_OF("configMapKeyRef", OBJECT, &key_ref), SCHEMA_OF("secretKeyRef", OBJECT, &key_ref),
              SCHEMA_REFUSE("fileKeyRef", ANY, NULL,
                            "a container before the main one writes the file, and none is run"));
SCHEMA_FIELDS(env, SCHEMA_NEEDED("name", TEXT, NULL), SCHEMA_ROW("value", VALUE),
              SCHEMA_OF("valueFrom", OBJECT, &value_from));
SCHEMA_FIELDS(map_ref, SCHEMA_ROW("name", NAME), SCHEMA_ROW("optional", BOOL));
SCHEMA_FIELDS(env_from, SCHEMA_ROW("prefix", TEXT), SCHEMA_OF("configMapRef", OBJECT, &map_ref),
              SCHEMA_OF("secretRef", OBJECT, &map_ref));
SCHEMA_FIELDS(port, SCHEMA_ROW("name", TEXT), SCHEMA_NEEDED("containerPort", INT32, NULL),
              SCHEMA_IDLE("hostPort", INT32), SCHEMA_IDLE("hostIP", TEXT), SCHEMA_IDLE("protocol", TEXT));
SCHEMA_FIELDS(claim_ref, SCHEMA_NEEDED("name", NAME, NULL), SCHEMA_ROW("request", TEXT));
SCHEMA_FIELDS(resources, SCHEMA_ROW("limits", QUANTITY_MAP), SCHEMA_ROW("requests", QUANTITY_MAP),
              SCHEMA_OF("claims", OBJECTS, &claim_ref));
SCHEMA_FIELDS(volume_mount, SCHEMA_NEEDED("name", NAME, NULL), SCHEMA_NEEDED("mountPath", NAME, NULL),
              SCHEMA_ROW("subPath", TEXT), SCHEMA_ROW("subPathExpr", TEXT), SCHEMA_ROW("readOnly", BOOL),
              SCHEMA_IDLE("recursiveReadOnly", TEXT), SCHEMA_IDLE("mountPropagation", TEXT));
SCHEMA_FIELDS(hooks,
              SCHEMA_REFUSE("postStart", ANY, NULL,
                            "the hook is not run, and the container may need its preparations"),
              SCHEMA_NOTED("preStop", ANY, NULL, "the hook is not run before a pod is sent SIGTERM"),
              SCHEMA_NOTED("stopSignal", TEXT, NULL, "a pod is sent SIGTERM"));
SCHEMA_FIELDS(
    container, SCHEMA_NEEDED("name", NAME, NULL), SCHEMA_ROW("image", IMAGE),
    SCHEMA_IDLE("imagePullPolicy", TEXT), SCHEMA_ROW("command", TEXT_LIST), SCHEMA_ROW("args", TEXT_LIST),
    SCHEMA_ROW("workingDir", TEXT), SCHEMA_OF("env", OBJECTS, &env), SCHEMA_OF("envFrom", OBJECTS, &env_from),
    SCHEMA_OF("ports", OBJECTS, &port), SCHEMA_OF("resources", OBJECT, &resources),
    SCHEMA_OF("volumeMounts", OBJECTS, &volume_mount),
    SCHEMA_REFUSE("volumeDevices", ANY, NULL, "block devices of volumes are not given to containers"),
    SCHEMA_IDLE("resizePolicy", ANY), SCHEMA_OF("lifecycle", OBJECT, &hooks),
    SCHEMA_NOTED("livenessProbe", ANY, NULL, no_probe), SCHEMA_NOTED("readinessProbe", ANY, NULL, no_probe),
    SCHEMA_NOTED("startupProbe", ANY, NULL, no_probe), SCHEMA_NOTED("securityContext", ANY, NULL, no_user),
    SCHEMA_ROW("restartPolicy", TEXT),
    SCHEMA_REFUSE("restartPolicyRules", ANY, NULL, "its containers restart by the pod's policy alone"),
    SCHEMA_IDLE("stdin", BOOL), SCHEMA_IDLE("stdinOnce", BOOL), SCHEMA_IDLE("terminationMessagePath", TEXT),
    SCHEMA_IDLE("terminationMessagePolicy", TEXT), SCHEMA_IDLE("tty", BOOL));

/* --- volumes --- */

SCHEMA_FIELDS(key_to_path, SCHEMA_NEEDED("key", TEXT, NULL), SCHEMA_NEEDED("path", TEXT, NULL),
              SCHEMA_ROW("mode", INT32));
SCHEMA_FIELDS(config_map_volume, SCHEMA_ROW("name", NAME), SCHEMA_ROW("defaultMode", INT32),
              SCHEMA_OF("items", OBJECTS, &key_to_path), SCHEMA_ROW("optional", BOOL));
SCHEMA_FIELDS(secret_volume, SCHEMA_ROW("secretName", NAME), SCHEMA_ROW("defaultMode", INT32),
              SCHEMA_OF("items", OBJECTS, &key_to_path), SCHEMA_ROW("optional", BOOL));
SCHEMA_FIELDS(field_to_path, SCHEMA_NEEDED("path", TEXT, NULL), SCHEMA_ROW("mode", INT32),
              SCHEMA_OF("fieldRef", OBJECT, &field_ref),
              SCHEMA_OF("resourceFieldRef", OBJECT, &resource_ref));
SCHEMA_FIELDS(fields_volume, SCHEMA_ROW("defaultMode", INT32), SCHEMA_OF("items", OBJECTS, &field_to_path));
SCHEMA_FIELDS(projected_data, SCHEMA_ROW("name", NAME), SCHEMA_OF("items", OBJECTS, &key_to_path),
              SCHEMA_ROW("optional", BOOL));
SCHEMA_FIELDS(projected_fields, SCHEMA_OF("items", OBJECTS, &field_to_path));
SCHEMA_FIELDS(projection, SCHEMA_OF("configMap", OBJECT, &projected_data),
              SCHEMA_OF("secret", OBJECT, &projected_data),
              SCHEMA_OF("downwardAPI", OBJECT, &projected_fields), SCHEMA_BY_NAME("serviceAccountToken"),
              SCHEMA_BY_NAME("clusterTrustBundle"), SCHEMA_BY_NAME("podCertificate"));
SCHEMA_FIELDS(projected_volume, SCHEMA_ROW("defaultMode", INT32), SCHEMA_OF("sources", OBJECTS, &projection));
SCHEMA_FIELDS(empty_volume, SCHEMA_ROW("medium", TEXT), SCHEMA_ROW("sizeLimit", QUANTITY));
SCHEMA_FIELDS(claim_volume, SCHEMA_NEEDED("claimName", NAME, NULL), SCHEMA_ROW("readOnly", BOOL));
SCHEMA_FIELDS(host_volume, SCHEMA_NEEDED("path", NAME, NULL), SCHEMA_ROW("type", TEXT));
SCHEMA_FIELDS(volume, SCHEMA_NEEDED("name", NAME, NULL), SCHEMA_OF("configMap", OBJECT, &config_map_volume),
              SCHEMA_OF("secret", OBJECT, &secret_volume), SCHEMA_OF("downwardAPI", OBJECT, &fields_volume),
              SCHEMA_OF("projected", OBJECT, &projected_volume), SCHEMA_OF("emptyDir", OBJECT, &empty_volume),
              SCHEMA_OF("persistentVolumeClaim", OBJECT, &claim_volume),
              SCHEMA_OF("hostPath", OBJECT, &host_volume), SCHEMA_ROW("ephemeral", ANY),
              SCHEMA_BY_NAME("csi"), SCHEMA_BY_NAME("nfs"), SCHEMA_BY_NAME("image"), SCHEMA_BY_NAME("iscsi"),
              SCHEMA_BY_NAME("fc"), SCHEMA_BY_NAME("cephfs"), SCHEMA_BY_NAME("cinder"), SCHEMA_BY_NAME("rbd"),
              SCHEMA_BY_NAME("glusterfs"), SCHEMA_BY_NAME("flocker"), SCHEMA_BY_NAME("gitRepo"),
              SCHEMA_BY_NAME("flexVolume"), SCHEMA_BY_NAME("portworxVolume"),
              SCHEMA_BY_NAME("gcePersistentDisk"), SCHEMA_BY_NAME("awsElasticBlockStore"),
              SCHEMA_BY_NAME("azureDisk"), SCHEMA_BY_NAME("azureFile"),
              SCHEMA_BY_NAME("photonPersistentDisk"), SCHEMA_BY_NAME("quobyte"), SCHEMA_BY_NAME("scaleIO"),
              SCHEMA_BY_NAME("storageos"), SCHEMA_BY_NAME("vsphereVolume"));

/* --- a pod --- */

SCHEMA_FIELDS(host_alias, SCHEMA_NEEDED("ip", NAME, NULL), SCHEMA_ROW("hostnames", TEXT_LIST));
SCHEMA_FIELDS(resource_claim, SCHEMA_NEEDED("name", NAME, NULL), SCHEMA_ROW("resourceClaimName", NAME),
              SCHEMA_ROW("resourceClaimTemplateName", NAME));
SCHEMA_FIELDS(
    pod, SCHEMA_OF("containers", OBJECTS, &container), SCHEMA_OF("initContainers", OBJECTS, &container),
    SCHEMA_ROW("hostname", NAME), SCHEMA_ROW("subdomain", NAME), SCHEMA_ROW("hostnameOverride", NAME),
    SCHEMA_ROW("terminationGracePeriodSeconds", INT64), SCHEMA_ROW("restartPolicy", NAME),
    SCHEMA_OF("volumes", OBJECTS, &volume),
    SCHEMA_REFUSE("activeDeadlineSeconds", INT64, NULL,
                  "a pod's own deadline is not kept; the job's is (spec.activeDeadlineSeconds of a Job, "
                  "spec.runPolicy.activeDeadlineSeconds of a PyTorchJob)"),
    SCHEMA_NOTED("securityContext", ANY, NULL, no_user), SCHEMA_OF("hostAliases", OBJECTS, &host_alias),
    SCHEMA_OF("resourceClaims", OBJECTS, &resource_claim), SCHEMA_ROW("serviceAccountName", NAME),
    SCHEMA_IDLE("hostNetwork", BOOL), SCHEMA_IDLE("hostPID", BOOL), SCHEMA_IDLE("hostIPC", BOOL),
    SCHEMA_IDLE("hostUsers", BOOL), SCHEMA_IDLE("serviceAccount", TEXT),
    SCHEMA_IDLE("automountServiceAccountToken", BOOL), SCHEMA_IDLE("nodeName", TEXT),
    SCHEMA_IDLE("nodeSelector", TEXT_MAP), SCHEMA_IDLE("affinity", ANY), SCHEMA_IDLE("tolerations", ANY),
    SCHEMA_IDLE("topologySpreadConstraints", ANY), SCHEMA_IDLE("schedulerName", TEXT),
    SCHEMA_IDLE("schedulingGates", ANY), SCHEMA_IDLE("schedulingGroup", ANY), SCHEMA_IDLE("priority", INT32),
    SCHEMA_IDLE("priorityClassName", TEXT), SCHEMA_IDLE("preemptionPolicy", TEXT),
    SCHEMA_IDLE("runtimeClassName", TEXT), SCHEMA_IDLE("imagePullSecrets", ANY),
    SCHEMA_IDLE("dnsPolicy", TEXT),
    SCHEMA_NOTED("dnsConfig", ANY, NULL, "names resolve as on this machine, but for the pods' own"),
    SCHEMA_IDLE("enableServiceLinks", BOOL), SCHEMA_IDLE("ephemeralContainers", ANY), SCHEMA_IDLE("os", ANY),
    SCHEMA_IDLE("overhead", ANY), SCHEMA_IDLE("readinessGates", ANY), SCHEMA_IDLE("resources", ANY),
    SCHEMA_ROW("setHostnameAsFQDN", BOOL), SCHEMA_IDLE("shareProcessNamespace", BOOL));
SCHEMA_FIELDS(template_metadata, SCHEMA_IDLE("name", TEXT), SCHEMA_IDLE("namespace", TEXT),
              SCHEMA_ROW("labels", TEXT_MAP), SCHEMA_ROW("annotations", TEXT_MAP),
              SCHEMA_IDLE("finalizers", TEXT_LIST), SCHEMA_IDLE("creationTimestamp", ANY));
/* --- what others use --- */

const struct schema pod_env_schema = {env_fields, sizeof env_fields / sizeof *env_fields, NULL};
const struct schema pod_volume_schema = {volume_fields, sizeof volume_fields / sizeof *volume_fields, NULL};
const struct schema pod_volume_mount_schema = {
    volume_mount_fields, sizeof volume_mount_fields / sizeof *volume_mount_fields, NULL};

static const struct schema_field template_fields[] = {SCHEMA_OF("metadata", OBJECT, &template_metadata),
                                                      SCHEMA_OF("spec", OBJECT, &pod)};
const struct schema pod_template_schema = {template_fields, sizeof template_fields / sizeof *template_fields,
                                           NULL};

static const struct schema_field metadata_fields[] = {SCHEMA_ROW("name", NAME),
                                                      SCHEMA_ROW("generateName", NAME),
                                                      SCHEMA_ROW("namespace", NAME),
                                                      SCHEMA_ROW("labels", TEXT_MAP),
                                                      SCHEMA_ROW("annotations", TEXT_MAP),
                                                      SCHEMA_IDLE("uid", TEXT),
                                                      SCHEMA_IDLE("creationTimestamp", ANY),
                                                      SCHEMA_IDLE("deletionGracePeriodSeconds", ANY),
                                                      SCHEMA_IDLE("deletionTimestamp", ANY),
                                                      SCHEMA_IDLE("finalizers", ANY),
                                                      SCHEMA_IDLE("generation", ANY),
                                                      SCHEMA_IDLE("managedFields", ANY),
                                                      SCHEMA_IDLE("ownerReferences", ANY),
                                                      SCHEMA_IDLE("resourceVersion", ANY),
                                                      SCHEMA_IDLE("selfLink", ANY)};
const struct schema object_metadata_schema = {metadata_fields,
                                              sizeof metadata_fields / sizeof *metadata_fields, NULL};
