# What the plan's tests share: models that are sizes only, and worlds of plans.
add_library(muster_plan_support STATIC ../support/plan_models.c ../support/plan_world.c)
target_link_libraries(muster_plan_support PRIVATE muster_flags PUBLIC muster_plan PkgConfig::CMOCKA)

muster_test(plan_build_test SOURCES plan_build_test.c LINK muster_plan_support)
muster_test(plan_check_test SOURCES plan_check_test.c LINK muster_plan_support)
muster_test(plan_golden_test SOURCES plan_golden_test.c LINK muster_plan_support)
muster_test(plan_random_test SOURCES plan_random_test.c LINK muster_plan_support)
