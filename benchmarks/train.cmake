add_executable(train_cpu train_cpu.c)
target_link_libraries(train_cpu PRIVATE muster_flags muster_runtime)
