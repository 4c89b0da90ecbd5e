# Runs PROGRAM with ARGS; fails unless it exits with CODE and what it wrote matches MATCHES.
execute_process(COMMAND "${PROGRAM}" ${ARGS}
  RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE errors)
set(written "${output}${errors}")
if(NOT code STREQUAL CODE)
  message(FATAL_ERROR "exit code ${code}, expected ${CODE}\n${written}")
endif()
if(NOT written MATCHES "${MATCHES}")
  message(FATAL_ERROR "nothing written matches '${MATCHES}'\n${written}")
endif()
