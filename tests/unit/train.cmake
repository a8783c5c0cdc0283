muster_test(train_rng_test SOURCES train_rng_test.c LINK muster_runtime)
muster_test(train_lr_test SOURCES train_lr_test.c LINK muster_runtime)
muster_test(train_heartbeat_test SOURCES train_heartbeat_test.c LINK muster_runtime)
muster_test(train_notice_test SOURCES train_notice_test.c LINK muster_runtime muster_launcher)
muster_test(train_sample_test SOURCES train_sample_test.c LINK muster_runtime)
muster_test(train_fingerprint_test SOURCES train_fingerprint_test.c LINK muster_runtime)
muster_test(train_gpt_test SOURCES train_gpt_test.c LINK muster_runtime)

# Whole training runs, ranks as threads.
add_library(train_harness STATIC train_harness.c)
target_link_libraries(train_harness PRIVATE muster_flags PUBLIC muster_runtime muster_test_support muster_test_kv)
muster_test(train_trainer_test SOURCES train_trainer_test.c LINK train_harness)
muster_test(train_equal_test SOURCES train_equal_test.c LINK train_harness)
muster_test(train_alloc_test SOURCES train_alloc_test.c LINK train_harness)
muster_test(train_overlap_test SOURCES train_overlap_test.c LINK train_harness)
# The overlap is measured: beside other tests there is nothing to measure.
set_tests_properties(train_overlap_test PROPERTIES RUN_SERIAL TRUE)

# Through the public library: from C, and from Python by ctypes, alone and as two ranks under muster run.
muster_test(train_api_test SOURCES train_api_test.c LINK libmuster)
# A sanitizer's runtime would have to be loaded into Python first.
if(NOT MUSTER_SANITIZE)
  muster_script_test(train_ctypes_test COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/train_ctypes_test.py LABELS unit)
endif()
