# muster local: from a manifest to a job.
muster_test(local_manifest_test SOURCES local_manifest_test.c LINK muster_launcher)
