# muster local: the life of a job and its pods. Vectors are read from tests/data.
muster_test(launcher_lifecycle_test SOURCES launcher_lifecycle_test.c LINK muster_launcher PkgConfig::JANSSON)
muster_test(launcher_local_env_test SOURCES launcher_local_env_test.c LINK muster_launcher)
muster_test(launcher_local_run_test SOURCES launcher_local_run_test.c LINK muster_launcher)
