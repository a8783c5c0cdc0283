# The runtime's numbers against PyTorch in float64; skipped where there is no torch.
add_executable(gpt_dump gpt_dump.c)
target_link_libraries(gpt_dump PRIVATE muster_flags muster_runtime)
set_target_properties(gpt_dump PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
muster_script_test(compat_gpt_torch COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/gpt_torch_test.py LABELS compat)
muster_script_test(compat_torchrun_train COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/torchrun_train_test.py
  LABELS compat)
