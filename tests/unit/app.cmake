muster_test(train_config_test SOURCES train_config_test.c LINK muster_train_app)
muster_test(data_test SOURCES data_test.c LINK muster_train_app muster_runtime PkgConfig::JANSSON)
muster_test(progress_test SOURCES progress_test.c LINK muster_train_app)
