# The trainer and what it is made of (muster_runtime, static, for programs and tests of this tree) and the public
# library (libmuster.so), which exports muster_* and nothing else.
add_library(muster_runtime STATIC
  comm_table.c
  executor.c
  fingerprint.c
  generate.c
  gpt.c
  gpt_layers.c
  heartbeat.c
  notice.c
  lr.c
  rng.c
  safetensors.c
  sample.c
  trainer.c
  trainer_params.c
  trainer_save.c)
target_link_libraries(muster_runtime PRIVATE muster_flags PUBLIC muster_plan muster_device muster_kernels muster_base m)

# What api_trainer.c does not need comes from archives: -u makes the linker take it.
add_library(libmuster SHARED api_trainer.c)
target_link_libraries(libmuster PRIVATE muster_flags muster_runtime)
target_link_options(libmuster PRIVATE -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/libmuster.map -Wl,--no-undefined
  -Wl,-u,muster_world_open -Wl,-u,muster_heartbeat -Wl,-u,muster_notice)
set_target_properties(libmuster PROPERTIES OUTPUT_NAME muster LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/libmuster.map
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
target_include_directories(libmuster INTERFACE ${CMAKE_SOURCE_DIR})

include(${CMAKE_CURRENT_SOURCE_DIR}/app.cmake OPTIONAL)
