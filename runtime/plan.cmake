# The plan: pure, no I/O, no clock, no threads. Of the kernels it uses the dtypes only.
add_library(muster_plan STATIC
  mesh.c
  model.c
  plan.c
  plan_access.c
  plan_check.c
  plan_check_content.c
  plan_check_world.c
  plan_dump.c
  plan_edge.c
  plan_emit.c
  plan_gather.c
  plan_group.c
  plan_memory.c
  plan_names.c
  plan_reduce.c
  plan_schedule.c
  plan_steps.c
  plan_update.c)
target_link_libraries(muster_plan PRIVATE muster_flags PUBLIC muster_base muster_kernels)
