# The trainer and what it is made of (muster_runtime, static, for programs and tests of this tree) and the public
# library (libmuster.so), which exports muster_* and nothing else.
add_library(muster_runtime STATIC
  comm_table.c
  executor.c
  fingerprint.c
  gpt.c
  gpt_layers.c
  lr.c
  rng.c
  sample.c
  trainer.c
  trainer_params.c)
target_link_libraries(muster_runtime PRIVATE muster_flags PUBLIC muster_plan muster_device muster_kernels muster_base m)

include(${CMAKE_CURRENT_SOURCE_DIR}/app.cmake OPTIONAL)
