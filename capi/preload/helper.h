/* Starts a process that opens the device and writes the files, and waits for it. Once in a process; nothing in one that
 * uses verbs. errno is left alone. */
void write_files_by_helper(void);

/* The same for a program that lists all interfaces, if it has loaded libibverbs: another one that only lists them does
 * not have a device opened. */
void write_files_for_a_list(void);

/* The folder that RINGSIDE_FILES names, also after the program has cleared its environment; null without one. */
const char *files_folder(void);

/* A function of ringside's libibverbs, or null in a program that has not loaded it. */
void (*ringside_function(const char *name))(void);
