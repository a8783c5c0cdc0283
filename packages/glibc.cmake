# Run by CPack on what it is about to pack, last: the programs and libraries are made to run with glibc 2.28.
file(GLOB files ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/bin/* ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/bin/*
  ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/lib/*.so.* ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/lib/muster/*.so)
foreach(file IN LISTS files)
  if(IS_SYMLINK ${file})
    list(REMOVE_ITEM files ${file})
  endif()
endforeach()
execute_process(COMMAND python3 ${CPACK_MUSTER_SOURCE}/packages/glibc.py ${CPACK_MUSTER_MACHINE} ${files} RESULT_VARIABLE status)
if(status)
  message(FATAL_ERROR "packages/glibc.py: ${status}")
endif()
