"""Small schemas of the custom resources of k8s/clusters whose own CRDs are not here: Kueue v1beta2, Volcano, the Prometheus Operator.

Written by hand from what their documentation says of the fields, not taken from a project: every field that the manifests use with its
type, its limits and its known values, and no other field. A field that the API server knows and this file does not is refused here;
the API server's refusals beyond types (webhooks, CEL rules) is checked in clusters_test.py where it is known."""

import jsonschema

NAME = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", "maxLength": 253}
QUANTITY = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(m|[KMGTPE]i?|k)?$"}]
}
LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
INTEGER = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
TEXT = {"type": "string"}
ANY = {}  # checked elsewhere


def record(required=(), **fields):
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": fields}


def array(items, **limits):
    return {"type": "array", "items": items, **limits}


def one_of(*values):
    return {"enum": list(values)}


TOLERATION = record(
    key=TEXT, operator=one_of("Exists", "Equal"), value=TEXT, effect=one_of("NoSchedule", "PreferNoSchedule", "NoExecute"), tolerationSeconds=INTEGER
)
SELECTOR = record(matchLabels=LABELS)

# --- Kueue, kueue.x-k8s.io/v1beta2 ---

FLAVOR_QUOTA = record(
    ("name", "resources"),
    name=NAME,
    resources=array(
        record(("name", "nominalQuota"), name=TEXT, nominalQuota=QUANTITY, borrowingLimit=QUANTITY, lendingLimit=QUANTITY), minItems=1, maxItems=64
    ),
)
KUEUE = {
    "ResourceFlavor": record(spec=record(nodeLabels={**LABELS, "maxProperties": 8}, tolerations=array(TOLERATION, maxItems=8), topologyName=NAME)),
    "ClusterQueue": record(
        spec=record(
            namespaceSelector=SELECTOR,
            cohortName=NAME,
            queueingStrategy=one_of("StrictFIFO", "BestEffortFIFO"),
            stopPolicy=one_of("None", "Hold", "HoldAndDrain"),
            preemption=record(
                withinClusterQueue=one_of("Never", "LowerPriority", "LowerOrNewerEqualPriority"),
                reclaimWithinCohort=one_of("Never", "LowerPriority", "Any"),
            ),
            resourceGroups=array(
                record(
                    ("coveredResources", "flavors"),
                    coveredResources=array(TEXT, minItems=1, maxItems=64),
                    flavors=array(FLAVOR_QUOTA, minItems=1, maxItems=64),
                ),
                maxItems=16,
            ),
        )
    ),
    "LocalQueue": record(spec=record(clusterQueue=NAME, stopPolicy=one_of("None", "Hold", "HoldAndDrain"))),
    "WorkloadPriorityClass": record(("value",), value={"type": "integer"}, description=TEXT),
}

# --- Volcano, batch.volcano.sh/v1alpha1 and scheduling.volcano.sh/v1beta1 ---

EVENT = one_of("*", "PodFailed", "PodEvicted", "PodPending", "Unknown", "TaskCompleted", "TaskFailed", "OutOfSync", "CommandIssued", "JobUpdated")
ACTION = one_of("AbortJob", "RestartJob", "RestartTask", "TerminateJob", "CompleteJob", "ResumeJob")
POLICY = record(action=ACTION, event=EVENT, events=array(EVENT), exitCode={"type": "integer"}, timeout=TEXT)
VOLCANO = {
    "Job": record(
        spec=record(
            schedulerName=TEXT,
            minAvailable=INTEGER,
            minSuccess=INTEGER,
            queue=TEXT,
            maxRetry=INTEGER,
            priorityClassName=TEXT,
            ttlSecondsAfterFinished=INTEGER,
            plugins={"type": "object", "additionalProperties": array(TEXT)},
            policies=array(POLICY),
            tasks=array(record(name=NAME, replicas=INTEGER, minAvailable=INTEGER, maxRetry=INTEGER, policies=array(POLICY), template=ANY)),
        )
    ),
    "Queue": record(
        spec=record(
            weight={"type": "integer", "minimum": 1, "maximum": 65535}, reclaimable={"type": "boolean"},
            capability={"type": "object", "additionalProperties": QUANTITY},
        )
    ),
}  # fmt: skip

# --- the Prometheus Operator, monitoring.coreos.com/v1 ---

RELABELING = record(
    sourceLabels=array({"type": "string", "pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$"}),
    separator=TEXT,
    targetLabel=TEXT,
    regex=TEXT,
    replacement=TEXT,
    action=one_of("replace", "keep", "drop", "labelmap", "labeldrop", "labelkeep", "hashmod"),
)
DURATION = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d|w|y))+$"}
PROMETHEUS = {
    "PodMonitor": record(
        ("spec",),
        spec=record(
            ("selector", "podMetricsEndpoints"),
            selector=SELECTOR,
            podMetricsEndpoints=array(
                record(port=TEXT, path=TEXT, interval=DURATION, honorLabels={"type": "boolean"}, relabelings=array(RELABELING))
            ),
        ),
    ),
    "PrometheusRule": record(
        ("spec",),
        spec=record(
            groups=array(
                record(
                    ("name",),
                    name={"type": "string", "minLength": 1},
                    interval=DURATION,
                    rules=array(
                        {
                            "oneOf": [
                                record(("record", "expr"), record=TEXT, expr=TEXT, labels=LABELS),
                                record(("alert", "expr"), alert=TEXT, expr=TEXT, labels=LABELS, annotations=LABELS, **{"for": DURATION}),
                            ]
                        }
                    ),
                )
            )
        ),
    ),
}

SCHEMAS = {
    **{("kueue.x-k8s.io/v1beta2", kind): schema for kind, schema in KUEUE.items()},
    ("batch.volcano.sh/v1alpha1", "Job"): VOLCANO["Job"],
    ("scheduling.volcano.sh/v1beta1", "Queue"): VOLCANO["Queue"],
    **{("monitoring.coreos.com/v1", kind): schema for kind, schema in PROMETHEUS.items()},
}
METADATA = record(("name",), name=NAME, namespace=NAME, labels=LABELS, annotations=LABELS)


def schema_of(document):
    """None for a kind that is not here."""
    schema = SCHEMAS.get((document["apiVersion"], document["kind"]))
    return schema and {**schema, "properties": {**schema["properties"], "apiVersion": TEXT, "kind": TEXT, "metadata": METADATA}}


def errors_of(document):
    validator = jsonschema.Draft202012Validator(schema_of(document))
    return [f"{error.json_path}: {error.message}" for error in sorted(validator.iter_errors(document), key=str)]
