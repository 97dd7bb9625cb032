/* Starts a process that opens the device and writes the files, and waits for it. Once in a process; nothing in one that
 * uses verbs. errno is left alone. */
void write_files_by_helper(void);

/* A function of ringside's libibverbs, or null in a program that has not loaded it. */
void (*ringside_function(const char *name))(void);
