/* Preloaded into a program that writes to a file, so that each line is there as soon as it is written. */
#include <stdio.h>

__attribute__((constructor)) static void line_buffered(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
}
