# Run by CPack between staging and packing.
execute_process(
  COMMAND bash ${CPACK_MUSTER_SOURCE}/packages/deb_stage.sh ${CPACK_TEMPORARY_INSTALL_DIRECTORY} ${CPACK_MUSTER_BUILD} ${CPACK_PACKAGE_VERSION}
    ${CPACK_MUSTER_EMULATOR}
  RESULT_VARIABLE status)
if(status)
  message(FATAL_ERROR "packages/deb_stage.sh: ${status}")
endif()
