# muster-train: the program. What is testable lives in a static library of its own.
add_library(muster_train_app STATIC data.c progress.c train_config.c)
target_link_libraries(muster_train_app PRIVATE muster_flags PUBLIC muster_base muster_tree muster_kernels)

if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/muster_train.c AND TARGET muster_runtime)
  add_executable(muster-train muster_train.c)
  target_link_libraries(muster-train PRIVATE muster_flags muster_train_app muster_runtime)
endif()
