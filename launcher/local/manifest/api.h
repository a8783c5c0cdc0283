/* api.h - the releases whose fields and rules muster local knows, written in this one place.
 *
 * tests/data/api_fields.txt holds the fields of these releases, and a test compares them with the schemas. A
 * field that is in no schema is named in a warning with its release here: it may be newer. */
#ifndef MUSTER_LAUNCHER_LOCAL_MANIFEST_API_H
#define MUSTER_LAUNCHER_LOCAL_MANIFEST_API_H

#define API_PYTORCHJOB "Training Operator 1.9"
#define API_JOB        "Kubernetes 1.36"
#define API_JOBSET     "JobSet 0.12"
#define API_TRAINJOB   "Kubeflow Trainer 2.3"

/* symbol, kind, apiVersion, release, the newest field or value that is known */
#define APIS(X)                                                                                              \
    X(LOCAL_PYTORCHJOB, "PyTorchJob", "kubeflow.org/v1", API_PYTORCHJOB, "spec.runPolicy.managedBy")         \
    X(LOCAL_JOB, "Job", "batch/v1", API_JOB, "spec.template.spec.schedulingGroup")                           \
    X(LOCAL_JOBSET, "JobSet", "jobset.x-k8s.io/v1alpha2", API_JOBSET,                                        \
      "the action RestartJob of spec.failurePolicy.rules")                                                   \
    X(LOCAL_TRAINJOB, "TrainJob", "trainer.kubeflow.org/v1alpha1", API_TRAINJOB,                             \
      "terminationGracePeriodSeconds in spec.runtimePatches")

#endif
