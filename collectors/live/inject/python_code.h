/* What a code object of CPython's tells, read as it lies in memory: its name, and the line of an instruction.
 *
 * For code that the calling thread is running: it is alive, and these parts of it never change. */
#ifndef DEEPPROF_PYTHON_CODE_H
#define DEEPPROF_PYTHON_CODE_H
#include <stddef.h>
#include <stdint.h>

enum { PYTHON_OLDEST = 9, PYTHON_NEWEST = 14 }; /* versions 3.9 to 3.14 */

/* Once. `minor`: of the version. `prefixes`: beginnings of file names to leave out, a line each. */
void code_prepare(int minor, const char *prefixes);

/* Tells code objects apart that have had the same address one after the other. */
uint64_t code_mark(const void *code);
uint32_t code_name(const void *code);            /* the id of "file(first line): name" */
uint32_t code_line(const void *code, int offset); /* of an instruction, in bytes from the first; 0: it has none */

/* For the comparison at the beginning: parts as texts, in UTF-8, cut to the room there is. */
void code_file(const void *code, char *text, size_t room);
void code_function(const void *code, char *text, size_t room);
void code_text(const void *string, char *text, size_t room);
int code_first_line(const void *code);
#endif
