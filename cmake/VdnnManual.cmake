# Writes what the command (VDNN) says of itself into FOLDER: the shells' completions and the man pages.
foreach(shell bash zsh fish)
  execute_process(COMMAND ${VDNN} completion ${shell} OUTPUT_FILE ${FOLDER}/${shell} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(MAKE_DIRECTORY ${FOLDER}/man1)
execute_process(COMMAND ${VDNN} manual --man ${FOLDER}/man1 COMMAND_ERROR_IS_FATAL ANY)
