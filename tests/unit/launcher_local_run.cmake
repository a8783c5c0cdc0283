# muster local: the life of a job and its pods. Vectors are read from tests/data.
muster_test(launcher_lifecycle_test SOURCES launcher_lifecycle_test.c LINK muster_launcher PkgConfig::JANSSON)
