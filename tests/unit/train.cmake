muster_test(train_rng_test SOURCES train_rng_test.c LINK muster_runtime)
muster_test(train_lr_test SOURCES train_lr_test.c LINK muster_runtime)
muster_test(train_sample_test SOURCES train_sample_test.c LINK muster_runtime)
muster_test(train_fingerprint_test SOURCES train_fingerprint_test.c LINK muster_runtime)
